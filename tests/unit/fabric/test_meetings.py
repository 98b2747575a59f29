"""Which nodes meet, what each does, and what came of it."""

from __future__ import annotations

import contextlib
import csv
import json
import socket
from collections.abc import Mapping
from io import StringIO
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.fabric import meetings
from ansible.module_utils.gaudi.fabric.classes import Floor
from ansible.module_utils.gaudi.fabric.static import StaticFault
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filter_plugins import acceptance
from filter_plugins.checked import reported
from filter_plugins.inventory_addresses import inventory_addresses
from tests.unit.fabric.pages import accepted, everything, numbers
from tests.unit.preflight.test_contracts import ROOT

CARD_TYPES = yaml.safe_load((ROOT / "catalog" / "cards.yml").read_text(encoding="utf-8"))


CARD = "HL-225"


def seen(number: int, **otherwise: Any) -> dict[str, dict[str, Any]]:
    """What so many nodes reported of themselves."""
    about = {"ready": True, "why": "", "card_type": CARD, "modules": list(range(8)), "direct": False}
    about |= {"named": False, "known": [], "expected": 8}
    return {
        f"pair-{place}": {**about, "address": f"10.20.0.{place}", "port": 40000 + place, **otherwise}
        for place in range(1, number + 1)
    }


def planned(nodes: Mapping[str, Mapping[str, Any]], budget: int = 0, **site: Any) -> dict[str, Any]:
    return acceptance.acceptance_pairs_plan(nodes, budget, CARD_TYPES, **site)


def run(plan: Mapping[str, Any], bad: set[frozenset[str]], lost: str = "") -> dict[str, dict[int, dict[str, Any]]]:
    """What the halves of all rounds returned; a lost node is not heard of."""
    halves: dict[str, dict[int, dict[str, Any]]] = {}
    for place in range(len(plan["rounds"])):
        for node in plan["nodes"]:
            part = meetings.part(plan, place, node)
            if not part or node == lost:
                continue
            figure = 40.0 if {node, part["other"]} in bad else 100.0
            half = {"nw_gb_s": None if part["half"] else figure, "sentence": "", "no_direct": False}
            halves.setdefault(node, {})[place] = half
    return halves


def test_every_node_has_one_part_in_a_round_and_its_partner_the_other_half() -> None:
    plan = planned(seen(5))
    for place in range(5):
        parts = {node: meetings.part(plan, place, node) for node in plan["nodes"]}
        assert sum(not part for part in parts.values()) == 1, "of an odd number one pauses"
        for node, part in parts.items():
            if part:
                other = parts[part["other"]]
                assert (other["other"], other["first"], {part["half"], other["half"]}) == (node, part["first"], {0, 1})
                assert (part["first"] == node) == (part["half"] == 0)


def test_it_is_said_beforehand_how_long_it_takes() -> None:
    plan = planned(seen(4))
    (said,) = plan["sentences"]
    assert said == (
        "all_reduce of 32m (10000 loops) over 8 cards of each of two nodes: 6 pairs of 4 nodes in 3 rounds of 100 "
        "seconds, about 5 minutes, more where a run hangs."
    )
    assert (plan["seconds"], plan["limit"], plan["of"]) == (100, 850, 3)


def test_a_budget_leaves_rounds_out_and_says_so() -> None:
    plan = planned(seen(4), 250)
    assert (len(plan["rounds"]), plan["of"]) == (2, 3)
    assert plan["sentences"][-1] == "The budget of 250 s is enough for 2 of 3 rounds: not every pair meets."
    with pytest.raises(AnsibleFilterError, match="Give 100 at least"):
        planned(seen(4), 99)
    assert meetings.still_fits(plan, 250, 150)
    assert not meetings.still_fits(plan, 250, 151), "a round that hung has taken the time of the next one"
    assert meetings.still_fits(plan, 0, 1e9)


