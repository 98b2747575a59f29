"""Everything that is wrong with a node, as one list, in the words of whoever found it.

A fault has to be mended; a note is worth knowing. ``seen_in`` says which part of the node a finding is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base.printable import printable
from ..cards.users import describe_user, is_own
from ..host.state import ABSENT, OK
from ..preflight.checks import instance_of
from ..serving.state import unit_fault

# What is looked at, in the order of the report.
PARTS = ("cards and links", "host", "kernel settings", "engine", "instances")
CARDS, HOST, KERNEL, ENGINE, INSTANCES = PARTS


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


def of_preflight(problems: Iterable[Mapping[str, str]], findings: Iterable[str]) -> list[Finding]:
    """Return what keeps the node from being set up, and what preflight says beside; as gaudi_preflight returns them."""
    return [
        *(Finding(problem["id"], HOST, printable(problem["message"])) for problem in problems),
        *(Finding("preflight", HOST, printable(sentence), fault=False) for sentence in findings),
    ]


def of_tuning(items: Iterable[Mapping[str, Any]], refused: str | None, findings: Iterable[str]) -> list[Finding]:
    """Return the settings that are not in effect, and why nothing may be served; as host_tuning_info returns them."""
    wrong = [
        Finding(
            "not_in_effect",
            KERNEL,
            printable(
                f"{item['item']} is {item['now']}, and {item['wanted']} is wanted (after a reboot: "
                f"{item['after_reboot']}). playbooks/tune_host.yml sets it."
            ),
        )
        for item in items
        if item["state"] not in (OK, ABSENT)
    ]
    barred = [Finding("serving_refused", KERNEL, f"Serving is refused. {refused}")] if refused else []
    return [*barred, *wrong, *(Finding("host_tuning", KERNEL, printable(said), fault=False) for said in findings)]


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
    instance, who = instance_of(user), printable(describe_user(user))
    if instance is not None and not running.get(instance, False):
        return Finding(
            "card_held_by_orphan",
            CARDS,
            f"Module {module} is held by {who}, but the unit vllm-{instance}.service does not run. If nobody started "
            f"it by hand, remove the container: docker rm --force vllm-{instance}.",
        )
    if instance is not None:
        return None
    if holder is not None and not is_own(user, holder):
        return Finding(
            "card_held_by_stranger",
            CARDS,
            f"Module {module} is reserved for the instance {holder}, and {who} uses it. Stop that, or give {holder} "
            "other cards.",
        )
    return Finding("card_in_use", CARDS, f"Module {module} is used by {who}, which is no instance.", fault=False)


def of_instances(instances: Sequence[Mapping[str, Any]], node: str) -> list[Finding]:
    """Return why instances do not serve, in their supervisors' words.

    instances: as node.instances.read has them, each with ``otherwise``: how what runs differs from what lies on the
    node, sentences; and ``said``: what the supervisor told systemd last, empty where it serves. node: its name in the
    inventory.
    """
    return [found for instance in instances for found in _of_instance(instance, node)]


def _of_instance(instance: Mapping[str, Any], node: str) -> list[Finding]:
    name, state = instance["instance"], instance["state"]
    sentence = unit_fault(instance, node)
    if sentence:
        return [Finding("no_unit", INSTANCES, sentence)]
    if instance["damaged"]:
        return [Finding("state_damaged", INSTANCES, f"{name}: {printable(instance['damaged'])}.")]
    phase, reason = state.get("phase"), state.get("reason") or {}
    if phase == "failed":
        return [Finding(str(reason.get("kind", "failed")), INSTANCES, f"{name}: {printable(state.get('status', ''))}")]
    if phase == "not-answering" and not instance["said"].startswith("serving "):
        return [Finding("not-answering", INSTANCES, f"{name}: {printable(state.get('status', ''))}.")]
    if phase == "pausing":
        return [Finding("crash_loop", INSTANCES, f"{name}: {printable(state.get('status', ''))}")]
    if instance["active"] == "failed" and instance["said"]:
        return [Finding("unit_failed", INSTANCES, f"{name}: {printable(instance['said'])}")]
    if instance["active"] == "failed":
        return [
            Finding(
                "unit_failed",
                INSTANCES,
                f"{name}: its unit ended with {printable(instance['result'])}, and its supervisor did not say why. "
                f"Look at journalctl -u vllm-{name}, then: systemctl start vllm-{name}.",
            )
        ]
    if instance["active"] == "inactive":
        return [Finding("stopped", INSTANCES, f"{name} is stopped; playbooks/start.yml starts it.", fault=False)]
    unwritten = [instance["unwritten"]] if instance["unwritten"] else []
    return [
        *(Finding("not_as_planned", INSTANCES, printable(said)) for said in instance["otherwise"]),
        *(Finding("state_unwritten", INSTANCES, f"{name}: {printable(said)}.") for said in unwritten),
    ]


# A page is 4 KiB, and a block of order 9 has 512 of them: 2 MiB.
LARGE_ORDER = 9
_LOW_ZONES = ("DMA", "DMA32")


def of_low_memory(buddyinfo: str) -> list[Finding]:
    """Return whether the host's low memory is in pieces; ``buddyinfo`` is the text of /proc/buddyinfo.

    A start was seen to fail with "ctx_init failed" on such a host, its cards being free (an issue of vllm-gaudi).
    How large the pieces have to be is not published; that none of 2 MiB is left is a guess, so it is a note.
    """
    free = [
        words[4:]
        for words in map(str.split, buddyinfo.splitlines())
        if words[2:3] == ["zone"] and words[3] in _LOW_ZONES
    ]
    if not free or any(int(count) for counts in free for count in counts[LARGE_ORDER:]):
        return []
    return [
        Finding(
            "low_memory_fragmented",
            HOST,
            "The host's low memory has no free piece of 2 MiB. If an instance ends with ctx_init failed, run as root: "
            "sync, then write 3 to /proc/sys/vm/drop_caches and 1 to /proc/sys/vm/compact_memory.",
            fault=False,
        )
    ]


def of_kernel_log(lines: Sequence[str]) -> list[Finding]:
    """Return what the driver's errors since boot come to; ``lines`` are those of the kernel's log."""
    if not lines:
        return []
    return [
        Finding(
            "driver_errors",
            CARDS,
            f"The kernel's log has {len(lines)} error(s) of the driver since boot, the last: {printable(lines[-1])}. "
            "All: journalctl --dmesg --boot --priority=err --grep=habanalabs",
            fault=False,
        )
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
