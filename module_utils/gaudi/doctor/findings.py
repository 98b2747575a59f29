"""Everything that is wrong with a node, as one list, in the words of whoever found it.

A fault has to be mended; a note is worth knowing. ``seen_in`` says which part of the node a finding is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base.printable import printable
from ..cards.users import describe_user, is_own
from ..faults.entry import CARDS, ERROR, HOST, INSTANCES, KERNEL, PARTS
from ..faults.words import fault, say
from ..host.state import ABSENT, NO_INSTANCE, OK
from ..preflight.checks import instance_of
from ..serving.state import WAITS_FOR_LOCK, unit_fault


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


def known(identifier: str, **facts: object) -> Finding:
    """Return the finding for an entry of the list of faults, its sentence filled with the facts."""
    entry = fault(identifier)
    return Finding(identifier, entry.part, printable(say(identifier, **facts)), fault=entry.severity == ERROR)


def of_preflight(problems: Iterable[Mapping[str, str]], findings: Iterable[str]) -> list[Finding]:
    """Return what keeps the node from being set up, and what preflight says beside; as gaudi_preflight returns them."""
    return [
        *(Finding(problem["id"], HOST, printable(problem["message"])) for problem in problems),
        *(Finding("preflight", HOST, printable(sentence), fault=False) for sentence in findings),
    ]


def of_tuning(items: Iterable[Mapping[str, Any]], refused: str | None, findings: Iterable[str]) -> list[Finding]:
    """Return the settings that are not in effect, and why nothing may be served; as host_tuning_info returns them."""
    wrong = [_not_in_effect(item) for item in items if item["state"] not in (OK, ABSENT)]
    barred = [known("serving_refused", refused=refused)] if refused else []
    return [*barred, *wrong, *(Finding("host_tuning", KERNEL, printable(said), fault=False) for said in findings)]


def _not_in_effect(item: Mapping[str, Any]) -> Finding:
    """Return the finding for one setting: what it is now may be right by chance, or of no instance yet."""
    facts = {name: item[name] for name in ("item", "now", "wanted", "after_reboot")}
    if item["now"] == NO_INSTANCE:
        return known("not_configured", **facts)
    return known("not_kept" if item["now"] == item["wanted"] else "not_in_effect", **facts)


def of_verdict(verdict: Mapping[str, Any] | None) -> list[Finding]:
    """Return the fatal faults that the last acceptance found; nothing without a verdict."""
    return [
        Finding(str(fault["id"]), CARDS, printable(str(fault["sentence"])))
        for fault in (verdict["faults"] if verdict else ())
        if fault["fatal"]
    ]


def of_users(
    cards: Iterable[Mapping[str, Any]], holders: Mapping[int, str], running: Mapping[str, bool]
) -> list[Finding]:
    """Return who uses cards and should not.

    holders: the instance that each module id is reserved for. running: by instance of the node, whether its unit runs.
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
    """Return why somebody should not use a card; None where nothing speaks against it."""
    instance, who = instance_of(user), describe_user(user)
    if instance is not None and not running.get(instance, False):
        return known("card_held_by_orphan", module=module, who=who, instance=instance)
    if instance is not None:
        return None
    if holder is not None and not is_own(user, holder):
        return known("card_held_by_stranger", module=module, who=who, holder=holder)
    return known("card_in_use", module=module, who=who)


def of_instances(instances: Sequence[Mapping[str, Any]], node: str) -> list[Finding]:
    """Return why instances do not serve, in their supervisors' words.

    instances: as node.instances.read has them, each with ``otherwise``: how what runs differs from what lies on the
    node, sentences; and ``said``: what the supervisor told systemd last, empty where it serves. node: its name in the
    inventory.
    """
    return [found for instance in instances for found in _of_instance(instance, node)]


