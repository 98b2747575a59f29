"""The host's state in one table: wanted, configured, in effect now, in effect after a reboot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base import documents
from ..base.refusal import Refusal
from . import cmdline as kernel_cmdline
from . import sysctl
from .cmdline import Needed
from .grub import Entry

OK, WRONG, REBOOT, ABSENT = "ok", "wrong", "reboot", "not here"
GOVERNOR = "performance"
SHALLOW = ("POLL", "C1", "C1_ACPI", "haltpoll")
"""Idle states that stay on: busy waiting, C1 as intel_idle and acpi_idle name it, and a guest's halt."""

# What was there before the first change, by section: kernel settings, and arguments of kernels and of our drop-in.
_RECORD_SCHEMA = 1
_RECORD = {"sysctl": {str: str}, "kernel_arguments?": {str: str}, "arguments?": {str: str}}
_NOTHING = "-"
NO_INSTANCE = "no instance yet"
_LIMIT_HEADINGS = {"nofile": "Max open files", "memlock": "Max locked memory"}
_VIRTUAL = "not the server itself: a virtual machine or a container"


@dataclass(frozen=True)
class Item:
    """One line of the table. ``state`` says in one word what the four columns add up to.

    ``lacking``: the node has nothing that could be set, such as an older kernel's setting; ``now`` says what is not
    there.
    """

    item: str
    wanted: str
    configured: str
    now: str
    after_reboot: str
    state: str
    lacking: bool = False


@dataclass(frozen=True)
class Cpu:
    """One processor that is online; None or empty where the kernel offers no such control."""

    number: int
    governor: str | None
    idle_states: Mapping[str, bool]
    """Name of each idle state and whether it may be entered."""
    governors: Sequence[str] = ()
    """The governors its driver offers."""


@dataclass(frozen=True)
class Firmware:
    """What the operating system can see of the firmware's settings; None where it cannot."""

    idle_driver: str | None = None
    idle_states: Sequence[str] = ()
    cpufreq: bool = False
    energy_bias: int | None = None
    nodes: int = 0
    packages: int = 0
    iommu_table: bool | None = None
    virtual: bool = False


def sysctl_items(
    wanted: Mapping[str, str],
    running: Mapping[str, str],
    assignments: Sequence[sysctl.Assignment],
    own_path: str,
    frozen: Sequence[str] = (),
) -> list[Item]:
    """Return one line per kernel setting.

    ``running`` has only the settings this kernel knows; ``frozen`` are those that only somebody else may set.
    """
    boot = sysctl.at_boot(assignments)
    own = {found.key: found.value for found in assignments if found.path == own_path}
    items = []
    for key in sorted(wanted):
        want, now = wanted[key], running.get(key)
        winner = boot.get(key)
        if now is None:
            items.append(Item(key, want, own.get(key, _NOTHING), "no such setting", _NOTHING, ABSENT, lacking=True))
            continue
        later = winner.value if winner else "the kernel's default"
        state = OK if now == later == want == own.get(key) else ABSENT if key in frozen else WRONG
        items.append(Item(key, want, own.get(key, _NOTHING), now, later, state))
    return items


def argument_items(
    needed: Sequence[Needed],
    entries: Sequence[Entry],
    running: Sequence[str],
    written: Sequence[str] | None = None,
    *,
    container: bool,
) -> list[Item]:
    """Return one line per kernel argument. ``entries`` are what can be booted, ``running`` is /proc/cmdline.

    ``written`` is what GRUB's files say, which the next update-grub brings into the entries; None without such files.
    """
    items = []
    for need in needed:
        label, _, value = need.argument.partition("=")
        now = kernel_cmdline.value_of(need.argument, running)
        shown = _NOTHING if now is None else now.partition("=")[2] or "set"
        if container:
            items.append(Item(label, value or "set", "the host's", shown, "the host's", ABSENT))
            continue
        later = {kernel_cmdline.value_of(need.argument, entry.arguments) for entry in entries}
        configured = any(kernel_cmdline.holds(need.argument, entry.arguments) for entry in entries)
        boots = kernel_cmdline.holds_in_all(need.argument, entries)
        stays = written is None or kernel_cmdline.holds(need.argument, written)
        after = ", ".join(sorted(_NOTHING if found is None else found.partition("=")[2] or "set" for found in later))
        own = value or "set"
        if not entries:
            # No boot loader this role knows: somebody sets the arguments by hand.
            state = OK if now == need.argument else WRONG
            items.append(Item(label, own, "by hand", shown, "unknown", state))
            continue
        state = WRONG if not (boots and stays) else OK if now == need.argument else REBOOT
        items.append(Item(label, own, own if configured else _NOTHING, shown, after or _NOTHING, state))
    return items


