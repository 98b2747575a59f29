"""What is expected of a node without a driver, from its PCI bus alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible.module_utils.gaudi.cards.foreseen import ENDED_BY_A_DRIVER, foreseen_topology
from ansible.module_utils.gaudi.cards.sources import PciCard

from tests.unit.cards.nodes import BUS_IDS, sources

NAMES = {"1da3:1020": "HL-225"}
PCI = tuple(PciCard(bus_id, place % 2, "0-39", "1da3:1020") for place, bus_id in enumerate(BUS_IDS))


def bare(**changes: Any) -> dict[str, Any]:
    return foreseen_topology(sources(**{"seen": None, "accel": (), "pci": PCI, **changes}), NAMES)


def test_as_many_cards_are_expected_as_pci_shows_in_the_order_of_addresses() -> None:
    topology = bare()
    assert topology["foreseen"] is True
    assert [card["module_id"] for card in topology["cards"]] == list(range(8))
    assert [card["bus_id"] for card in topology["cards"]] == sorted(BUS_IDS)
    assert {card["name"] for card in topology["cards"]} == {"HL-225"}
    assert {(card["numa_node"], card["cpus"], len(card["users"])) for card in topology["cards"]} == {
        (0, "0-39", 0),
        (1, "0-39", 0),
    }


def test_the_findings_are_those_of_the_node_as_it_is() -> None:
    assert [finding["id"] for finding in bare()["findings"]] == list(ENDED_BY_A_DRIVER)


def test_a_node_with_a_driver_is_read_and_not_foreseen() -> None:
    topology = foreseen_topology(sources(), NAMES)
    assert "foreseen" not in topology
    assert topology["cards"][0]["serial"]


def test_cards_of_an_unknown_type_and_of_none_are_not_expected() -> None:
    strange = (replace(PCI[0], pci_id="1da3:9999"), *PCI[1:])
    for pci in (strange, (replace(PCI[0], pci_id=""), *PCI[1:]), ()):
        topology = bare(pci=pci)
        assert (topology["cards"], "foreseen" in topology) == ([], False)
