"""Whether an IOMMU translates the addresses of a node's cards, and whether their driver can live with that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .cmdline import holds, reached

SINCE = "1.24"
"""The first release whose driver needs passthrough; source: catalog/host.yml, the second rule iommu."""
IDENTITY = "identity"
PASSTHROUGH = "iommu=pt"
# A card with this driver belongs to a virtual machine: nothing on this node uses it.
_GIVEN_AWAY = "vfio-pci"


@dataclass(frozen=True)
class IommuGroup:
    """What the kernel shows of the IOMMU for one card: /sys/bus/pci/devices/BUS_ID/iommu_group."""

    bus_id: str
    number: str = ""
    """The group's name; "" where no IOMMU has the card. Cards of one group share its type."""
    type: str = ""
    """The group's file type; "" where the kernel has none, as before 5.11."""
    module: int | None = None
    """The card's module id; None without its driver."""
    driver: str = ""
    """The driver that has the card."""


def required(*versions: str | None) -> bool:
    """Whether passthrough is required: one of these, releases or drivers, is of 1.24 or newer."""
    return any(reached(version, SINCE) for version in versions if version)


def translates(group: IommuGroup, running: Sequence[str]) -> bool:
    """Whether an IOMMU translates the addresses of a card of this node; ``running``: words of /proc/cmdline.

    All types but identity do: DMA and DMA-FQ by the kernel's own tables, unmanaged by those of another program. Where
    the kernel does not show the type, the command line decides.
    """
    if not group.number or group.driver == _GIVEN_AWAY:
        return False
    return group.type != IDENTITY if group.type else not holds(PASSTHROUGH, running)


def translating(
    groups: Iterable[IommuGroup], running: Sequence[str], modules: Iterable[int] | None = None
) -> tuple[IommuGroup, ...]:
    """Return the cards whose addresses are translated.

    modules: only of these. A card whose driver does not tell its module id may be one of them; one without a driver,
    such as a lost card, is not.
    """
    wanted = None if modules is None else set(modules)
    return tuple(
        group
        for group in groups
        if translates(group, running)
        and (wanted is None or group.module in wanted or (group.module is None and bool(group.driver)))
    )


def shown(groups: Iterable[IommuGroup]) -> str:
    """Return the types of cards, each with its cards: "DMA-FQ of 0000:33:00.0 (module 3)". "" without a card."""
    cards: dict[str, list[str]] = {}
    for group in groups:
        card = group.bus_id if group.module is None else f"{group.bus_id} (module {group.module})"
        cards.setdefault(group.type or "none shown", []).append(card)
    return "; ".join(f"{kind} of {', '.join(names)}" for kind, names in cards.items())


def case(running: Sequence[str]) -> str:
    """Return which remedy applies to cards whose addresses are translated: a word for the list of faults."""
    return "started-so" if holds(PASSTHROUGH, running) else ""