def _stands(instance: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the phase of an instance, and its status."""
    state = instance["state"]
    # While it waits for its lock, the state is another supervisor's, or of the time before.
    if instance["active"] == "activating" and instance["said"].startswith(WAITS_FOR_LOCK):
        return "waiting", printable(instance["said"])
    return state.get("phase"), state.get("status", "")


def _of_instance(instance: Mapping[str, Any], node: str) -> list[Finding]:
    name, state = instance["instance"], instance["state"]
    sentence = unit_fault(instance, node)
    if sentence:
        return [Finding("no_unit", INSTANCES, sentence)]
    if instance["damaged"]:
        return [known("state_damaged", instance=name, what=instance["damaged"])]
    (phase, status), reason = _stands(instance), state.get("reason") or {}
    if phase == "failed":
        return [Finding(str(reason.get("kind", "failed")), INSTANCES, f"{name}: {printable(status)}")]
    # A supervisor that was killed has left the phase that it was in, whatever came of the unit.
    if instance["active"] == "failed" and instance["said"]:
        return [Finding("unit_failed", INSTANCES, f"{name}: {printable(instance['said'])}")]
    if instance["active"] == "failed":
        return [known("unit_failed", instance=name, result=instance["result"])]
    if instance["active"] == "inactive":
        return [known("stopped", instance=name)]
    if phase == "not-answering" and not instance["said"].startswith("serving "):
        return [Finding("not-answering", INSTANCES, f"{name}: {printable(status)}.")]
    if phase == "pausing":
        return [known("crash_loop", instance=name, status=status.rstrip("."))]
    if phase == "waiting":
        return [known("waiting", instance=name, status=status.rstrip("."))]
    return [Finding("not_as_planned", INSTANCES, printable(said)) for said in instance["otherwise"]]


def of_room(lacking: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Return why nothing can be written that instances need; ``lacking`` are sentences without a full stop by instance.

    What several instances lack is said once.
    """
    whose: dict[str, list[str]] = {}
    for instance, sentences in lacking.items():
        for sentence in sentences:
            whose.setdefault(sentence, []).append(instance)
    return [known("no_room", instances=", ".join(names), what=sentence) for sentence, names in whose.items()]


_LOW_ZONES = ("DMA", "DMA32")


def of_low_memory(buddyinfo: str) -> list[Finding]:
    """Return whether the host's low memory is in pieces; ``buddyinfo`` is the text of /proc/buddyinfo."""
    free = [
        words[4:]
        for words in map(str.split, buddyinfo.splitlines())
        if words[2:3] == ["zone"] and words[3] in _LOW_ZONES
    ]
    order = fault("low_memory_fragmented").limit
    if not free or any(int(count) for counts in free for count in counts[order:]):
        return []
    return [known("low_memory_fragmented")]


def of_kernel_log(lines: Sequence[str]) -> list[Finding]:
    """Return what the driver's errors since boot come to; ``lines`` are those of the kernel's log."""
    return [known("driver_errors", count=len(lines), last=lines[-1])] if lines else []


def of_server_log(instance: str, lines: Sequence[str]) -> list[Finding]:
    """Return what a server said of requests; ``lines`` are those of its log with signs of ``media-fetch-timeout``."""
    return [known("media-fetch-timeout", instance=instance, count=len(lines))] if lines else []


def of_topology(topology_findings: Iterable[Mapping[str, str]]) -> list[Finding]:
    """Return what is wrong with cards and links themselves, in the words of cards/findings.py.

    A link that is down keeps a node from nothing before acceptance, so that it is a warning there; here it is a fault.
    """
    return [
        Finding(found["id"], CARDS, printable(found["message"]))
        for found in topology_findings
        if found["severity"] == ERROR or found["id"] == "link_down"
    ]


def report(node: str, findings: Sequence[Finding]) -> list[str]:
    """Return the findings as lines for people: the faults, numbered, then the notes."""
    faults = [found for found in findings if found.fault]
    notes = [found for found in findings if not found.fault]
    count = "no fault" if not faults else "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return [
        f"{node}: {count} ({', '.join(PARTS)} looked at)",
        *(f"  {number}. {found.seen_in}: {found.sentence}" for number, found in enumerate(faults, 1)),
        *(f"  note, {found.seen_in}: {found.sentence}" for found in notes),
    ]


def once(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of the parts, each sentence once: faults of cards stand in the verdict, too."""
    first: dict[str, Finding] = {}
    for found in findings:
        first.setdefault(found.sentence, found)
    return sorted(first.values(), key=lambda found: PARTS.index(found.seen_in))
