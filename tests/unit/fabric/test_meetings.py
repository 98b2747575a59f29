"""Which nodes meet, what each does, and what came of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from io import StringIO
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.fabric import meetings
from ansible.module_utils.gaudi.fabric.classes import Floor
from ansible.module_utils.gaudi.fabric.static import Fault

from filter_plugins import acceptance

SIZE = 32 << 20


def seen(number: int, **otherwise: Any) -> dict[str, dict[str, Any]]:
    """What so many nodes said of themselves."""
    about = {"ready": True, "why": "", "modules": list(range(8)), "collective": "all_reduce", "size": SIZE, "loop": 100}
    about |= {"seconds": 85, "limit": 850, "direct": False, "verdict": {}, **otherwise}
    return {f"pair-{place}": dict(about) for place in range(1, number + 1)}


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
    plan = meetings.plan(seen(5), 0)
    for place in range(5):
        parts = {node: meetings.part(plan, place, node) for node in plan["nodes"]}
        assert sum(not part for part in parts.values()) == 1, "of an odd number one pauses"
        for node, part in parts.items():
            if part:
                other = parts[part["other"]]
                assert (other["other"], other["first"], {part["half"], other["half"]}) == (node, part["first"], {0, 1})
                assert (part["first"] == node) == (part["half"] == 0)


def test_it_is_said_beforehand_how_long_it_takes() -> None:
    plan = meetings.plan(seen(4), 0)
    (said,) = plan["sentences"]
    assert said == (
        "all_reduce of 32m (100 loops) over 8 cards of each of two nodes: 6 pairs of 4 nodes in 3 rounds of 100 "
        "seconds, about 5 minutes, more where a run hangs."
    )
    assert (plan["seconds"], plan["limit"], plan["of"]) == (100, 850, 3)


def test_a_budget_leaves_rounds_out_and_says_so() -> None:
    plan = meetings.plan(seen(4), 250)
    assert (len(plan["rounds"]), plan["of"]) == (2, 3)
    assert plan["sentences"][-1] == "The budget of 250 s is enough for 2 of 3 rounds: not every pair meets."
    with pytest.raises(Refusal, match="Give 100 at least"):
        meetings.plan(seen(4), 99)
    assert meetings.still_fits(plan, 250, 150)
    assert not meetings.still_fits(plan, 250, 151), "a round that hung has taken the time of the next one"
    assert meetings.still_fits(plan, 0, 1e9)


def test_a_round_that_may_be_run_again_without_gaudi_direct_has_its_time() -> None:
    plan = meetings.plan(seen(4, direct=True), 0)
    (said,) = plan["sentences"]
    assert "about 7 minutes with one round that is run again where a node has no Gaudi Direct" in said
    assert len(meetings.plan(seen(4, direct=True), 300)["rounds"]) == 2
    with pytest.raises(Refusal, match=r"one round takes about 200 s\. Give 200 at least"):
        meetings.plan(seen(4, direct=True), 199)
    assert meetings.still_fits(plan, 300, 100, direct=True)
    assert not meetings.still_fits(plan, 300, 101, direct=True)


def test_gaudi_direct_between_the_nodes_is_told() -> None:
    """Where a node says that it has none, its round is run again without, and who said so is kept."""
    plan = meetings.plan(seen(2, direct=True), 0)
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
    unasked = meetings.plan(seen(2), 0)
    assert acceptance.acceptance_pairs_outcome(unasked, run(unasked, set()), [])["results"]["gaudi_direct"] is None


def test_nodes_that_cannot_be_measured_are_left_out_by_name() -> None:
    nodes = seen(4)
    nodes["pair-2"] |= {"ready": False, "why": "Module 3 is in use."}
    plan = meetings.plan(nodes, 0)
    assert plan["nodes"] == ["pair-1", "pair-3", "pair-4"]
    assert plan["sentences"][-1] == "pair-2 is left out: Module 3 is in use."
    found = meetings.outcome(plan, meetings.met(plan, run(plan, set())), None)
    assert found["good"]
    assert found["lines"][-1] == "pair-2 is left out: Module 3 is in use."
    assert found["results"]["left_out"] == {"pair-2": "Module 3 is in use."}
    for node in ("pair-3", "pair-4"):
        nodes[node] |= {"ready": False, "why": "It has no cards."}
    with pytest.raises(AnsibleFilterError, match=r"two nodes that can be measured, and 1 can. pair-2 is left out"):
        acceptance.acceptance_pairs_plan(nodes, 0)


def test_as_many_cards_take_part_as_every_node_has_and_direct_only_where_all_have_it() -> None:
    nodes = seen(3, direct=True)
    assert meetings.plan(nodes, 0)["direct"]
    nodes["pair-3"] |= {"modules": [0, 1, 2, 3], "direct": False}
    plan = meetings.plan(nodes, 0)
    assert (plan["modules"], plan["direct"]) == (4, False)
    assert "over 4 cards" in plan["sentences"][0]


def test_a_bad_pair_of_four_nodes_is_named() -> None:
    plan = meetings.plan(seen(4), 0)
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
    plan = meetings.plan(seen(4), 0)
    found = meetings.outcome(plan, meetings.met(plan, run(plan, set(), lost="pair-4")), None)
    assert found["results"]["bad_nodes"] == ["pair-4"]
    assert any("nothing was heard" in row["sentence"] for row in found["results"]["pairs"])


def test_the_sentence_of_either_half_counts_the_pair_as_bad() -> None:
    plan = meetings.plan(seen(2), 0)
    wrong = {"nw_gb_s": None, "sentence": "wrong sums."}
    good = {"nw_gb_s": 100.0, "sentence": ""}
    (met,) = meetings.met(plan, {"pair-1": {0: good}, "pair-2": {0: wrong}})
    assert (met.nw_gb_s, met.sentence) == (None, "pair-2: wrong sums.")
    (met,) = meetings.met(plan, {"pair-1": {0: wrong | {"sentence": ""}}, "pair-2": {0: wrong | {"sentence": ""}}})
    assert met.sentence == "pair-1: hccl_demo printed no NW Bandwidth"


def test_rounds_that_were_not_run_are_no_bad_pairs() -> None:
    plan = meetings.plan(seen(4), 0)
    halves = {node: {0: made[0]} for node, made in run(plan, set()).items()}
    found = meetings.outcome(plan, meetings.met(plan, halves), None)
    assert found["good"]
    assert found["lines"][-1] == "4 of 6 pairs have not met."


def test_the_sites_own_floor_for_so_many_ranks_counts() -> None:
    plan = meetings.plan(seen(2), 0)
    floors = [Floor("all_reduce", 90.0), Floor("all_reduce", 120.0, ranks=16), Floor("all_reduce", 500.0, ranks=8)]
    assert meetings.floor_of(floors, plan) == 120.0
    assert meetings.floor_of([], plan) is None
    wish = [{"collective": "all_reduce", "nw_gb_s": 120, "ranks": 16}]
    assert not acceptance.acceptance_pairs_outcome(plan, run(plan, set()), wish)["good"]
    with pytest.raises(AnsibleFilterError, match="fast"):
        acceptance.acceptance_pairs_outcome(plan, run(plan, set()), [{"collective": "all_reduce", "nw_gb_s": "fast"}])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"faults": (Fault("card_count", "7 of 8 cards are there."),)}, "7 of 8 cards"),
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
