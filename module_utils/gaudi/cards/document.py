"""Build the topology document: a node's cards, their NUMA nodes and CPUs, and the processes that use them.

The document is plain data (see library/gaudi_topology_info.py for its keys). A fact that no source gives is None, never
a guess. If two sources disagree, that is a finding; they are never averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.printable import printable
from .findings import (
    PLAUSIBLE_C,
    access_findings,
    card_findings,
    count_findings,
    driver_findings,
    finding,
    group_findings,
    held_by_nobody,
    identity_findings,
    name_findings,
    number_findings,
    place_findings,
    release,
    version_findings,
)
from .hl_smi import Affinity
from .query import HlSmiReport, SeenCard
from .sources import AccelCard, PciCard, Sources
from .users import new_user, owner_of

SCHEMA = 1


def build_topology(sources: Sources) -> dict[str, Any]:
    """Return the topology document. Every inconsistency becomes a finding; none raises an exception."""
    seen = sources.seen or HlSmiReport()
    pairs = [(_card(card, sources), card) for card in _base(seen, sources.accel)]
    cards = [card for card, _raw in pairs]
    driver, nic = (seen.table.driver_version, seen.table.nic_driver_version) if seen.table else (None, None)
    driver = driver or next((card["driver_version"] for card in cards if card["driver_version"]), None)
    hl_smi = release(seen.table.hl_smi_version) if seen.table else None
    answering = sources.uid == 0 and sources.seen is not None and seen.failure is None
    findings = access_findings(sources) + count_findings(sources, cards) + version_findings(hl_smi, driver, nic)
    devices = [next((device for device in sources.accel if _is_device(raw, device)), None) for raw in seen.cards]
    for raw, device in zip(seen.cards, devices):
        findings += number_findings(raw, device)
    undriven = [raw for raw, device in zip(seen.cards, devices) if device is None]
    findings += driver_findings(len(seen.cards), undriven, sources.accel)
    for card, raw in sorted(pairs, key=lambda pair: _order(pair[0])):
        kernel, tool = _places(card, sources)
        findings += card_findings(card, raw, answering=answering) + place_findings(card, kernel, tool)
    findings += identity_findings(cards) + name_findings(cards) + group_findings(cards)
    findings += [finding("unreadable", what=complaint) for complaint in (*seen.complaints, *sources.complaints)]
    return new_topology(
        cards,
        hl_smi_version=hl_smi,
        driver_version=driver,
        addresses=[list(pair) for pair in sources.addresses],
        findings=findings,
    )


def _base(seen: HlSmiReport, accel: Sequence[AccelCard]) -> list[SeenCard]:
    """Return the cards that hl-smi lists, with numbers that only the driver gave.

    If hl-smi does not answer, or gives no index and no address, return the devices that the driver shows.
    """
    cards = [_with_numbers(card, accel) for card in seen.cards]
    if any(card.index is not None or card.bus_id is not None for card in cards):
        return cards
    return [SeenCard(index=card.index, module_id=card.module_id, bus_id=card.bus_id) for card in accel]


def _with_numbers(card: SeenCard, accel: Sequence[AccelCard]) -> SeenCard:
    """Fill in a card's index, address and module id from the driver if hl-smi does not give them."""
    device = next((other for other in accel if _is_device(card, other)), None)
    if device is None:
        return card
    return replace(
        card,
        index=device.index if card.index is None else card.index,
        bus_id=card.bus_id or device.bus_id,
        module_id=device.module_id if card.module_id is None else card.module_id,
    )


def _is_device(card: SeenCard, device: AccelCard) -> bool:
    """Whether a card of hl-smi and a device of the driver are the same: by PCI address, else by index."""
    if card.bus_id is not None and device.bus_id is not None:
        return card.bus_id == device.bus_id
    return card.index is not None and card.index == device.index