def test_a_round_that_may_be_run_again_without_gaudi_direct_has_its_time() -> None:
    plan = planned(seen(4, direct=True))
    (said,) = plan["sentences"]
    assert "about 7 minutes with one round that is run again where a node has no Gaudi Direct" in said
    assert len(planned(seen(4, direct=True), 300)["rounds"]) == 2
    with pytest.raises(AnsibleFilterError, match=r"one round takes about 200 s\. Give 200 at least"):
        planned(seen(4, direct=True), 199)
    assert meetings.still_fits(plan, 300, 100, direct=True)
    assert not meetings.still_fits(plan, 300, 101, direct=True)


def test_gaudi_direct_between_the_nodes_is_told() -> None:
    """Where a node says that it has none, its round is run again without, and who said so is kept."""
    plan = planned(seen(2, direct=True))
    good, missing = run(plan, set()), {"nw_gb_s": None, "sentence": "No \x1bdmabuf.", "no_direct": True}
    assert acceptance.acceptance_pairs_no_direct(good, 0) == ""
    refused = {"pair-1": {"0": {**missing, "sentence": "It failed.", "no_direct": False}}, "pair-2": {"0": missing}}
    said = acceptance.acceptance_pairs_no_direct(refused, 0)  # type: ignore[arg-type]
    assert said == "pair-2: No ?dmabuf."
    assert acceptance.acceptance_pairs_no_direct(refused, 1) == ""  # type: ignore[arg-type]
    found = acceptance.acceptance_pairs_outcome(plan, good, [], said)
    assert (found["good"], found["results"]["gaudi_direct"]) == (True, False)
    assert found["lines"][1].startswith("Gaudi Direct is not in use. pair-2: No ?dmabuf. Traffic goes through the host")
    found = acceptance.acceptance_pairs_outcome(plan, good, [])
    assert found["results"]["gaudi_direct"] is True
    assert found["lines"][1:] == ["Gaudi Direct is in use between the nodes."]
    nobody = acceptance.acceptance_pairs_outcome(plan, run(plan, set(), lost="pair-2"), [])
    assert nobody["results"]["gaudi_direct"] is None
    unasked = planned(seen(2))
    assert acceptance.acceptance_pairs_outcome(unasked, run(unasked, set()), [])["results"]["gaudi_direct"] is None


def test_nodes_that_cannot_be_measured_are_left_out_by_name() -> None:
    nodes = seen(4)
    nodes["pair-2"] |= {"ready": False, "why": "Module 3 is in use."}
    plan = planned(nodes)
    assert plan["nodes"] == ["pair-1", "pair-3", "pair-4"]
    assert plan["sentences"][-1] == "pair-2 is left out: Module 3 is in use."
    found = meetings.outcome(plan, meetings.met(plan, run(plan, set())), None)
    assert found["good"]
    assert found["lines"][-1] == "pair-2 is left out: Module 3 is in use."
    assert found["results"]["left_out"] == {"pair-2": "Module 3 is in use."}
    for node in ("pair-3", "pair-4"):
        nodes[node] |= {"ready": False, "why": "It has no cards."}
    with pytest.raises(AnsibleFilterError, match=r"two nodes that can be measured, and 1 can. pair-2 is left out"):
        planned(nodes)


def test_as_many_cards_take_part_as_most_nodes_have_and_direct_only_where_all_have_it() -> None:
    nodes = seen(3, direct=True)
    assert planned(nodes)["direct"]
    nodes["pair-3"] |= {"modules": [0, 1, 2, 3], "expected": 4, "direct": False}
    plan = planned(nodes)
    assert (plan["nodes"], plan["modules"], plan["direct"]) == (["pair-1", "pair-2"], 8, True)
    assert plan["left_out"]["pair-3"].startswith("It has 4 cards, and most nodes have 8.")
    nodes["pair-2"] |= {"modules": [4, 5, 6, 7], "expected": 4}
    plan = planned(nodes)
    assert (len(plan["nodes"]), plan["modules"], plan["direct"]) == (3, 4, False)
    assert "over 4 cards" in plan["sentences"][0]


