"""Static checks: conditions on a node's cards and ports that must hold before any measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base.printable import printable
from ..cards.users import label
from ..catalogue.entries import CardType
from ..faults.words import say
from .classes import modules_text

# Findings of the topology (cards/findings.py) that fail acceptance, because cards or the links between them are not
# intact. The other findings are about the host, or occur on working cards.
_ENDING = frozenset(
    (
        *("not-root", "no-hl-smi", "no-driver", "hl-smi-failed", "no-cards", "lost-card", "not-operational"),
        *("zero-temperature", "implausible-temperature", "module-id-unknown", "duplicate-identity", "rows-pending"),
        *("nic-driver-mismatch", "sources-disagree"),
    )
)
# Reported, but not fatal: a card that answers N/A still has shown its links and its state.
_TOLD = frozenset(("not-available", "unknown-card", "unreadable"))


@dataclass(frozen=True)
class StaticFault:
    """A fault: id for programs, sentence for people, module ids that it is about, and whether it fails acceptance."""

    id: str
    sentence: str
    modules: tuple[int, ...] = ()
    fatal: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return it as the verdict has it."""
        return {**asdict(self), "modules": list(self.modules)}


@dataclass(frozen=True)
class Port:
    """A port according to ``hl-smi -n ports`` and ``hl-smi -n link``; None: not reported."""

    module: int
    number: int
    external: bool | None
    up: bool | None


@dataclass(frozen=True)
class Interface:
    """A network interface of an external port, from /sys/class/net. speed in Mb/s (None: unknown), mtu in bytes."""

    module: int
    name: str
    mac: str
    up: bool
    mtu: int
    speed: int | None


@dataclass(frozen=True)
class ExpectedFabric:
    """The site's expectations: number of cards, mtu (bytes) and speed (Mb/s) of external interfaces; None: not checked.

    external: the cards reach other nodes over their own NICs, so external ports must be up.
    """

    cards: int | None = None
    external: bool = False
    mtu: int | None = None
    speed: int | None = None


def check(
    topology: Mapping[str, Any],
    types: Mapping[str, CardType],
    ports: Sequence[Port],
    interfaces: Sequence[Interface],
    wanted: ExpectedFabric,
) -> tuple[StaticFault, ...]:
    """Return all faults; topology: the document of gaudi_topology_info; types: CardType.table()."""
    cards = topology["cards"]
    faults = _of_topology(topology, {port.module for port in ports}) + _of_cards(cards, wanted)
    for card in cards:
        kind = types.get(str(card["name"]))
        if kind is not None and card["module_id"] is not None:
            faults += _internal(card, kind, [port for port in ports if port.module == card["module_id"]])
            if wanted.external and kind.external_ports:
                faults += _external(card, kind, ports, interfaces, wanted)
    return tuple(faults)


def _of_topology(topology: Mapping[str, Any], read: set[int]) -> list[StaticFault]:
    """Return the topology's findings that matter here; if a card's ports were read, its links are judged by them."""
    faults = []
    for found in topology["findings"]:
        id_, message = str(found["id"]), str(found["message"])
        about = tuple(
            card["module_id"]
            for card in topology["cards"]
            if card["module_id"] is not None and label(card).lower() in message.lower()
        )
        if id_ in _ENDING or id_ in _TOLD or (id_ == "link-down" and not set(about) <= read):
            faults.append(StaticFault(id_, message, about, fatal=id_ not in _TOLD))
    return faults


def _of_cards(cards: Sequence[Mapping[str, Any]], wanted: ExpectedFabric) -> list[StaticFault]:
    """Return faults for an unexpected number of cards, and for cards of two types."""
    faults = []
    modules = tuple(card["module_id"] for card in cards if card["module_id"] is not None)
    if wanted.cards is not None and len(cards) != wanted.cards:
        there = modules_text(modules) if modules else "none"
        case = "more" if len(cards) > wanted.cards else ""
        said = say("card-count", case, seen=len(cards), modules=there, expected=wanted.cards)
        faults.append(StaticFault("card-count", said))
    names = sorted({str(card["name"]) for card in cards if card["name"] is not None})
    if len(names) > 1:
        faults.append(StaticFault("cards-differ", say("cards-differ", count=len(names), names=", ".join(names))))
    return faults


def _internal(card: Mapping[str, Any], kind: CardType, ports: Sequence[Port]) -> list[StaticFault]:
    """Return internal ports that are down or missing. hl-smi's own list of external ports overrides the catalogue's."""
    module = card["module_id"]
    known = kind.fabric.external_ports.get(module, ()) if kind.fabric else ()
    inside = [port for port in ports if not (port.external if port.external is not None else port.number in known)]
    down = sorted(port.number for port in inside if port.up is False)
    name = label(card)
    faults = []
    if down:
        said = say("internal-port-down", Card=f"{name[0].upper()}{name[1:]}", ports=", ".join(map(str, down)))
        faults.append(StaticFault("internal-port-down", said, (module,)))
    seen = len(inside) if ports else card["links_total"]
    if kind.internal_ports is not None and seen is not None and seen < kind.internal_ports:
        said = say("internal-port-missing", seen=seen, card=name, kind=kind.name, wanted=kind.internal_ports)
        faults.append(StaticFault("internal-port-missing", said, (module,)))
    return faults


def _external(
    card: Mapping[str, Any],
    kind: CardType,
    ports: Sequence[Port],
    interfaces: Sequence[Interface],
    wanted: ExpectedFabric,
) -> list[StaticFault]:
    """Return external ports that are down, and interfaces that are missing, down, or not as the site expects."""
    module, name = card["module_id"], label(card)
    own = [interface for interface in interfaces if interface.module == module]
    down = sorted(port.number for port in ports if port.module == module and port.external and port.up is False)
    faults = []
    if down:
        said = say("external-port-down", Card=f"{name[0].upper()}{name[1:]}", ports=", ".join(map(str, down)))
        faults.append(StaticFault("external-port-down", said, (module,)))
    if len(own) < (kind.external_ports or 0):
        said = say("interface-missing", seen=len(own), wanted=kind.external_ports, card=name)
        faults.append(StaticFault("interface-missing", said, (module,)))
    for interface in own:
        wrong = _interface(interface, wanted)
        if wrong:
            said = printable(say("interface-wrong", name=interface.name, card=name, wrong=", ".join(wrong)))
            faults.append(StaticFault("interface-wrong", said, (module,)))
    return faults


def _interface(interface: Interface, wanted: ExpectedFabric) -> list[str]:
    wrong = [] if interface.up else ["is down"]
    if wanted.mtu is not None and interface.mtu != wanted.mtu:
        wrong.append(f"has an MTU of {interface.mtu} where {wanted.mtu} is wanted")
    if wanted.speed is not None and interface.up and interface.speed != wanted.speed:
        wrong.append(f"runs at {interface.speed or 'no known'} Mb/s where {wanted.speed} is wanted")
    return wrong
