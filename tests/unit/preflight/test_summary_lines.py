"""The last lines of a run, for people."""

from __future__ import annotations

from typing import Any

import pytest

from filter_plugins.summary_lines import FilterModule

summary_lines = FilterModule().filters()["summary_lines"]


def card(module: int, numa: int | None) -> dict[str, Any]:
    return {"module_id": module, "numa_node": numa, "name": "HL-225"}


TOPOLOGY = {"driver_version": "1.22.1-x", "cards": [card(3, 0), card(5, 1), card(0, 0), card(7, None)]}
SERVING = {
    "instance": "one",
    "active": "active",
    "state": {"status": "serving", "endpoint": "http://127.0.0.1:30001", "cards": [{"module_id": 0}, {"module_id": 3}]},
}
WISHED = ["one"]


def test_cards_instances_and_answers_are_said() -> None:
    answers = {"one": {"question": "What is 1 + 1?", "answer": "Two,\n of course."}}
    assert summary_lines(TOPOLOGY, "gaudi-01", "1.22", [SERVING], answers, WISHED) == [
        "gaudi-01: 4 cards (HL-225), driver 1.22.1-x, release 1.22",
        "  NUMA node 0: modules 0, 3",
        "  NUMA node 1: module 5",
        "  NUMA node unknown: module 7",
        "one: serving",
        "  modules 0, 3, unit vllm-one.service",
        "  endpoint http://127.0.0.1:30001 (on the node itself)",
        "  asked:    What is 1 + 1?",
        "  answered: Two, of course.",
    ]


def test_what_is_pinned_is_said_of_each_instance() -> None:
    pinned = {"one": ["weights pinned by commit only", "image not pinned"], "gone": ["image not pinned"]}
    lines = summary_lines(TOPOLOGY, "gaudi-01", "1.22", [SERVING], {}, WISHED, [], pinned)
    assert lines[-1] == "  pins:     weights pinned by commit only, image not pinned"


def test_what_was_let_through_is_said_of_the_node() -> None:
    lines = summary_lines(TOPOLOGY, "gaudi-01", "1.22", [SERVING], {}, WISHED, ["driver: found 1.21, wanted 1.22"])
    assert lines[4] == "  let through by preflight_allow_mismatch: driver: found 1.21, wanted 1.22 [driver]"


@pytest.mark.parametrize("state", [{}, {"status": "warm-up 3/24"}])
def test_an_instance_that_was_not_asked_is_said_without_an_answer(state: dict[str, str]) -> None:
    lines = summary_lines(
        TOPOLOGY, "h", "1.22", [{"instance": "two", "active": "inactive", "state": state}], {}, ["two"]
    )
    assert lines[4] == f"two: {state.get('status', 'inactive')}"
    assert lines[5:] == ["  no modules, unit vllm-two.service", "  endpoint none"]


def test_an_endpoint_of_the_network_is_said_as_it_is() -> None:
    state = {"status": "serving", "endpoint": "http://10.0.0.7:30001"}
    lines = summary_lines(TOPOLOGY, "h", "1.22", [{"instance": "two", "active": "active", "state": state}], {}, ["two"])
    assert lines[-1] == "  endpoint http://10.0.0.7:30001"


def test_an_answer_does_nothing_to_the_terminal() -> None:
    answers = {"one": {"question": "?", "answer": "a\x1b[2Jb\x07\u202e\tc é \ufffd"}}
    assert summary_lines(TOPOLOGY, "h", "1.22", [SERVING], answers, WISHED)[-1] == "  answered: ab?? c é \ufffd"


def test_a_node_with_nothing_on_it_is_said_too() -> None:
    nothing: dict[str, Any] = {"driver_version": None, "cards": []}
    assert summary_lines(nothing, "h", "1.22", [], {}, ["a"]) == [
        "h: 0 cards (no cards), driver none, release 1.22",
        "No instances are installed.",
    ]


def test_an_instance_that_left_the_inventory_is_named_with_the_command_that_ends_it() -> None:
    lines = summary_lines(TOPOLOGY, "gaudi-01", "1.22", [SERVING, {**SERVING, "instance": "old"}], {}, WISHED)
    assert lines[-1] == (
        "old is on gaudi-01, but not in gaudi_serving_instances: site.yml leaves it as it is. Name it there, or end it "
        "with ansible-playbook playbooks/remove.yml --limit gaudi-01 -e instance=old"
    )
    assert not [line for line in lines if "one is on" in line]
