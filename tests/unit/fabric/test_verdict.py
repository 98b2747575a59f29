"""The verdict: what it holds, when it is stale, what it lets start, what history it keeps."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from ansible.module_utils.gaudi.fabric.classes import RecordedFigure, judge
from ansible.module_utils.gaudi.fabric.locating import FaultyPart
from ansible.module_utils.gaudi.fabric.nics import HostNics
from ansible.module_utils.gaudi.fabric.output import RunOutput
from ansible.module_utils.gaudi.fabric.runs import DemoRun
from ansible.module_utils.gaudi.fabric.static import StaticFault
from ansible.module_utils.gaudi.fabric.verdict import (
    Needs,
    Policy,
    VerdictSubject,
    changes,
    computed,
    describe,
    may_start,
    new_verdict,
    overridden,
    read_verdict,
    record,
    to_measure,
)

from tests.unit.fabric.made import EIGHT, MIB, USUAL, fabric, failed, printed
from tests.unit.fabric.pages import numbers

NOW = VerdictSubject(
    {str(module): f"AM{module:04}" for module in EIGHT}, "1.22.1", "61.4.2", "sha256:aa", "1.22.0", "c0ffee", "f623d69"
)
QUADS = tuple(DemoRun(group, "all_reduce", 32 * MIB, 10000) for group in fabric("HL-338").groups)
ACROSS = DemoRun(EIGHT, "all_reduce", 32 * MIB, 10000, over_host_nics=True)
WELL = HostNics("1.22.0", "verbs", "/usr/lib/x.so", True, ())
ONE, TWO, ALL = Needs("one", (3,), False), Needs("two", (2, 3), False), Needs("all", EIGHT, False)


def verdict(*runs: tuple[DemoRun, RunOutput], card: str = "HL-225", **given: Any) -> dict[str, Any]:
    made_of = given.get("made_of", NOW)
    facts: dict[str, Any] = {
        "node": "gaudi-01",
        "time": "2026-11-23T20:00:00+00:00",
        "made_of": NOW,
        "faults": (),
        "nics": None,
        "located": (),
        "results": judge(runs, fabric(card), (), record(given.get("before"), made_of)),
        **given,
    }
    return new_verdict(**facts)


GOOD = verdict((USUAL, printed(USUAL, 258.2)))
SLOW = verdict((USUAL, printed(USUAL, 100.0)), located=(FaultyPart("card", (5,), "Module 5 is at fault."),))
FAULTY = verdict(faults=(StaticFault("internal-port-down", "Module 3 has port 9 down.", (3,)),))
NOTHING = verdict(not_measured="The image has no hccl_demo.")


def start(document: dict[str, Any] | None, needs: Needs, now: VerdictSubject = NOW, **options: Any) -> tuple[bool, str]:
    running = options.pop("running", False)
    answer = may_start(document, now, needs, Policy(**options), running=running)
    assert answer.sentence.isprintable()
    return answer.allowed, answer.id


def test_the_states() -> None:
    assert [each["state"] for each in (GOOD, SLOW, FAULTY, NOTHING)] == ["accepted", "failed", "failed", "not_measured"]
    assert verdict((USUAL, failed()))["state"] == "failed"
    told = StaticFault("x", "Told.", (), fatal=False)
    assert verdict((USUAL, printed(USUAL, 258.2)), faults=(told,))["state"] == "accepted"
    bad_nics = replace(WELL, faults=(StaticFault("x", "Broken."),))
    assert verdict((USUAL, printed(USUAL, 258.2)), nics=bad_nics)["state"] == "failed"
    burnt = {"passed": False, "tests": [["a", "FAILED"]], "sentence": "hl_qual failed: a."}
    assert verdict((USUAL, printed(USUAL, 258.2)), burn_in=burnt)["state"] == "failed"


def test_a_verdict_survives_being_written_and_read() -> None:
    full = verdict(
        (USUAL, printed(USUAL, 258.2)), nics=WELL, before=GOOD, faults=(StaticFault("x", "Told.", (1,), False),)
    )
    assert read_verdict(json.dumps(full)) == full


@pytest.mark.parametrize("key", sorted(GOOD))
def test_a_verdict_without_one_of_its_keys_is_refused(key: str) -> None:
    damaged = copy.deepcopy(GOOD)
    del damaged[key]
    with pytest.raises(ValueError, match="schema" if key == "schema" else f"it has no {key}"):
        read_verdict(json.dumps(damaged))


@pytest.mark.parametrize("value", [None, [], "x", 3, {}, {**GOOD, "schema": 2}, {**GOOD, "host_nics": {}}])
def test_what_is_no_verdict_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        read_verdict(json.dumps(value))


def test_what_comes_from_outside_is_printable() -> None:
    hostile = "\x1b[2JAM\x07"
    made = verdict(
        made_of=replace(NOW, serials={"0": hostile}), not_measured=hostile, node="a\nb", override="\x1b[1mwhy"
    )
    assert all(word.isprintable() for word in (made["made_of"]["serials"]["0"], made["node"], made["override"]))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"serials": {**NOW.serials, "4": "AM9999"}}, "module 4 was the card AM0004 and is AM9999"),
        ({"serials": {key: value for key, value in NOW.serials.items() if key != "7"}}, "module 7 was the card AM0007"),
        ({"driver": "1.23.0"}, "the driver was 1.22.1 and is 1.23.0"),
        ({"firmware": "62.2.1"}, "the firmware was 61.4.2 and is 62.2.1"),
        ({"base_image": "sha256:bb"}, "the base image"),
        ({"libfabric": "1.23.0"}, "libfabric was 1.22.0"),
        ({"wrapper": None}, "hccl_ofi_wrapper was c0ffee and is not there"),
        ({"hccl_demo": "1234567"}, "hccl_demo"),
    ],
)
def test_each_thing_that_a_verdict_is_about_makes_it_stale(changed: dict[str, Any], words: str) -> None:
    now = replace(NOW, **changed)
    said = changes(GOOD, now)
    assert len(said) == 1
    assert words in said[0]
    assert start(GOOD, ALL, now) == (False, "fabric_stale")
    assert start(GOOD, ALL, now, running=True) == (True, "fabric_stale")
    assert may_start(GOOD, now, ALL, Policy(), running=True).warning
    assert to_measure(GOOD, now, ()).allowed
    assert changes(GOOD, NOW) == ()


def test_an_instance_on_one_card_asks_for_the_static_checks_of_its_card_only() -> None:
    assert start(SLOW, ONE) == start(NOTHING, ONE) == (True, "fabric_one_card")
    assert start(FAULTY, ONE) == (False, "fabric_static_fault")
    assert start(FAULTY, Needs("other", (4,), False)) == (True, "fabric_one_card")
    whole = verdict(faults=(StaticFault("card-count", "7 of 8 cards are there."),))
    assert start(whole, Needs("other", (4,), False)) == (True, "fabric_one_card")
    assert start(whole, Needs("other", (4, 5), False)) == (False, "fabric_static_fault")
    blind = verdict(faults=(StaticFault("no-driver", "The driver is not loaded."),))
    assert start(blind, Needs("other", (4,), False)) == (False, "fabric_static_fault")
    told = verdict(faults=(StaticFault("not-available", "hl-smi answers N/A.", (3,), fatal=False),))
    assert start(told, ONE) == (True, "fabric_one_card")
    assert start(None, ONE) == (False, "fabric_not_measured")
    # Another image is no matter of one card, another driver and another card are.
    assert start(GOOD, ONE, replace(NOW, base_image="sha256:bb")) == (True, "fabric_one_card")
    assert start(GOOD, ONE, replace(NOW, driver="1.23.0")) == (False, "fabric_stale")
    assert start(GOOD, ONE, replace(NOW, serials={**NOW.serials, "3": "AM9999"})) == (False, "fabric_stale")
    assert start(GOOD, ONE, replace(NOW, serials={**NOW.serials, "4": "AM9999"})) == (True, "fabric_one_card")


def test_several_cards_need_a_measurement_that_passed() -> None:
    assert start(GOOD, ALL) == start(GOOD, TWO) == (True, "fabric_accepted")
    assert start(SLOW, TWO) == (False, "fabric_failed")
    assert "Module 5 is at fault." in may_start(SLOW, NOW, TWO, Policy()).sentence
    assert start(NOTHING, TWO) == (False, "fabric_not_measured")
    assert "no hccl_demo" in may_start(NOTHING, NOW, TWO, Policy()).sentence
    assert start(None, TWO) == (False, "fabric_not_measured")


def test_each_group_has_its_own_verdict_and_across_them_nothing_starts() -> None:
    document = verdict((QUADS[0], printed(QUADS[0], 200.0)), (QUADS[1], printed(QUADS[1], 100.0)), card="HL-338")
    assert document["state"] == "failed"
    assert start(document, Needs("first", (0, 1, 2, 3), False)) == (True, "fabric_accepted")
    assert start(document, Needs("second", (4, 5), False)) == (False, "fabric_failed")
    assert start(document, Needs("across", (3, 4), False)) == (False, "fabric_across_groups")
    assert start(document, ALL) == (False, "fabric_across_groups")


def test_across_groups_host_nics_are_needed_and_measured() -> None:
    runs = [(run, printed(run, 200.0)) for run in QUADS]
    needs = Needs("all", EIGHT, True)
    assert start(verdict(*runs, card="HL-338"), needs) == (False, "fabric_no_host_nics")
    both = verdict(*runs, (ACROSS, printed(ACROSS, 40.0)), card="HL-338", nics=WELL)
    assert start(both, needs) == start(both, TWO) == (True, "fabric_accepted")
    broken = verdict(*runs, (ACROSS, failed()), card="HL-338", nics=WELL)
    assert start(broken, needs) == (False, "fabric_failed")
    assert start(broken, TWO) == (True, "fabric_accepted")
    bad = verdict(*runs, card="HL-338", nics=replace(WELL, faults=(StaticFault("wrapper-missing", "No wrapper."),)))
    assert start(bad, needs) == (False, "fabric_static_fault")
    assert start(bad, TWO) == (True, "fabric_accepted")


def test_a_site_lets_through_with_a_reason_or_asks_for_nothing() -> None:
    assert start(SLOW, ALL, override="spare part on its way") == (True, "fabric_overridden")
    answer = may_start(SLOW, NOW, ALL, Policy(override="spare part on its way"))
    assert "spare part on its way" in answer.sentence
    assert answer.warning
    assert start(None, ALL, required=False) == (True, "fabric_not_required")
    assert start(GOOD, ALL, override="not needed") == (True, "fabric_accepted")
    assert describe(overridden(SLOW, "spare part"))[-1] == "let through by fabric_check_override: spare part"


def test_a_node_is_measured_when_its_verdict_is_missing_or_stale_and_its_cards_are_free() -> None:
    stale = replace(NOW, driver="1.23.0")
    assert (to_measure(None, NOW, ()).allowed, to_measure(GOOD, stale, ()).allowed) == (True, True)
    busy = to_measure(GOOD, stale, (0, 1))
    assert (busy.allowed, busy.id, busy.warning) == (False, "fabric_busy", True)
    assert "Modules 0, 1 are in use" in busy.sentence
    assert [to_measure(each, NOW, ()).id for each in (GOOD, SLOW, NOTHING)] == [
        "fabric_accepted",
        "fabric_failed",
        "fabric_not_measured",
    ]


def test_the_record_is_the_best_passing_figure_of_the_same_cards() -> None:
    first = verdict((QUADS[0], printed(QUADS[0], 200.0)), card="HL-338")
    assert record(first, NOW) == (RecordedFigure(QUADS[0], 200.0),)
    second = verdict((QUADS[0], printed(QUADS[0], 190.0)), card="HL-338", before=first)
    assert record(second, NOW) == (RecordedFigure(QUADS[0], 200.0),)
    third = verdict((QUADS[0], printed(QUADS[0], 100.0)), card="HL-338", before=second)
    assert (third["state"], record(third, NOW)) == ("failed", (RecordedFigure(QUADS[0], 200.0),))
    other = verdict(
        (QUADS[0], printed(QUADS[0], 150.0)), card="HL-338", before=third, made_of=replace(NOW, serials={"0": "new"})
    )
    assert other["state"] == "accepted"
    assert record(other, replace(NOW, serials={"0": "new"})) == (RecordedFigure(QUADS[0], 150.0),)
    assert record(other, NOW) == ()
    assert record(None, NOW) == ()


def test_history_is_newest_first_and_ends_somewhere() -> None:
    document = GOOD
    for number in range(30):
        document = verdict((USUAL, printed(USUAL, 240.0 + number / 10)), before=document, time=f"day {number}")
    assert [each["time"] for each in document["history"][:2]] == ["day 28", "day 27"]
    assert len(document["history"]) == 20
    assert document["history"][0]["measurements"][0]["nw_gb_s"] == 242.8
    read_verdict(json.dumps(document))


def test_a_status_has_the_state_and_why() -> None:
    assert describe(GOOD)[0] == "accepted at 2026-11-23T20:00:00+00:00"
    assert describe(SLOW)[-1] == "Module 5 is at fault."
    assert describe(NOTHING)[-1] == "The image has no hccl_demo."
    assert "port 9 down" in describe(FAULTY)[1]


@pytest.mark.parametrize(("direct", "words"), [(True, "in use"), (False, "not in use"), (None, "not known")])
def test_a_status_has_what_carries_the_traffic_over_host_nics_and_what_is_wrong_with_it(
    direct: bool | None, words: str
) -> None:
    runs = [(run, printed(run, 200.0)) for run in QUADS]
    slower = StaticFault("hccl-gaudi-direct", "Gaudi Direct cannot be used.", (), fatal=False)
    nics = replace(WELL, gaudi_direct=direct, faults=(StaticFault("wrapper-missing", "No wrapper."), slower))
    said = describe(verdict(*runs, card="HL-338", nics=nics))
    assert said[1:4] == (
        f"host NICs: verbs, libfabric 1.22.0, Gaudi Direct {words}",
        "No wrapper. [wrapper-missing]",
        "Gaudi Direct cannot be used. [hccl-gaudi-direct]",
    )
    nothing = replace(WELL, libfabric=None, provider=None)
    assert "host NICs: no provider, no libfabric," in describe(verdict(*runs, card="HL-338", nics=nothing))[1]


def test_wrong_numbers_refuse_the_instances_of_their_card() -> None:
    """Those of other cards start; a verdict without numbers refuses nothing."""
    wrong = computed(GOOD, numbers())
    assert wrong["state"] == "failed"
    assert start(wrong, ONE) == start(wrong, TWO) == start(wrong, ALL) == (False, "fabric_wrong_numbers")
    assert start(wrong, Needs("other", (4, 5), False)) == (True, "fabric_accepted")
    assert start(wrong, ONE, override="why")[1] == "fabric_overridden"
    assert start(wrong, ONE, running=True) == (True, "fabric_wrong_numbers")
    assert start(GOOD, ALL) == (True, "fabric_accepted")


def test_a_wrong_sum_refuses_several_cards_and_not_one() -> None:
    part = numbers()
    rows = [{**row, "outcome": "failed" if len(row["modules"]) > 1 else "passed"} for row in part["rows"]]
    wrong = computed(GOOD, {**part, "rows": rows})
    assert start(wrong, TWO)[1] == "fabric_wrong_numbers"
    assert start(wrong, ONE) == (True, "fabric_one_card")


def test_numbers_that_only_differ_or_are_missing_accept_a_node() -> None:
    part = numbers()
    rows = [row for row in part["rows"] if row["outcome"] != "failed"]
    document = computed(GOOD, {**part, "rows": rows})
    assert document["state"] == "accepted"
    assert read_verdict(json.dumps(document)) == document
    assert computed(NOTHING, {**part, "rows": rows})["state"] == "not_measured"


def test_a_damaged_compute_check_is_a_damaged_verdict() -> None:
    damaged: list[Any] = [None, [], {"rows": [{"modules": "all"}], "copy_mib": 1, "not_checked": ""}]
    for part in damaged:
        with pytest.raises(ValueError, match="it has no compute_check"):
            read_verdict(json.dumps({**GOOD, "compute_check": part}))
