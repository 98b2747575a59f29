"""Collect everything that is wrong with a node in one list, in the words of the part that found it.

A fault must be mended; a note is information. ``seen_in`` is the part of the node that a finding is about.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..base.kernel_log import BAD_PAGE_TABLE, CORRUPTED_BY, MISSING_FIRMWARE, MISSING_SYMBOL
from ..base.printable import printable
from ..cards.users import describe_user, instance_of, is_own
from ..faults.entry import CARDS, ERROR, HOST, INSTANCES, KERNEL, PARTS
from ..faults.words import fault, say, with_id
from ..host.iommu import Group, case, shown, translating
from ..host.low_memory import free_pieces
from ..host.state import ABSENT, NO_INSTANCE, OK
from ..host.tuned import TUNED
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


def of_preflight(problems: Iterable[Mapping[str, str]], findings: Iterable[str]) -> list[Finding]:
    """Return preflight's problems as faults and its findings as notes; both as gaudi_preflight returns them."""
    return [
        *(Finding(problem["id"], HOST, printable(problem["message"])) for problem in problems),
        *(Finding("preflight", HOST, printable(sentence), fault=False) for sentence in findings),
    ]


# The check of catalog/compatibility.yml about these kernel arguments, without which serving is refused.
_IOMMU = "iommu"
_OF_IOMMU = (_IOMMU, "intel_iommu")


def of_tuning(
    items: Iterable[Mapping[str, Any]],
    refused: str | None,
    findings: Iterable[str],
    allowed: Collection[str] = (),
) -> list[Finding]:
    """Return settings that are not in effect, and why serving is refused; input is as host_tuning_info returns it.

    allowed: checks whose mismatches the site allows (preflight_allow_mismatch). What concerns them is a note.
    """
    findings, may = list(findings), _IOMMU in allowed
    missing = [item for item in items if item["state"] not in (OK, ABSENT)]
    wrong = [replace(_not_in_effect(item, findings), fault=not (may and item["item"] in _OF_IOMMU)) for item in missing]
    barred = [replace(known("serving-refused", refused=refused), fault=not may)] if refused else []
    return [*barred, *wrong, *(Finding("host_tuning", KERNEL, printable(said), fault=False) for said in findings)]


def _not_in_effect(item: Mapping[str, Any], notes: Sequence[str]) -> Finding:
    """Return the finding for one setting; even a right value may not be configured, or belong to no instance yet.

    notes: sentences of the tuning. What TuneD undoes is not set by running the playbook again.
    """
    facts = {name: item[name] for name in ("item", "now", "wanted", "after_reboot")}
    if item["now"] == NO_INSTANCE:
        return known("not-configured", **facts)
    if item["now"] == item["wanted"]:
        return known("not-persistent", **facts)
    entry, tuned = fault("not-in-effect"), [said for said in notes if said.startswith(TUNED)]
    key = "governor" if "governor" in item["item"] else item["item"]
    for said in tuned:
        if re.search(rf"(?<![\w.]){re.escape(key)}=", said):
            return Finding(entry.id, entry.part, printable(f"{entry.sentence.format(**facts)} {said}"))
        if f"{TUNED} " in said and ", which may set" in said and ("." in key or key == "governor"):
            return Finding(entry.id, entry.part, printable(f"{say(entry.id, **facts)} {said}"))
    return known(entry.id, **facts)


def of_users(
    cards: Iterable[Mapping[str, Any]], holders: Mapping[int, str], running: Mapping[str, bool]
) -> list[Finding]:
    """Return unexpected users of cards.

    holders: the instance that each module id is reserved for. running: for each instance of the node, whether its unit
    runs.
    """
    return [
        found
        for card in cards
        for user in card["users"]
        if (found := _of_user(card["module_id"], user, holders.get(card["module_id"]), running))
    ]


def _of_user(
    module: int | None, user: Mapping[str, Any], holder: str | None, running: Mapping[str, bool]
) -> Finding | None:
    """Return why a user should not have the card; None if it may."""
    instance, who = instance_of(user), describe_user(user)
    if instance is not None and not running.get(instance, False):
        return known("card-used-by-orphaned-container", module=module, who=who, instance=instance)
    if instance is not None:
        return None
    if holder is not None and not is_own(user, holder):
        return known("card-used-by-other-process", module=module, who=who, holder=holder)
    return known("card-in-use", module=module, who=who)


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


def of_page_tables(lines: Sequence[str], groups: Iterable[Group], running: Sequence[str]) -> list[Finding]:
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


def of_topology(topology_findings: Iterable[Mapping[str, str]]) -> list[Finding]:
    """Return faults of cards and links themselves, in the words of cards/findings.py.

    A link that is down does not stop preflight, so it is a warning in the topology; for the doctor it is a fault.
    """
    return [
        Finding(found["id"], CARDS, printable(found["message"]))
        for found in topology_findings
        if found["severity"] == ERROR or found["id"] == "link-down"
    ]


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