def test_nodes_with_other_cards_than_most_are_left_out() -> None:
    nodes = seen(4)
    nodes["pair-1"]["card_type"] = "HL-288E"
    nodes["pair-2"]["card_type"] = "HL-999"
    plan = planned(nodes)
    assert plan["nodes"] == ["pair-3", "pair-4"]
    assert "HL-288E" in plan["left_out"]["pair-1"]
    assert "the catalogue does not know" in plan["left_out"]["pair-2"]


def test_the_inventory_decides_what_is_measured_and_for_how_long() -> None:
    plan = planned(seen(2), tests=[{"collective": "all_gather", "size": "1m", "loop": 7}], limit=333)
    assert [plan[key] for key in ("collective", "size", "loop", "limit")] == ["all_gather", 1 << 20, 7, 333]
    for tests in (["all_of_it"], [{"collective": "all2all", "size": 32}]):
        with pytest.raises(AnsibleFilterError):
            planned(seen(2), tests=tests)


def test_a_node_that_reports_the_address_of_another_one_is_not_connected_to() -> None:
    nodes = seen(4)
    nodes["pair-1"]["address"] = nodes["pair-2"]["address"]
    assert planned(nodes)["nodes"] == ["pair-3", "pair-4"], "nobody knows whose it is"
    nodes["pair-2"]["named"] = True
    plan = planned(nodes)
    assert plan["nodes"] == ["pair-2", "pair-3", "pair-4"], "the inventory knows"
    assert "Set fabric_check_address." in plan["left_out"]["pair-1"]


def test_a_node_whose_address_the_inventory_knows_sends_others_nowhere_else() -> None:
    """Without fabric_check_address a node could have its partner connect to any machine of the network."""
    nodes = seen(4)
    nodes["pair-1"] |= {"known": ["10.20.0.1"], "address": "10.99.0.7"}
    nodes["pair-2"] |= {"known": ["192.0.2.2", "10.20.0.2"]}
    plan = planned(nodes)
    assert plan["nodes"] == ["pair-2", "pair-3", "pair-4"]
    assert plan["left_out"]["pair-1"] == (
        "It reports 10.99.0.7, and its ansible_host is 10.20.0.1. Set fabric_check_address to the address at which "
        "other nodes reach it."
    )
    nodes["pair-1"]["named"] = True
    assert len(planned(nodes)["nodes"]) == 4
    # The address of another node stays with that one.
    nodes["pair-1"] |= {"named": False, "known": [], "address": "10.20.0.2"}
    plan = planned(nodes)
    assert plan["nodes"] == ["pair-2", "pair-3", "pair-4"]


@pytest.mark.parametrize(
    ("answers", "known"),
    [
        (["10.20.0.11", "fd00::11"], ["10.20.0.11"]),
        (["127.0.0.1"], []),
        (["127.0.1.1", "192.0.2.4"], ["192.0.2.4"]),
        ([], []),
    ],
)
def test_the_controller_resolves_the_address_that_the_inventory_has(
    monkeypatch: pytest.MonkeyPatch, answers: list[str], known: list[str]
) -> None:
    def look_up(*_: object, **__: object) -> list[Any]:
        if not answers:
            raise socket.gaierror(-2, "Name or service not known")
        return [(2, 1, 6, "", (each, 0)) for each in answers]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert inventory_addresses("gaudi-01") == known


def test_of_two_nodes_none_decides_how_many_cards_of_the_other_are_measured() -> None:
    nodes = seen(2)
    nodes["pair-1"]["modules"] = [0]
    with pytest.raises(AnsibleFilterError, match="reports 1 cards, and gaudi_expected_cards is 8"):
        planned(nodes)