def lost_at_next_update_grub(
    needed: Sequence[Needed], entries: Sequence[Entry], written: Sequence[str] | None
) -> list[str]:
    """Say which arguments the boot entries have only until update-grub runs again. ``written``: what GRUB's files
    say.
    """
    lost = [
        need.argument
        for need in needed
        if written is not None
        and kernel_cmdline.holds_in_all(need.argument, entries)
        and not kernel_cmdline.holds(need.argument, written)
    ]
    if not lost:
        return []
    return [
        f"The boot entries have {' '.join(lost)}, but GRUB's files no longer say so: the next update-grub, as with "
        "every new kernel, takes it away. Mend the files, then run playbooks/tune_host.yml."
    ]


def cpu_items(cpus: Sequence[Cpu], *, enabled: bool, container: bool) -> list[Item]:
    """Return the lines about processors. ``enabled``: our unit is there and starts at boot."""
    configured = "gaudi-host-tuning.service" if enabled else _NOTHING
    governors = sorted({cpu.governor for cpu in cpus if cpu.governor is not None})
    deep = sorted({name for cpu in cpus for name, on in cpu.idle_states.items() if on and name not in SHALLOW})
    states = any(cpu.idle_states for cpu in cpus)
    lines = (
        ("governor of every CPU", GOVERNOR, ", ".join(governors), bool(governors), "no cpufreq driver"),
        ("C-states deeper than C1", "off", f"on: {', '.join(deep)}" if deep else "off", states, "no idle states"),
    )
    items = []
    for label, want, now, there, without in lines:
        if container or not there:
            reason = "the host's" if container else without
            items.append(Item(label, want, configured, reason, _NOTHING, ABSENT, lacking=not container))
        else:
            state = OK if enabled and now == want else WRONG
            items.append(Item(label, want, configured, now, want if enabled else "unknown", state))
    return items


def slowed(cpus: Sequence[Cpu]) -> bool:
    """Tell whether a processor has a control that our unit would change: the rule of its program, host_tuning.py."""
    return any(
        (GOVERNOR in cpu.governors and cpu.governor != GOVERNOR)
        or any(on and name not in SHALLOW for name, on in cpu.idle_states.items())
        for cpu in cpus
    )


def process_limits(text: str) -> dict[str, str]:
    """Read the limits a process runs with, /proc/PID/limits, as systemd writes them."""
    found = {}
    for line in text.splitlines():
        for name, heading in _LIMIT_HEADINGS.items():
            if line.startswith(heading):
                value = line[len(heading) :].split()[0]
                found[name] = "infinity" if value == "unlimited" else value
    return found


def limit_items(
    wanted: Mapping[str, str],
    configured: Mapping[str, str],
    units: Mapping[str, Mapping[str, str]],
    *,
    container: bool = False,
) -> list[Item]:
    """Return one line per limit of our units.

    ``units``: for each loaded unit, the limits its process runs with, or those systemd has for it while it does not
    run.
    A container's systemd cannot give more than the container has.
    """
    items = []
    for name in sorted(wanted):
        want, has = wanted[name], configured.get(name, _NOTHING)
        differ = sorted(f"{unit} {limits.get(name)}" for unit, limits in units.items() if limits.get(name) != want)
        now = ", ".join(differ) if differ else want if units else NO_INSTANCE
        state = WRONG if has != want else OK if not differ else ABSENT if container else WRONG
        items.append(Item(f"{name} of vllm-*.service", want, has, now, has, state))
    return items


