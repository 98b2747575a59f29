"""Predict the topology of a node without a driver: as many cards as the PCI bus shows, of the type of their PCI id.

Only a driver tells which card is which module, how much memory is free and who uses it. Plans made from a predicted
topology are only judged, then discarded: once the driver runs, the node is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .document import build_topology, new_card
from .sources import PciCard, Sources

# Findings about a missing driver, which end once it is installed.
ENDED_BY_A_DRIVER = ("no-hl-smi", "no-driver")


def foreseen_topology(sources: Sources, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the topology that was read; for a node with cards but no driver, its predicted topology.

    names: hl-smi's card name by PCI id, such as 1da3:1020. A predicted topology has the key ``foreseen``; its findings
    are those of the node as it is now. Module ids are assigned in the order of PCI addresses.
    """
    document = build_topology(sources)
    cards = expected_cards(sources.pci, names)
    if sources.accel or document["cards"] or not cards:
        return document
    return {**document, "cards": cards, "foreseen": True}


def expected_cards(pci: Sequence[PciCard], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one card for each Gaudi device on the PCI bus; none if the type of one is unknown."""
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
