"""The ports of cards as hl-smi tells them; what it does not tell is not known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.gaudi.cards.query import CommandResult
from ansible.module_utils.gaudi.node import reader

CARD = {"module_id": 5, "bus_id": "0000:4e:00.0", "index": 1}
RECORDED = Path(__file__).resolve().parents[1] / "cards/recorded"
ANSWERS: dict[tuple[str, ...], CommandResult | None] = {
    ("-n", "ports", "-i", "0000:4e:00.0"): CommandResult(
        0, "port 7: internal\nport 8: external\nport 9: internal\n", ""
    ),
    ("-n", "link", "-i", "0000:4e:00.0"): CommandResult(0, "port  7:        UP\nport  9:        DOWN\n", ""),
}


def ports(
    answers: Mapping[tuple[str, ...], CommandResult | None],
    *cards: dict[str, Any],
    external: bool = False,
    script: str = "",
) -> Any:
    """The ports that are read where hl-smi answers so; None: not in time. script: what the vendor's script prints."""

    def run_command(command: list[str]) -> tuple[int, str, str]:
        timeout, _kill, _seconds, program, *arguments = command
        if program.endswith("/manage_network_ifs.sh"):
            assert arguments == ["--status"]
            return 0, script, ""
        assert (timeout, program) == ("timeout", "hl-smi")
        answer = answers[tuple(arguments)]
        return (124, "", "") if answer is None else (answer.status, answer.stdout, answer.stderr)

    module = SimpleNamespace(run_command=run_command, get_bin_path=lambda program, required=False: program)
    return reader.read_ports(module, cards, external=external)


def test_ports_are_internal_or_external_and_up_or_down() -> None:
    assert ports(ANSWERS, CARD) == [(5, 7, False, True), (5, 8, True, None), (5, 9, False, False)]


def test_links_of_external_ports_are_told_where_they_are_asked_for() -> None:
    asked = ("-n", "link", "-i", "0000:4e:00.0", "-P", "8")
    answers = {**ANSWERS, asked: CommandResult(0, "port  8:        DOWN\n", "")}
    assert (5, 8, True, False) in ports(answers, CARD, external=True)
    assert (5, 8, True, None) in ports({**ANSWERS, asked: None}, CARD, external=True)


@pytest.mark.parametrize(
    "kinds", [ANSWERS["-n", "ports", "-i", "0000:4e:00.0"], CommandResult(1, "", "unknown option")]
)
def test_external_ports_that_hl_smi_does_not_tell_are_those_of_the_vendors_script(
    kinds: CommandResult | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "gaudi3/bin/manage_network_ifs.sh"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setattr(reader, "QUAL", tmp_path)
    answers: dict[tuple[str, ...], CommandResult | None] = {
        **ANSWERS,
        ("-n", "ports", "-i", "0000:4e:00.0"): kinds,
        ("-n", "link", "-i", "0000:4e:00.0", "-P", "8"): CommandResult(1, "", "unknown option"),
    }
    down = (RECORDED / "1.24.0/manage_network_ifs_--status.txt").read_text(encoding="utf-8")
    found = ports(answers, CARD, external=True, script=down)
    assert {(5, 2, True, False), (5, 3, True, False)} <= set(found)
    assert ports(answers, CARD, script=down) == ports(answers, CARD)
    for silent in ("", "accel1\n3 ports up\n"):
        assert ports(answers, CARD, external=True, script=silent) == ports(answers, CARD)


@pytest.mark.parametrize("answer", [None, CommandResult(1, "", "no"), CommandResult(0, "port 7: sideways\n", "")])
def test_a_kind_that_is_not_told_is_not_known(answer: CommandResult | None) -> None:
    answers: dict[tuple[str, ...], CommandResult | None] = {**ANSWERS, ("-n", "ports", "-i", "0000:4e:00.0"): answer}
    assert ports(answers, CARD) == [(5, 7, None, True), (5, 9, None, False)]


def test_a_card_without_a_number_or_an_address_is_not_asked_for() -> None:
    nobody: list[dict[str, Any]] = [{"module_id": None, "bus_id": "0000:4e:00.0"}, {"module_id": 5, "bus_id": None}]
    assert ports({}, *nobody) == []


def test_without_hl_smi_no_port_is_known() -> None:
    module = SimpleNamespace(get_bin_path=lambda program, required=False: None)
    assert reader.read_ports(module, [CARD]) == []
