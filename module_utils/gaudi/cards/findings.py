"""What is odd about a node, in sentences: what was seen, what it means, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..base.cpulist import shown
from ..faults.cards import FAULTS
from .hl_smi import parse_lspci, parse_version, release_of
from .query import CommandResult, SeenCard
from .sources import AccelCard, Sources
from .users import label

# Those of cards alone: this file goes to a node with each module that reads cards.
_FAULTS = {fault.id: fault for fault in FAULTS}
# MiB in use above which an idle card counts as occupied.
IDLE_MEMORY_MIB = _FAULTS["memory-without-process"].limit
# Highest plausible temperature; a higher reading means a broken sensor. 0 has its own entry: zero-temperature.
PLAUSIBLE_C = _FAULTS["implausible-temperature"].limit

# Card names that hl-smi prints: those of catalog/cards.yml, which is not available on a node.
CARD_NAMES = (
    *("HL-205", "HL-225", "HL-225B", "HL-225C", "HL-225D", "HL-225H"),
    *("HL-288", "HL-288E", "HL-325", "HL-325L", "HL-338"),
)

# Groups of module ids that the cards' own links join, by card name; the same as in catalog/cards.yml.
GROUPS: Mapping[str, Sequence[Sequence[int]]] = {"HL-338": ((0, 1, 2, 3), (4, 5, 6, 7))}

# Fields that a working hl-smi always returns to root.
_ANSWERED = {
    "name": "the product name",
    "serial": "the serial number",
    "uuid": "the uuid",
    "memory_total_mib": "the memory",
    "memory_used_mib": "the memory in use",
    "temperature_c": "the temperature",
}


def finding(identifier: str, case: str = "", /, **facts: object) -> dict[str, str]:
    """Return a finding in the words of the list of faults; ``case`` selects one of its remedies."""
    known = _FAULTS[identifier]
    return {"id": identifier, "severity": known.severity, "message": known.say(case, **facts)}


def release(version: str | None) -> str | None:
    """Return the release of hl-smi's or a driver's version, None where it has none."""
    if version is None:
        return None
    try:
        return parse_version(version).release if version.startswith("hl-") else release_of(version)
    except ValueError:
        return None


def access_findings(sources: Sources) -> list[dict[str, str]]:
    """Return findings about access: reasons why the cards could not be read at all."""
    findings = []
    seen = sources.seen
    failure = None if seen is None else seen.failure
    on_pci = _count(len(sources.pci), "Gaudi card")
    if sources.uid != 0:
        findings.append(finding("not-root", uid=sources.uid))
    # On a node with cards, neither driver nor hl-smi: site.yml brings both.
    bare = "bare" if seen is None and sources.pci and not sources.accel else ""
    if seen is None:
        findings.append(finding("no-hl-smi", bare or ("driver" if sources.accel else ""), on_pci=on_pci))
    if sources.pci and not sources.accel and (seen is None or failure is not None):
        and_hl_smi = "" if failure is None else f", and hl-smi fails ({failure})"
        findings.append(finding("no-driver", bare, on_pci=on_pci, and_hl_smi=and_hl_smi))
    elif seen is not None and failure is not None and sources.accel:
        failed = "did not answer in time" if seen.timed_out else f"failed ({failure})"
        findings.append(finding("hl-smi-failed", failed=failed, driven=_count(len(sources.accel), "card")))
    if not sources.pci and not sources.accel and (seen is None or not seen.cards):
        findings.append(finding("no-cards"))
    return findings


def count_findings(sources: Sources, cards: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return findings for cards that one source lists and another does not."""
    findings = []
    seen = sources.seen
    in_sysfs = {card.bus_id for card in sources.pci}
    driven = {card.bus_id: card for card in sources.accel}
    if seen is not None and seen.failure is None and sources.pci:
        in_hl_smi = {card["bus_id"] for card in cards if card["bus_id"] is not None}
        counts = f"hl-smi sees {_count(len(seen.cards), 'card')}, PCI sees {len(in_sysfs)}"
        for bus_id in sorted(in_sysfs - in_hl_smi):
            device = driven.get(bus_id)
            who = f"Module {device.module_id}" if device and device.module_id is not None else "A card"
            words = f"the driver has it as accel{device.index}" if device else "the driver has no device for it"
            findings.append(finding("lost-card", who=who, bus_id=bus_id, counts=counts, driven=words))
        if in_hl_smi - in_sysfs:
            what = f"{counts}: PCI does not show {', '.join(sorted(in_hl_smi - in_sysfs))}"
            findings.append(_disagree(what, "Read again; if it stays, look at dmesg for PCI errors."))
    in_lspci = _lspci_bus_ids(sources.lspci, findings)
    if in_lspci is not None and in_lspci != in_sysfs:
        counts = f"lspci shows {_count(len(in_lspci), 'card')}, /sys/bus/pci/devices {len(in_sysfs)}"
        what = f"{counts}; they differ in {', '.join(sorted(in_lspci ^ in_sysfs))}"
        findings.append(_disagree(what, "Read again; if it stays, look at dmesg for PCI errors."))
    return findings


