"""The ports of cards as hl-smi tells them; what it does not tell is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ansible.module_utils.gaudi.cards.query import Answer
from ansible.module_utils.gaudi.node import reader

CARD = {"module_id": 5, "bus_id": "0000:4e:00.0"}
ANSWERS: dict[tuple[str, ...], Answer | None] = {
    ("-n", "ports", "-i", "0000:4e:00.0"): Answer(0, "port 7: internal\nport 8: external\nport 9: internal\n", ""),
    ("-n", "link", "-i", "0000:4e:00.0"): Answer(0, "port  7:        UP\nport  9:        DOWN\n", ""),
}


def ports(
    monkeypatch: pytest.MonkeyPatch,
    answers: Mapping[tuple[str, ...], Answer | None],
    *cards: dict[str, Any],
    external: bool = False,
) -> Any:
    def run(_module: object, _seconds: int, program: str, *arguments: str) -> Answer | None:
        assert program == "hl-smi"
        answer: Answer | None = answers[arguments]
        return answer

    monkeypatch.setattr(reader, "_run", run)
    return reader.read_ports(object(), cards, external=external)


def test_ports_are_internal_or_external_and_up_or_down(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ports(monkeypatch, ANSWERS, CARD) == [(5, 7, False, True), (5, 8, True, None), (5, 9, False, False)]


def test_links_of_external_ports_are_told_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("-n", "link", "-i", "0000:4e:00.0", "-P", "8")
    answers = {**ANSWERS, asked: Answer(0, "port  8:        DOWN\n", "")}
    assert (5, 8, True, False) in ports(monkeypatch, answers, CARD, external=True)
    assert (5, 8, True, None) in ports(monkeypatch, {**ANSWERS, asked: None}, CARD, external=True)


@pytest.mark.parametrize("answer", [None, Answer(1, "", "no"), Answer(0, "port 7: sideways\n", "")])
def test_a_kind_that_is_not_told_is_not_known(monkeypatch: pytest.MonkeyPatch, answer: Answer | None) -> None:
    answers: dict[tuple[str, ...], Answer | None] = {**ANSWERS, ("-n", "ports", "-i", "0000:4e:00.0"): answer}
    assert ports(monkeypatch, answers, CARD) == [(5, 7, None, True), (5, 9, None, False)]


def test_a_card_without_a_number_or_an_address_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody: list[dict[str, Any]] = [{"module_id": None, "bus_id": "0000:4e:00.0"}, {"module_id": 5, "bus_id": None}]
    assert ports(monkeypatch, {}, *nobody) == []
