"""The topology that a node without a driver is expected to have with one: as many cards as PCI shows, of its type.

Only a driver tells which card is which module, how much memory is free and who uses it. What is planned from this is
judged and thrown away: with the driver the node is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .document import build_topology, new_card
from .sources import PciCard, Sources

# Findings of a node without a driver that its driver ends.
ENDED_BY_A_DRIVER = ("no_hl_smi", "no_driver")


def foreseen_topology(sources: Sources, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the topology document of what was read; of a node with cards and no driver that of its expected cards.

    names: what hl-smi prints for the cards of a PCI id, such as 1da3:1020. An expected topology has the key
    ``foreseen``; its findings are those of the node as it is. Cards have module ids in the order of their addresses.
    """
    document = build_topology(sources)
    cards = expected_cards(sources.pci, names)
    if sources.accel or document["cards"] or not cards:
        return document
    return {**document, "cards": cards, "foreseen": True}


def expected_cards(pci: Sequence[PciCard], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a card for each device on the PCI bus; none where the type of one is not known."""
    if any(device.pci_id not in names for device in pci):
        return []
    cards = []
    for module, device in enumerate(sorted(pci, key=lambda each: each.bus_id)):
        card = new_card(None, module)
        card.update(
            name=names[device.pci_id],
            bus_id=device.bus_id,
            numa_node=device.numa_node,
            cpus=(device.cpus or "") if device.numa_node is not None else "",
        )
        cards.append(card)
    return cards