def _lspci_bus_ids(answer: CommandResult | None, findings: list[dict[str, str]]) -> set[str] | None:
    """Return the PCI addresses that lspci lists; None if lspci is missing or its output cannot be read."""
    if answer is None:
        return None
    if answer.status != 0:
        problem = f"status {answer.status}, it said {shown(answer.stderr.strip())}"
        findings.append(finding("unreadable", what=f"lspci -d 1da3: failed: {problem}"))
        return None
    try:
        return {device.bus_id for device in parse_lspci(answer.stdout)}
    except ValueError as error:
        findings.append(finding("unreadable", what=f"lspci -d 1da3: answered what cannot be read: {error}"))
        return None


def _disagree(what: str, advice: str) -> dict[str, str]:
    """Return the finding that two sources disagree."""
    return finding("sources-disagree", what=what, advice=advice)


def place_findings(card: Mapping[str, Any], kernel: Mapping[str, Any], tool: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return findings for a card whose NUMA node or CPUs differ between the kernel and hl-smi topo."""
    return [
        _disagree(
            f"The kernel gives {word} {kernel[key]} for {label(card)}, hl-smi topo gives {tool[key]}",
            "The kernel's is used; compare with lspci -vv and the machine's manual.",
        )
        for key, word in (("numa_node", "NUMA node"), ("cpus", "CPUs"))
        if kernel[key] is not None and tool[key] is not None and kernel[key] != tool[key]
    ]


def number_findings(card: SeenCard, device: AccelCard | None) -> list[dict[str, str]]:
    """Return differences between hl-smi's and the driver's numbers of a card; device is None if the driver has none."""
    pairs = (
        [] if device is None else [("module id", card.module_id, device.module_id), ("index", card.index, device.index)]
    )
    return [
        _disagree(
            f"hl-smi gives {word} {seen} for the card at {card.bus_id}, the driver gives {driven}",
            "hl-smi's is used. Read again; if it stays, find out which is right before serving from that card "
            f"(dmesg | grep {card.bus_id}).",
        )
        for word, seen, driven in pairs
        if seen is not None and driven is not None and seen != driven
    ]


def driver_findings(seen: int, undriven: Sequence[SeenCard], accel: Sequence[AccelCard]) -> list[dict[str, str]]:
    """Return a finding for cards of hl-smi without a device of the driver; no finding if the kernel shows no device."""
    names = [
        str(card.bus_id or f"index {card.index}") for card in undriven if (card.bus_id, card.index) != (None, None)
    ]
    if not names or not accel:
        return []
    what = (
        f"hl-smi sees {_count(seen, 'card')}, /sys/class/accel shows {len(accel)}: it has none for {', '.join(names)}"
    )
    return [_disagree(what, "Who holds such a card open is not seen. Read again; if it stays, look at dmesg.")]


def topo_findings(modules: Sequence[int], rows: Sequence[int]) -> list[dict[str, str]]:
    """Return modules that only one of the card list and hl-smi topo has; nothing if hl-smi topo printed no rows."""
    lacks, strange = sorted(set(modules) - set(rows)), sorted(set(rows) - set(modules))
    advice = "The cores of a NUMA node are shared among the modules hl-smi topo has: print hl-smi topo -c -N again."
    sentences = [f"hl-smi topo has no row for module {module_id}, which is among the cards" for module_id in lacks]
    sentences += [
        f"hl-smi topo has a row for module {module_id}, which is not among the cards" for module_id in strange
    ]
    return [_disagree(what, advice) for what in sentences if rows]


def name_findings(cards: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return findings for card names that are no known card type."""
    names = sorted({str(card["name"]) for card in cards if card["name"] is not None} - set(CARD_NAMES))
    return [finding("unknown-card", name=name) for name in names]


def group_findings(cards: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return a finding with the groups, if the card type's links do not join all cards."""
    present = {card["module_id"] for card in cards}
    findings = []
    for name in sorted({card["name"] for card in cards} & set(GROUPS)):
        there = [[module_id for module_id in group if module_id in present] for group in GROUPS[name]]
        groups = [", ".join(map(str, group)) for group in there if group]
        if len(groups) > 1:
            findings.append(finding("groups", name=name, groups=" and ".join(groups)))
    return findings


def version_findings(hl_smi: str | None, driver: str | None, nic: str | None) -> list[dict[str, str]]:
    """Return versions of different releases; ``hl_smi`` is a release already, the others are full versions."""
    findings = []
    if nic is not None and driver is not None and release(nic) != release(driver):
        findings.append(finding("nic-driver-mismatch", nic=nic, driver=driver))
    driven = release(driver)
    # By major and minor number: hl-smi calls itself 1.24.0 in release 1.24.1 as well.
    if hl_smi is not None and driven is not None and hl_smi.split(".")[:2] != driven.split(".")[:2]:
        findings.append(finding("hl-smi-mismatch", hl_smi=hl_smi, driver=driver))
    return findings


def card_findings(card: Mapping[str, Any], seen: SeenCard, *, answering: bool) -> list[dict[str, str]]:
    """Return what is wrong with one card.

    seen is hl-smi's row for it. answering: hl-smi works and root called it, so that a missing field is a finding.
    """
    name = label(card)
    down = sorted(port for port, up in (seen.links or {}).items() if not up)
    missing = [word for key, word in _ANSWERED.items() if getattr(seen, key) is None]
    checks: list[tuple[str, bool, Callable[[], dict[str, object]]]] = [
        (
            "not-operational",
            card["state"] is not None and card["state"].lower() != "operational",
            lambda: {"state": repr(card["state"])},
        ),
        ("zero-temperature", seen.temperature_c == 0, dict),
        (
            "implausible-temperature",
            seen.temperature_c is not None and not 0 <= seen.temperature_c <= PLAUSIBLE_C,
            lambda: {"celsius": seen.temperature_c},
        ),
        ("not-available", answering and bool(missing), lambda: {"values": ", ".join(missing)}),
        (
            "link-down",
            bool(down),
            lambda: {
                "up": card["links_up"],
                "total": card["links_total"],
                "ports": ", ".join(f"port {port}" for port in down),
            },
        ),
        ("rows-pending", bool(seen.rows_pending), dict),
        ("memory-without-process", held_by_nobody(card), lambda: {"used": card["memory_used_mib"]}),
        ("numa-unknown", card["numa_node"] is None, dict),
        ("module-id-unknown", card["module_id"] is None, dict),
    ]
    common = {"card": name, "Card": name[0].upper() + name[1:], "bus_id": card["bus_id"] or "BUS_ID"}
    return [finding(identifier, **common, **facts()) for identifier, wrong, facts in checks if wrong]


def held_by_nobody(card: Mapping[str, Any]) -> bool:
    """Whether a card's memory is in use although no process of this node has it open."""
    used = card["memory_used_mib"]
    return used is not None and used > IDLE_MEMORY_MIB and all(user["pid"] is None for user in card["users"])


def identity_findings(cards: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return findings for cards with the same module id, serial or address."""
    return [
        finding(
            "duplicate-identity",
            word=word,
            value=value,
            cards=" and ".join(label(card) for card in cards if card[key] == value),
        )
        for key, word in (("module_id", "module id"), ("serial", "serial number"), ("bus_id", "PCI address"))
        for value in _twice(card[key] for card in cards)
    ]


def _twice(values: Iterable[Any]) -> list[Any]:
    """Return the values that occur more than once; None is no value."""
    return [value for value, count in Counter(values).items() if count > 1 and value is not None]


def _count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 card``, ``8 cards``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