HOSTILE = ["10.20.0.2", "pair-2", "-o ProxyCommand=id", "../x", "a\0b", "{{ 7 * 7 }}", 22, 10**9, 10**400, 1e308, True]
ANY_JSON = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("ready", "why", "card_type", "modules", "address", "port", "direct", "limit", "seconds", "collective", "size")


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(FIELDS), ANY_JSON)
@example("limit", 10**6)
@example("seconds", 10**9)
@example("modules", [0])
@example("address", "10.20.0.2")
@example("port", 22)
def test_whatever_a_node_reports_the_runs_of_the_others_are_as_before(field: str, value: Any) -> None:
    nodes = seen(5)
    before = planned(nodes, 3600)
    hostile = {**nodes["pair-1"], field: value}
    try:
        nodes["pair-1"] = {**reported(hostile, "pair"), "named": False, "known": [], "expected": 8}
    except AnsibleFilterError:
        del nodes["pair-1"]  # its own task fails, and the others go on
    plan = planned(nodes, 3600)
    unchanged = ("collective", "size", "loop", "modules", "limit", "seconds", "direct")
    assert {key: plan[key] for key in unchanged} == {key: before[key] for key in unchanged}
    for place in range(len(plan["rounds"])):
        for node in plan["nodes"]:
            part = meetings.part(plan, place, node)
            if part and part["first"] != "pair-1":
                assert {key: part[key] for key in ("address", "port")} == before["reached"][part["first"]]
            elif part:
                assert part["port"] >= 1024
                assert part["address"] not in [before["reached"][other]["address"] for other in plan["nodes"][1:]]


@settings(max_examples=60)
@given(st.sampled_from(["nw_gb_s", "sentence", "no_direct"]), ANY_JSON)
def test_whatever_a_node_reports_of_its_half_is_a_bounded_figure_and_a_line(field: str, value: Any) -> None:
    with contextlib.suppress(AnsibleFilterError):
        half = reported({"nw_gb_s": 100.0, "sentence": "", "no_direct": False, field: value}, "half")
        assert half["nw_gb_s"] is None or 0 <= half["nw_gb_s"] <= 10_000
        assert half["sentence"].isprintable()
        assert len(half["sentence"]) <= 2000
        assert half["no_direct"] in (True, False)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document where something else could stand."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    copy: Any = json.loads(json.dumps([value]))
    at = copy
    for key in (0, *path)[:-1]:
        at = at[key]
    at[(0, *path)[-1]] = other
    return copy[0]


# With a history, host NICs, a burn-in and numbers of cards, too.
VERDICTS = [{**each, "node": "somebody"} for each in (accepted(), numbers(), *everything())]
PLACES = [(number, path) for number, each in enumerate(VERDICTS) for path in places(each)]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PLACES), ANY_JSON)
@example((0, ("node",)), "pair-2")
@example((0, ("measurements", 0, "nw_gb_s")), 10**400)
@example((0, ("measurements", 0, "class")), "")
@example((0, ("state",)), "")
@example((0, ("history", 1, "state")), "")
@example((4, ("located", 0, "modules")), [5])
@example((0, ("made_of", "serials")), {"\N{SUPERSCRIPT TWO}": "AM00000001"})
def test_a_page_shows_a_node_under_its_own_name_whatever_it_reports(
    place: tuple[int, tuple[Any, ...]], value: Any
) -> None:
    number, path = place
    page = acceptance.acceptance_page({"gaudi-01": replaced(VERDICTS[number], path, value)}, "2026-01-01T00:00:00Z")
    assert "somebody" not in page
    assert (path, value) != (("node",), "pair-2") or ("gaudi-01" in page and "pair-2" not in page)


MEASURED = VERDICTS[0]["measurements"][0]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("measurements", 0, "modules"), list(range(33))),
        (("measurements",), [MEASURED] * 129),
        (("history", 0, "measurements"), [MEASURED] * 129),
        (("history",), VERDICTS[0]["history"] * 6),
        (("made_of", "serials"), {str(module): "AN1" for module in range(33)}),
        (("located",), [{"kind": "card", "modules": [0], "sentence": ""}] * 513),
        (("located",), [{"kind": "group", "modules": list(range(33)), "sentence": ""}]),
    ],
)
def test_a_page_leaves_out_a_node_that_reports_more_than_any_node_has(path: tuple[Any, ...], value: Any) -> None:
    verdicts = {"gaudi-01": replaced(VERDICTS[0], path, value), "gaudi-02": VERDICTS[0]}
    page = acceptance.acceptance_page(verdicts, "2026-01-01T00:00:00Z")
    assert "gaudi-02" in page
    assert "gaudi-01" not in page


