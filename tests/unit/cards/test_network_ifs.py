"""The external ports of each card, as the vendor's script prints them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.module_utils.gaudi.cards.network_ifs import parse_status
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[3]
RECORDED = Path(__file__).parent / "recorded"
UP = RECORDED / "1.23.0/manage_network_ifs_--status.txt"
DOWN = RECORDED / "1.24.0/manage_network_ifs_--status.txt"


def test_ports_that_are_up_are_read_of_every_card() -> None:
    found = parse_status(UP.read_text(encoding="utf-8"))
    assert list(found) == list(range(8))
    assert found[0] == {2: True, 3: True, 7: True}
    assert found[2] == {14: True, 15: True, 19: True}
    assert {frozenset(ports) for ports in found.values()} == {
        frozenset({2, 3, 7}),
        frozenset({5, 8, 9}),
        frozenset({14, 15, 19}),
        frozenset({17, 20, 21}),
    }


def test_the_ports_are_those_of_the_catalogue() -> None:
    known = yaml.safe_load((ROOT / "catalog/cards.yml").read_text(encoding="utf-8"))["cards"]["HL-325"]["fabric"]
    sets = {frozenset(entry["ports"]) for entry in known["external_ports"]}
    for file in (UP, DOWN):
        assert {frozenset(ports) for ports in parse_status(file.read_text(encoding="utf-8")).values()} <= sets


def test_ports_that_are_down_are_read() -> None:
    assert parse_status(DOWN.read_text(encoding="utf-8")) == {
        0: {5: False, 8: False, 9: False},
        1: {2: False, 3: False, 7: False},
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("accel0\n2 ports up (2, 3)\n1 port down (7)\n", {0: {2: True, 3: True, 7: False}}),
        ("accel3\n0 ports up\n", {3: {}}),
        ("hl4\n1 port up (8)\n", {4: {8: True}}),
        ("accel0\n2 ports up ([8, 9])\n1 port down [5]\n", {0: {8: True, 9: True, 5: False}}),
        ("accel0\n3 ports up (8,22,23)\n", {0: {8: True, 22: True, 23: True}}),
        ("No Intel Gaudi network interface was found\n", {}),
        ("", {}),
    ],
)
def test_every_form_of_a_status_is_read(text: str, found: dict[int, dict[int, bool]]) -> None:
    assert parse_status(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "accel0\nports up: 3 (2, 3, 7)\n",
        "accel0\nPort 8: UP\n",
        "3 ports up (2, 3, 7)\n",
        "accel0\n3 ports up (2, 3)\n",
        "accel0\n1 port up (2)\n1 port down (2)\n",
    ],
)
def test_a_status_that_contradicts_itself_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        parse_status(text)


@given(st.dictionaries(st.integers(0, 9999), st.dictionaries(st.integers(0, 999), st.booleans())))
def test_what_is_printed_is_read_back(cards: dict[int, dict[int, bool]]) -> None:
    lines = []
    for index, ports in cards.items():
        lines.append(f"accel{index}")
        for word, state in (("up", True), ("down", False)):
            numbers = [str(port) for port, is_up in ports.items() if is_up is state]
            if numbers:
                lines.append(f"{len(numbers)} ports {word} ({', '.join(numbers)})")
    assert parse_status("\n".join(lines)) == cards