def _card(card: SeenCard, sources: Sources) -> dict[str, Any]:
    """Return the document's entry for a card, combined from hl-smi and the other sources."""
    document = new_card(card.index, card.module_id)
    seen = sources.seen or HlSmiReport()
    device = next((other for other in sources.accel if _is_device(card, other)), None)
    plausible = card.temperature_c is not None and 0 < card.temperature_c <= PLAUSIBLE_C
    document.update(
        name=card.name,
        serial=card.serial,
        uuid=card.uuid,
        bus_id=card.bus_id,
        memory_total_mib=card.memory_total_mib,
        memory_used_mib=card.memory_used_mib,
        temperature_c=card.temperature_c if plausible else None,
        driver_version=card.driver_version,
        nic_driver_version=seen.table.nic_driver_version if seen.table else None,
        firmware=card.firmware,
        boot_fit=card.boot_fit,
        # The driver gives the current state; what hl-smi -L prints is the fallback.
        state=(device.state if device else None) or card.state,
        users=_users(card.index, sources),
    )
    if card.links:
        document.update(links_up=sum(card.links.values()), links_total=len(card.links))
    kernel, tool = _places(document, sources)
    document["numa_node"] = tool["numa_node"] if kernel["numa_node"] is None else kernel["numa_node"]
    document["cpus"] = kernel["cpus"] or tool["cpus"] or ""
    if not document["users"] and held_by_nobody(document):
        document["users"] = [new_user()]
    return document


def _places(card: Mapping[str, Any], sources: Sources) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a card's NUMA node and CPUs twice: from the kernel, and from hl-smi topo."""
    nowhere = Affinity(-1, None, None)
    kernel = next((pci for pci in sources.pci if pci.bus_id == card["bus_id"]), PciCard("", None, None))
    tool = sources.seen.affinity.get(card["module_id"], nowhere) if sources.seen else nowhere
    # For a device without a NUMA node the kernel lists every CPU as local, which says nothing about the card.
    return (
        {"numa_node": kernel.numa_node, "cpus": kernel.cpus if kernel.numa_node is not None else None},
        {"numa_node": tool.numa_node, "cpus": tool.cpus},
    )


def users_of_unlisted(sources: Sources, cards: Sequence[Mapping[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Return (index, user) of open device files whose card is not in the document: it was lost, or never reported."""
    listed = {card["index"] for card in cards}
    unlisted = sorted({holder.index for holder in sources.holders} - listed)
    return [(index, user) for index in unlisted for user in _users(index, sources)]


def _users(index: int | None, sources: Sources) -> list[dict[str, Any]]:
    """Return the users of a card: processes with its device files open, and processes that hl-smi lists."""
    users: dict[int, dict[str, Any]] = {}
    for holder in sources.holders:
        if holder.index == index:
            unit, container = owner_of(holder.cgroup, sources.init_cgroup)
            user = {"pid": holder.pid, "name": printable(holder.name), "account": holder.account}
            owner = {"unit": unit, "container": container}
            name = sources.container_names.get(container or "")
            users[holder.pid] = {**new_user(), **user, **owner, "container_name": name}
    for process in sources.seen.table.processes if sources.seen and sources.seen.table else ():
        if process.index == index:
            users.setdefault(process.pid, {**new_user(), "pid": process.pid, "name": printable(process.name)})
    return [users[pid] for pid in sorted(users)]


def new_card(index: int | None, module_id: int | None) -> dict[str, Any]:
    """Return a card of which only the index and module id are known."""
    return {
        "index": index,
        "module_id": module_id,
        "name": None,
        "serial": None,
        "uuid": None,
        "bus_id": None,
        "numa_node": None,
        "cpus": "",
        "memory_total_mib": None,
        "memory_used_mib": None,
        "temperature_c": None,
        "driver_version": None,
        "nic_driver_version": None,
        "firmware": None,
        "boot_fit": None,
        "links_up": None,
        "links_total": None,
        "state": None,
        "users": [],
    }


def new_topology(cards: list[dict[str, Any]], **facts: object) -> dict[str, Any]:
    """Return a topology document of these cards, sorted by module id; a card without one comes last."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "cards": sorted(cards, key=_order),
        "hl_smi_version": None,
        "driver_version": None,
        "addresses": [],
        "findings": [],
    }
    document.update(facts)
    return document


def _order(card: Mapping[str, Any]) -> tuple[bool, int, int]:
    """Return the sort key of a card: module id, then index; unknown ones last."""
    return (card["module_id"] is None, card["module_id"] or 0, card["index"] or 0)