def test_a_bad_pair_of_four_nodes_is_named() -> None:
    plan = planned(seen(4))
    halves = run(plan, {frozenset(("pair-2", "pair-3"))})
    found = acceptance.acceptance_pairs_outcome(plan, halves, [])
    assert not found["good"]
    assert [set(link) for link in found["results"]["bad_links"]] == [{"pair-2", "pair-3"}]
    assert "The way between" in found["lines"][0]
    rows = list(csv.DictReader(StringIO(found["csv"])))
    assert len(rows) == 6
    assert [row["class"] for row in rows].count("bad") == 1
    assert json.loads(json.dumps(found["results"])) == found["results"]


def test_a_lost_node_is_named_and_keeps_nobody_else() -> None:
    plan = planned(seen(4))
    found = meetings.outcome(plan, meetings.met(plan, run(plan, set(), lost="pair-4")), None)
    assert found["results"]["bad_nodes"] == ["pair-4"]
    assert any("nothing was heard" in row["sentence"] for row in found["results"]["pairs"])


def test_the_sentence_of_either_half_counts_the_pair_as_bad() -> None:
    plan = planned(seen(2))
    wrong = {"nw_gb_s": None, "sentence": "wrong sums."}
    good = {"nw_gb_s": 100.0, "sentence": ""}
    (met,) = meetings.met(plan, {"pair-1": {0: good}, "pair-2": {0: wrong}})
    assert (met.nw_gb_s, met.sentence) == (None, "pair-2: wrong sums.")
    (met,) = meetings.met(plan, {"pair-1": {0: wrong | {"sentence": ""}}, "pair-2": {0: wrong | {"sentence": ""}}})
    assert met.sentence == "pair-1: hccl_demo printed no NW Bandwidth"


def test_rounds_that_were_not_run_are_no_bad_pairs() -> None:
    plan = planned(seen(4))
    halves = {node: {0: made[0]} for node, made in run(plan, set()).items()}
    found = meetings.outcome(plan, meetings.met(plan, halves), None)
    assert found["good"]
    assert found["lines"][-1] == "4 of 6 pairs have not met."


def test_the_sites_own_floor_for_so_many_ranks_counts() -> None:
    plan = planned(seen(2))
    floors = [Floor("all_reduce", 90.0), Floor("all_reduce", 120.0, ranks=16), Floor("all_reduce", 500.0, ranks=8)]
    assert meetings.floor_of(floors, plan) == 120.0
    assert meetings.floor_of([], plan) is None
    requested = [{"collective": "all_reduce", "nw_gb_s": 120, "ranks": 16}]
    assert not acceptance.acceptance_pairs_outcome(plan, run(plan, set()), requested)["good"]
    with pytest.raises(AnsibleFilterError, match="fast"):
        acceptance.acceptance_pairs_outcome(plan, run(plan, set()), [{"collective": "all_reduce", "nw_gb_s": "fast"}])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"faults": (StaticFault("card-count", "7 of 8 cards are there."),)}, "7 of 8 cards"),
        ({"busy": (3,)}, "Module 3 is in use"),
        ({"why_not": "The image x is not on the node."}, "The image x"),
        ({"modules": ()}, "no cards"),
        ({"ways": False}, "fabric_check_host_nics: true"),
        ({"address": None}, "fabric_check_address"),
        ({}, ""),
    ],
)
def test_why_a_node_meets_nobody(given: dict[str, Any], words: str) -> None:
    usual: dict[str, Any] = {"faults": (), "modules": (0, 1), "busy": (), "why_not": "", "ways": True}
    usual |= {"address": "10.20.0.11"}
    said = meetings.not_ready(**{**usual, **given})
    assert words in said
    assert bool(said) == bool(words)
