"""The stand-in for hl_qual prints what its description says, and the project reads that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.fabric.burn_in import TESTS, commands, parse_hl_qual

from simulator.standins import description
from simulator.standins.node import hl_qual

RECORDED = Path(__file__).resolve().parents[1] / "fabric/recorded/hl_qual/memory_no_plugin_1.24.1.txt"


def ask(node: dict[str, Any], generation: str, test: str, groups: int, busy: bool = False) -> list[bool | None]:
    said = [hl_qual.answer(list(command[1:]), node, busy) for command in commands(generation, test, groups)]
    return [parse_hl_qual("\n".join(lines), status).passed for lines, status in said]


def test_every_test_passes_on_a_sound_node_and_fails_where_it_is_described() -> None:
    node = description.load("gaudi2-oam8")
    pcie = description.load("gaudi3-pcie8")
    for test in TESTS:
        assert ask(node, "gaudi2", test, 1) == [True]
        assert ask(pcie, "gaudi3", test, 2) == [True, True]
        bad = {**node, "hl_qual": {"failed": [test], "silent": False}}
        assert ask(bad, "gaudi2", test, 1) == [False]


def test_it_ends_as_the_recorded_one() -> None:
    """From the summary on the lines are the same but for the cards, and so is the reason."""
    node = description.load("gaudi2-oam8")
    node = {**node, "cards": node["cards"][:1]}
    unknown = ["-gaudi2", "-c", "all", "-rmod", "parallel", "-dis_mon", "-x"]
    lines = hl_qual.answer(unknown, node, False)[0]
    recorded = RECORDED.read_text(encoding="utf-8").replace("0000:b3:00.0", node["cards"][0]["bus_id"]).splitlines()
    summary = next(place for place, line in enumerate(recorded) if "summary" in line)
    assert lines[-len(recorded[summary:]) :] == recorded[summary:]
    assert set(lines[:2]) <= set(recorded)
    assert parse_hl_qual("\n".join(lines), 1).passed is None


def test_cards_in_use_other_cards_and_unknown_arguments_fail() -> None:
    node = description.load("gaudi2-oam8")
    assert ask(node, "gaudi2", "power", 1, busy=True) == [False]
    assert ask(node, "gaudi3", "power", 1) == [False]
    assert hl_qual.answer(["-gaudi2", "-c", "all", "-rmod", "parallel", "-dis_mon", "-x"], node, False)[1] == 1


def test_one_that_prints_no_summary_leaves_it_open() -> None:
    node = {**description.load("gaudi2-oam8"), "hl_qual": {"failed": [], "silent": True}}
    assert ask(node, "gaudi2", "memory", 1) == [None]
