"""Collect everything that is wrong with a node in one list, in the words of the part that found it.

A fault must be repaired; a note is information. ``seen_in`` is the part of the node that a finding is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base.kernel_log import BAD_PAGE_TABLE, CORRUPTED_BY, MISSING_FIRMWARE, MISSING_SYMBOL
from ..base.printable import printable
from ..faults.entry import ERROR, INSTANCES, PARTS
from ..faults.words import fault, say, with_id
from ..host.iommu import IommuGroup, case, shown, translating
from ..host.low_memory import free_pieces
from ..serving.state import WAITS_FOR_LOCK
from ..serving.unserved import unit_fault


@dataclass(frozen=True)
class Finding:
    """One thing that was found: ``id`` for programs, ``sentence`` for people."""

    id: str
    seen_in: str
    sentence: str
    fault: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as a mapping that survives JSON."""
        return asdict(self)


def known(identifier: str, case: str = "", /, **facts: object) -> Finding:
    """Return the finding for an entry of the list of faults, with its sentence filled in; ``case``: which remedy."""
    entry = fault(identifier)
    return Finding(identifier, entry.part, printable(say(identifier, case, **facts)), fault=entry.severity == ERROR)


def of_instances(instances: Sequence[Mapping[str, Any]], node: str) -> list[Finding]:
    """Return why instances do not serve, in their supervisors' words.

    instances: as node.instances.read returns them, each with two more keys. ``otherwise``: sentences on how the running
    container differs from the plan on the node. ``said``: the supervisor's last status to systemd, "" if it serves.
    node: the node's name in the inventory.
    """
    return [found for instance in instances for found in _of_instance(instance, node)]


def _stands(instance: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return an instance's phase and status."""
    state = instance["state"]
    # While a supervisor waits for its lock, state.json belongs to another supervisor, or to an earlier one.
    if instance["active"] == "activating" and instance["said"].startswith(WAITS_FOR_LOCK):
        return "waiting", printable(instance["said"])
    return state.get("phase"), state.get("status", "")


def _of_instance(instance: Mapping[str, Any], node: str) -> list[Finding]:
    name, state = instance["instance"], instance["state"]
    sentence = unit_fault(instance, node)
    if sentence:
        return [Finding("no-unit", INSTANCES, sentence)]
    if instance["damaged"]:
        return [known("state-damaged", instance=name, what=instance["damaged"])]
    (phase, status), reason = _stands(instance), state.get("reason") or {}
    if phase == "failed":
        return [Finding(str(reason.get("kind", "failed")), INSTANCES, f"{name}: {printable(status)}")]
    # A killed supervisor leaves its last phase in state.json, whatever became of the unit.
    if instance["active"] == "failed" and instance["said"]:
        return [Finding("unit-failed", INSTANCES, f"{name}: {printable(instance['said'])}")]
    if instance["active"] == "failed":
        return [known("unit-failed", instance=name, result=instance["result"])]
    if instance["active"] == "inactive":
        return [known("stopped", instance=name)]
    if phase == "not-answering" and not instance["said"].startswith("serving "):
        return [Finding("not-answering", INSTANCES, f"{name}: {printable(status)}.")]
    if phase == "pausing":
        return [known("crash-loop", instance=name, status=status.rstrip("."))]
    if phase == "waiting":
        return [known("waiting", instance=name, status=status.rstrip("."))]
    return [Finding("not-as-planned", INSTANCES, printable(said)) for said in instance["otherwise"]]


def of_room(lacking: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Return a fault for each file system that lacks room; ``lacking`` are sentences without a full stop, by instance.

    A sentence of several instances is reported once.
    """
    whose: dict[str, list[str]] = {}
    for instance, sentences in lacking.items():
        for sentence in sentences:
            whose.setdefault(sentence, []).append(instance)
    return [known("no-room", instances=", ".join(names), what=sentence) for sentence, names in whose.items()]


def of_low_memory(buddyinfo: str, page: int) -> list[Finding]:
    """Return a note if the host's low memory is fragmented; ``buddyinfo``: the text of /proc/buddyinfo, page: bytes."""
    return [known("low-memory-fragmented")] if free_pieces(buddyinfo, page) == 0 else []


def of_kernel_log(lines: Sequence[str], warnings: Sequence[str] = ()) -> list[Finding]:
    """Return the driver's faults since boot: known causes, and one fault for its errors.

    lines: the kernel's error lines. warnings: its lines of that level or worse about symbols and firmware.
    """
    found = []
    files = [match["file"] for match in map(MISSING_FIRMWARE.search, (*warnings, *lines)) if match]
    if files:
        found.append(known("firmware-missing", file=files[0]))
    symbols = [match for match in map(MISSING_SYMBOL.search, (*warnings, *lines)) if match]
    if symbols:
        named = ", ".join(dict.fromkeys(match["symbol"] for match in symbols))
        found.append(known("symbols-missing", module=symbols[-1]["module"], symbols=printable(named)))
    return [*found, *([known("driver-errors", count=len(lines), last=lines[-1])] if lines else [])]


def of_page_tables(lines: Sequence[str], groups: Iterable[IommuGroup], running: Sequence[str]) -> list[Finding]:
    """Return a fault for corrupted page tables, where the IOMMU explains them; nothing where it does not.

    lines: lines of the kernel's log. groups: the cards' groups, none with a driver that can live with an IOMMU that
    translates. running: words of /proc/cmdline.
    """
    translated = translating(groups, running)
    corrupted = [found["name"].strip() for line in lines if (found := CORRUPTED_BY.search(line))]
    count = max(len(corrupted), sum(BAD_PAGE_TABLE in line for line in lines))
    if not translated or not count:
        return []
    facts = {"count": count, "who": ", ".join(dict.fromkeys(corrupted)) or "an unnamed process"}
    entry = fault("page-tables-overwritten")
    said = say(entry.id, case(running), **facts, cards=shown(translated))
    return [Finding(entry.id, entry.part, printable(said))]


def of_server_log(instance: str, lines: Sequence[str]) -> list[Finding]:
    """Return a note on failed requests; ``lines`` are the server's log lines that match ``media-fetch-timeout``."""
    return [known("media-fetch-timeout", instance=instance, count=len(lines))] if lines else []


def report(node: str, findings: Sequence[Finding]) -> list[str]:
    """Return the findings as lines for people: the faults, numbered, then the notes."""
    faults = [found for found in findings if found.fault]
    notes = [found for found in findings if not found.fault]
    count = "no fault" if not faults else "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return [
        f"{node}: {count} ({', '.join(PARTS)} looked at)",
        *(
            f"  {number}. {found.seen_in}: {with_id(found.sentence, found.id)}"
            for number, found in enumerate(faults, 1)
        ),
        *(f"  note, {found.seen_in}: {with_id(found.sentence, found.id)}" for found in notes),
    ]


def once(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by part and drop repeated sentences; a fault of a card is also in the verdict."""
    first: dict[str, Finding] = {}
    for found in findings:
        first.setdefault(found.sentence, found)
    return sorted(first.values(), key=lambda found: PARTS.index(found.seen_in))