def restarts(wanted: Mapping[str, str], running: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Say which running instances still have the limits of an earlier start."""
    sentences = []
    for unit, limits in sorted(running.items()):
        differ = [f"{name} {limits.get(name)}" for name in sorted(wanted) if limits.get(name) != wanted[name]]
        if differ:
            sentences.append(f"{unit} was started with {', '.join(differ)}. Restart it to give it the limits wanted.")
    return sentences


def waits_for_reboot(needed: Sequence[Needed], entries: Sequence[Entry], running: Sequence[str]) -> list[Needed]:
    """Return the arguments that every kernel gets at the next boot and the running one did not get."""
    return [
        need
        for need in needed
        if kernel_cmdline.holds_in_all(need.argument, entries) and not kernel_cmdline.holds(need.argument, running)
    ]


def removed_at_reboot(needed: Sequence[Needed], entries: Sequence[Entry], running: Sequence[str]) -> list[Needed]:
    """Return the arguments that the running kernel has and no boot entry has any more."""
    return [
        need
        for need in needed
        if kernel_cmdline.holds(need.argument, running)
        and entries
        and not any(kernel_cmdline.holds(need.argument, entry.arguments) for entry in entries)
    ]


def reboot_reasons(waiting: Sequence[Needed]) -> list[str]:
    """Say what a reboot brings into effect, and why it matters."""
    reasons: dict[str, list[str]] = {}
    for need in waiting:
        reasons.setdefault(f"{need.purpose}: {need.because}", []).append(need.argument)
    return [f"{' '.join(arguments)} ({reason})" for reason, arguments in reasons.items()]


def serving_refusal(
    needed: Sequence[Needed],
    kernel: str,
    running: Sequence[str],
    waiting: Sequence[Needed],
    causes: Mapping[str, str],
) -> str | None:
    """Say why nothing may be served on this running kernel, or None when it may.

    ``waiting`` are the arguments a reboot brings; ``causes`` names, for others, the file and line that says otherwise.
    """
    lacks = lacking(needed, kernel, running)
    if not lacks:
        return None
    arguments = " ".join(need.argument for need in lacks)
    return f"The running kernel {kernel} was started without {arguments}: {lacks[0].because}. " + remedy(
        [causes.get(need.argument, "") for need in lacks if need not in waiting]
    )


def lacking(needed: Sequence[Needed], kernel: str, running: Sequence[str]) -> list[Needed]:
    """The arguments without which this running kernel garbles answers; ``running`` is its command line."""
    return [
        need
        for need in needed
        if need.purpose == "correctness" and need.concerns(kernel) and not kernel_cmdline.holds(need.argument, running)
    ]


def remedy(causes: Sequence[str]) -> str:
    """Say what to do about arguments the running kernel lacks. ``causes``: of those that a reboot does not bring."""
    if not causes:
        return "Reboot this node (playbooks/tune_host.yml with host_tuning_reboot=if_needed does it), then serve."
    known = " ".join(dict.fromkeys(cause for cause in causes if cause))
    return (
        known or "A reboot does not bring it; playbooks/verify_host.yml names the file and line that says otherwise."
    ) + " Then run playbooks/tune_host.yml with host_tuning_reboot=if_needed."


def checklist(settings: Sequence[Mapping[str, object]], seen: Firmware) -> list[dict[str, str]]:
    """Return the firmware settings, each "ok", "wrong" or "cannot be read", and how that is known."""
    answers = {
        "deep_cstates": _deep_cstates(seen),
        "cpufreq": ("ok", "the kernel has a cpufreq driver")
        if seen.cpufreq
        else ("cannot be read", _VIRTUAL)
        if seen.virtual
        else ("wrong", "the kernel has no cpufreq driver"),
        "energy_bias": ("cannot be read", "the kernel does not show it")
        if seen.energy_bias is None
        else ("ok" if seen.energy_bias == 0 else "wrong", f"energy_perf_bias is {seen.energy_bias}, 0 is performance"),
        "snc": ("cannot be read", "the kernel shows no NUMA nodes")
        if not seen.nodes or not seen.packages
        else ("cannot be read", _VIRTUAL)
        if seen.virtual
        else (
            "ok" if seen.nodes <= seen.packages else "wrong",
            f"{seen.nodes} NUMA nodes on {seen.packages} processors",
        ),
        "iommu": ("cannot be read", "the kernel shows no ACPI tables")
        if seen.iommu_table is None
        else ("ok", "the firmware has a DMAR table")
        if seen.iommu_table
        else ("cannot be read", _VIRTUAL)
        if seen.virtual
        else ("wrong", "the firmware has no DMAR table"),
    }
    return [
        {
            "setting": str(setting["setting"]),
            "want": str(setting["want"]),
            "state": answers.get(str(setting["check"]), ("cannot be read", ""))[0],
            "because": answers.get(str(setting["check"]), ("", "look in the firmware's setup"))[1],
        }
        for setting in settings
    ]


def _deep_cstates(seen: Firmware) -> tuple[str, str]:
    deep = [name for name in seen.idle_states if name not in SHALLOW]
    if seen.idle_driver != "acpi_idle":
        # intel_idle brings its own table of states, whatever the firmware says.
        return "cannot be read", f"the idle driver ({seen.idle_driver or 'none'}) does not ask the firmware"
    return ("wrong", f"the firmware offers {', '.join(deep)}") if deep else ("ok", "the firmware offers none deeper")


def other_tuners(profile: str | None) -> list[str]:
    """Say that TuneD tunes this host, too. ``profile``: what its file of the active profile says, None without one."""
    if not profile:
        return []
    return [
        f"TuneD is set to the profile {profile}, which may set the governor and kernel settings after this role. "
        "Choose a profile that leaves them alone, or switch TuneD off."
    ]


def absences(items: Sequence[Item], *, container: bool) -> list[str]:
    """Say which items this node has no use for, and why."""
    found = [f"{item.item}: {item.now}, so there is nothing to set." for item in items if item.lacking]
    if container:
        found.append(
            "This is a container: its kernel command line, its processors and the highest limits are the host's to set."
        )
    return found


def server(names: Iterable[str | None]) -> str:
    """Return maker, model and firmware version in one line, as far as the firmware says them."""
    maker, model, firmware = names
    known = " ".join(name for name in (maker, model) if name) or "server of an unknown model"
    return f"{known}, firmware {firmware or 'of an unknown version'}"


def table(rows: Sequence[Mapping[str, str]], columns: Mapping[str, str]) -> list[str]:
    """Return the lines of a table. ``columns``: key of each column and its heading."""
    cells = [list(columns.values()), *([str(row[key]) for key in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]


def items_table(items: Sequence[Item]) -> list[str]:
    """Return the table of all items."""
    headings = {
        "item": "ITEM",
        "wanted": "WANTED",
        "configured": "CONFIGURED",
        "now": "NOW",
        "after_reboot": "AFTER REBOOT",
        "state": "STATE",
    }
    return table([asdict(item) for item in items], headings)


def checklist_table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the firmware checklist as a table."""
    return table(
        rows, {"setting": "FIRMWARE SETTING", "want": "WANTED", "state": "STATE", "because": "HOW IT IS KNOWN"}
    )


def record(path: str, text: str | None) -> dict[str, Any]:
    """Read the record of what was there before the first change; without a file it is empty.

    Raises Refusal for a file that is no such record.
    """
    if text is None:
        return {}
    try:
        return documents.parse(text, _RECORD, _RECORD_SCHEMA)
    except ValueError as wrong:
        raise Refusal(
            "tuning_record_damaged",
            f"{path} is not the record of what was there before tuning that this role writes: {wrong}. Put it back "
            "from a backup; or move it away, and what is there now counts as what was there before.",
        ) from wrong


def record_lost(path: str, lost: Sequence[str]) -> list[str]:
    """Say that the record of what was there before the first change is gone. ``lost``: the settings it was about."""
    if not lost:
        return []
    return [
        f"{path} is gone: what {', '.join(lost)} were before tuning is not known any more. "
        "playbooks/untune_host.yml cannot put them back; a reboot after it brings the system's own values."
    ]


def abandoned(known: Mapping[str, object], wanted: Iterable[str]) -> dict[str, str]:
    """Return the recorded kernel settings that nobody asks for any more, with their values before the first change."""
    recorded = known.get("sysctl", {})
    return {key: value for key, value in recorded.items() if key not in wanted} if isinstance(recorded, Mapping) else {}


def left_behind(then: Mapping[str, str], running: Mapping[str, str]) -> list[str]:
    """Say which abandoned kernel settings still have the value they were given here.

    ``then`` has the values before the first change, ``running`` those of now.
    """
    return [
        f"{key} is {now}, and was {then[key]} before it was set here. The inventory no longer asks for it; "
        "playbooks/untune_host.yml puts it back, or sysctl -w does."
        for key, now in sorted(running.items())
        if now != then[key]
    ]


def remember(known: Mapping[str, object], found: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the record of what was there before the first change: what is recorded already stays."""
    merged: dict[str, Any] = {"schema": _RECORD_SCHEMA}
    for section, values in found.items():
        kept = known.get(section, {})
        merged[section] = {**values, **(kept if isinstance(kept, Mapping) else {})}
    return merged
