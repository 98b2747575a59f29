"""The host's settings as one table: wanted, configured, in effect now, in effect after a reboot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base import documents
from ..base.cpulist import format_cpulist
from ..base.refusal import Refusal
from . import cmdline as kernel_cmdline
from . import energy, sysctl
from .cmdline import NeededArgument
from .grub import BootEntry

OK, WRONG, REBOOT, ABSENT = "ok", "wrong", "reboot", "not here"
GOVERNOR = "performance"
SHALLOW = ("POLL", "C1", "C1_ACPI", "haltpoll")
"""Idle states that stay on: busy waiting, C1 as intel_idle and acpi_idle name it, and a guest's halt."""

# The record of values before the first change, by section: kernel settings, and arguments of kernels and of our
# drop-in.
_RECORD_SCHEMA = 1
_RECORD = {"sysctl": {str: str}, "kernel_arguments?": {str: str}, "arguments?": {str: str}}
_NOTHING = "-"
NO_INSTANCE = "no instance yet"
_LIMIT_HEADINGS = {"nofile": "Max open files", "memlock": "Max locked memory"}
_VIRTUAL = "not the server itself: a virtual machine or a container"


@dataclass(frozen=True)
class Item:
    """One row of the table. ``state`` is one word that sums up the four columns.

    ``lacking``: the node has no such setting, for example an older kernel; ``now`` says what is missing.
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
    """One processor; None or empty if the kernel has no such control, or if the processor is offline."""

    number: int
    governor: str | None
    idle_states: Mapping[str, bool]
    """Name of each idle state and whether it may be entered."""
    governors: Sequence[str] = ()
    """The governors its driver offers."""
    online: bool = True
    unread: Sequence[str] = ()
    """Controls that the kernel has and does not show: "governor", "idle states"."""
    energy: Mapping[str, int | None] | None = None
    """The energy preference of a processor without cpufreq, by host.energy's names; None for an unread control."""
    energy_registers: bool = False
    """Whether a part of it is only in a register, for which the kernel offers no file."""

    @property
    def can_run_fast(self) -> bool:
        """Whether its driver offers the governor."""
        return self.governor is not None and (GOVERNOR in (self.governor, *self.governors) or not self.governors)


@dataclass(frozen=True)
class Firmware:
    """Firmware settings as far as the operating system shows them; None if it does not."""

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
    """Return one row for each kernel setting.

    ``running``: the settings that this kernel has. ``frozen``: those that cannot be set from here.
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


def other_size_items(pages: int, size: str, memory: sysctl.NodeMemory) -> list[Item]:
    """Return a row for hugepages that were requested in another size than the kernel's default."""
    if not pages or sysctl.counts(size, memory):
        return []
    wanted = f"{pages} of {sysctl.of_size(sysctl.SIZES[size])}"
    now = f"{memory.hugepages} of {sysctl.of_size(memory.hugepage_kib)}"
    return [Item(sysctl.HUGEPAGES, wanted, _NOTHING, now, _NOTHING, WRONG)]


def argument_items(
    needed: Sequence[NeededArgument],
    entries: Sequence[BootEntry],
    running: Sequence[str],
    written: Sequence[str] | None = None,
    *,
    container: bool,
    translated: str = "",
) -> list[Item]:
    """Return one row for each kernel argument. ``entries``: boot entries; ``running``: words of /proc/cmdline.

    ``written``: the arguments in GRUB's files, which the next update-grub writes into the entries; None without such
    files. ``translated``: as for lacking().
    """
    items = []
    for need in needed:
        label, _, value = need.argument.partition("=")
        now = kernel_cmdline.value_of(need.argument, running)
        shown = kernel_cmdline.shown(need.argument, now)
        runs = kernel_cmdline.holds(need.argument, running)
        if container:
            items.append(Item(label, value or "set", "the host's", shown, "the host's", ABSENT))
            continue
        # Without the argument the kernel lets the cards through, or has no IOMMU: it counts from the next boot on.
        by_itself = need.shown and not translated and not runs
        later = {kernel_cmdline.value_of(need.argument, entry.arguments) for entry in entries}
        configured = any(kernel_cmdline.holds(need.argument, entry.arguments) for entry in entries)
        boots = kernel_cmdline.holds_in_all(need.argument, entries)
        stays = written is None or kernel_cmdline.holds(need.argument, written)
        after = ", ".join(sorted({kernel_cmdline.shown(need.argument, found) for found in later}))
        own = value or "set"
        if not entries:
            # Without a known boot loader, the arguments are set by hand.
            state = OK if runs or by_itself else WRONG
            items.append(Item(label, own, "by hand", shown, "unknown", state))
            continue
        state = OK if by_itself else WRONG if not (boots and stays) else OK if runs else REBOOT
        items.append(Item(label, own, own if configured else _NOTHING, shown, after or _NOTHING, state))
    return items


def lost_at_next_update_grub(
    needed: Sequence[NeededArgument], entries: Sequence[BootEntry], written: Sequence[str] | None
) -> list[str]:
    """Say which arguments the next update-grub will remove.

    ``written``: the arguments in GRUB's files.
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
        "every new kernel, takes it away. Repair the files, then run playbooks/tune_host.yml."
    ]


def cpu_items(cpus: Sequence[Cpu], *, enabled: bool, container: bool) -> list[Item]:
    """Return the rows about governor and idle states. ``enabled``: our unit exists and starts at boot."""
    governors = _by_value((cpu.governor, cpu.number) for cpu in cpus if cpu.governor is not None)
    deep = _by_value((name, cpu.number) for cpu in cpus for name, on in cpu.idle_states.items() if on)
    deep = {name: numbers for name, numbers in deep.items() if name not in SHALLOW}
    states = [cpu.number for cpu in cpus if cpu.idle_states]
    fast = all(cpu.governor == GOVERNOR for cpu in cpus if cpu.can_run_fast)
    able = any(cpu.can_run_fast for cpu in cpus)
    lines = (
        (
            "governor of every CPU",
            GOVERNOR,
            _on(governors, [number for numbers in governors.values() for number in numbers]),
            fast,
            able,
            "no cpufreq driver",
        ),
        (
            "C-states deeper than C1",
            "off",
            f"on: {_on(deep, states)}" if deep else "off" if states else "",
            not deep,
            bool(states),
            "no idle states",
        ),
    )
    return [_cpu_item(*line, enabled=enabled, container=container) for line in lines]


def energy_item(cpus: Sequence[Cpu], *, enabled: bool, container: bool) -> Item:
    """Return the row about the energy preference of processors without cpufreq; ``enabled`` as for cpu_items."""
    found = _by_value((energy.described(cpu.energy), cpu.number) for cpu in cpus if cpu.energy)
    return _cpu_item(
        "energy preference of CPUs without cpufreq",
        energy.FASTEST,
        _on(found, [number for numbers in found.values() for number in numbers]),
        list(found) == [energy.FASTEST],
        bool(found),
        "all have cpufreq" if any(cpu.governor for cpu in cpus) else "the processor has none",
        enabled=enabled,
        container=container,
    )


def _cpu_item(
    label: str, want: str, now: str, right: bool, there: bool, without: str, *, enabled: bool, container: bool
) -> Item:
    """Return the row of one setting. ``there``: whether a processor has it, else ``without`` says why none has."""
    configured = "gaudi-host-tuning.service" if enabled else _NOTHING
    if container or not there:
        reason = "the host's" if container else now or without
        return Item(label, want, configured, reason, _NOTHING, ABSENT, lacking=reason == without)
    state = OK if enabled and right else WRONG
    return Item(label, want, configured, now, want if enabled else "unknown", state)


def _by_value(pairs: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the processors of each value."""
    found: dict[str, list[int]] = {}
    for value, number in pairs:
        found.setdefault(value, []).append(number)
    return dict(sorted(found.items()))


def _on(values: Mapping[str, Sequence[int]], everyone: Sequence[int]) -> str:
    """Return values in one line, with the processors of each that not all of them have."""
    return ", ".join(
        value if set(numbers) == set(everyone) else f"{value} on CPU {format_cpulist(numbers)}"
        for value, numbers in values.items()
    )


def cpu_findings(cpus: Sequence[Cpu]) -> list[str]:
    """Say which processors cannot be set, and why."""
    online = [cpu for cpu in cpus if cpu.online]
    offline = [cpu.number for cpu in cpus if not cpu.online]
    has_governor = any(cpu.governor is not None for cpu in online)
    unread = _by_value((control, cpu.number) for cpu in online for control in cpu.unread)
    without = [cpu.number for cpu in online if cpu.governor is None and "governor" not in cpu.unread and has_governor]
    slow = _by_value((str(cpu.governor), cpu.number) for cpu in online if cpu.governor and not cpu.can_run_fast)
    return [
        *(
            [f"CPU {format_cpulist(offline)}: offline. The governor and the idle states are set when they come online."]
            if offline
            else []
        ),
        *([f"CPU {format_cpulist(without)}: no cpufreq driver, so no governor is set there."] if without else []),
        *(
            f"CPU {format_cpulist(numbers)}: {control} not readable, so nothing of it is set there."
            for control, numbers in unread.items()
        ),
        *(
            f"CPU {format_cpulist(numbers)}: the driver does not offer the governor {GOVERNOR}, so it stays {governor}."
            for governor, numbers in slow.items()
        ),
    ]


def slowed(cpus: Sequence[Cpu]) -> bool:
    """Whether a processor has a control that our unit would change, by the same rule as its program, host_tuning.py."""
    return any(
        (GOVERNOR in cpu.governors and cpu.governor != GOVERNOR)
        or any(on and name not in SHALLOW for name, on in cpu.idle_states.items())
        for cpu in cpus
    )


def energy_findings(cpus: Sequence[Cpu]) -> list[str]:
    """Say whose energy preference cannot be read, and what to try."""
    unread = _by_value(
        (name, cpu.number) for cpu in cpus for name, value in (cpu.energy or {}).items() if value is None
    )
    return [
        f"CPU {format_cpulist(numbers)}: {name} not readable. Load the kernel module msr (modprobe msr); where it is "
        "loaded, switch hardware P-states (HWP) on in the firmware's setup."
        for name, numbers in unread.items()
    ]


def saving(cpus: Sequence[Cpu]) -> bool:
    """Whether a processor has an energy preference that our unit would change, by the same rule as its program."""
    return energy.saves(cpu.energy for cpu in cpus if cpu.energy)


def process_limits(text: str) -> dict[str, str]:
    """Parse a process's limits (/proc/PID/limits) into systemd's spelling."""
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
    """Return one row for each limit of our units.

    ``units``: the limits of each loaded unit: those of its process, or systemd's values while it does not run. In a
    container, systemd cannot exceed the container's own limits.
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
    """Say which running instances still have the limits of their start."""
    sentences = []
    for unit, limits in sorted(running.items()):
        differ = [f"{name} {limits.get(name)}" for name in sorted(wanted) if limits.get(name) != wanted[name]]
        if differ:
            sentences.append(f"{unit} was started with {', '.join(differ)}. Restart it to give it the limits wanted.")
    return sentences


def waits_for_reboot(
    needed: Sequence[NeededArgument], entries: Sequence[BootEntry], running: Sequence[str], translated: str = ""
) -> list[NeededArgument]:
    """Return the arguments that every boot entry has and the running kernel lacks; ``translated``: as for lacking()."""
    return [
        need
        for need in needed
        if kernel_cmdline.holds_in_all(need.argument, entries) and lacks_in_effect(need, running, translated)
    ]


def lacks_in_effect(need: NeededArgument, running: Sequence[str], translated: str) -> bool:
    """Whether a reboot is due for an argument in the boot entries: no reboot is for what is so without it."""
    return not kernel_cmdline.holds(need.argument, running) and not (need.shown and not translated)


def removed_at_reboot(
    needed: Sequence[NeededArgument], entries: Sequence[BootEntry], running: Sequence[str]
) -> list[NeededArgument]:
    """Return the arguments that the running kernel has and no boot entry has."""
    return [
        need
        for need in needed
        if kernel_cmdline.holds(need.argument, running)
        and entries
        and not any(kernel_cmdline.holds(need.argument, entry.arguments) for entry in entries)
    ]


def reboot_reasons(waiting: Sequence[NeededArgument]) -> list[str]:
    """Say what a reboot makes effective, and why it matters."""
    reasons: dict[str, list[str]] = {}
    for need in waiting:
        reasons.setdefault(f"{need.purpose}: {need.because}", []).append(need.argument)
    return [f"{' '.join(arguments)} ({reason})" for reason, arguments in reasons.items()]


def serving_refusal(
    needed: Sequence[NeededArgument],
    kernel: str,
    running: Sequence[str],
    waiting: Sequence[NeededArgument],
    causes: Mapping[str, str],
    translated: str = "",
) -> str | None:
    """Say why serving is refused on the running kernel, or return None.

    ``waiting``: arguments that a reboot makes effective. ``causes``: for the others, the file and line that prevents
    them. ``translated``: as for lacking().
    """
    lacks = lacking(needed, kernel, running, translated)
    if not lacks:
        return None
    absent = [need for need in lacks if not kernel_cmdline.holds(need.argument, running)]
    if not absent:
        return (
            f"The running kernel {kernel} translates what cards address ({translated}), although it was started with "
            f"{' '.join(need.argument for need in lacks)}: {lacks[0].because}. dmesg | grep -i iommu tells what "
            "decides that, such as a setting of the firmware."
        )
    how = f"The IOMMU translates what cards address ({translated}). " if absent[0].shown else ""
    arguments = " ".join(need.argument for need in absent)
    return f"{how}The running kernel {kernel} was started without {arguments}: {absent[0].because}. " + remedy(
        [causes.get(need.argument, "") for need in absent if need not in waiting]
    )


def lacking(
    needed: Sequence[NeededArgument], kernel: str, running: Sequence[str], translated: str = ""
) -> list[NeededArgument]:
    """Return arguments without which the running kernel corrupts answers; ``running``: words of /proc/cmdline.

    translated: the cards whose addresses an IOMMU translates; "" for none, and then no ``shown`` argument is lacking.
    """
    return [
        need
        for need in needed
        if need.purpose == "correctness"
        and need.concerns(kernel)
        and (bool(translated) if need.shown else not kernel_cmdline.holds(need.argument, running))
    ]


def remedy(causes: Sequence[str]) -> str:
    """Say what to do about missing arguments. ``causes``: for those that a reboot does not make effective."""
    if not causes:
        return "Reboot this node (playbooks/tune_host.yml with host_tuning_reboot=if_needed does it), then serve."
    known = " ".join(dict.fromkeys(cause for cause in causes if cause))
    return (
        known or "A reboot does not bring it; playbooks/verify_host.yml names the file and line that says otherwise."
    ) + " Then run playbooks/tune_host.yml with host_tuning_reboot=if_needed."


def checklist(settings: Sequence[Mapping[str, object]], seen: Firmware) -> list[dict[str, str]]:
    """Return the firmware settings, each "ok", "wrong" or "cannot be read", and the source of that."""
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
        # intel_idle uses its own table of states, whatever the firmware says.
        return "cannot be read", f"the idle driver ({seen.idle_driver or 'none'}) does not ask the firmware"
    return ("wrong", f"the firmware offers {', '.join(deep)}") if deep else ("ok", "the firmware offers none deeper")


def absences(items: Sequence[Item], *, container: bool) -> list[str]:
    """Say which rows do not apply to this node, and why."""
    found = [f"{item.item}: {item.now}, so there is nothing to set." for item in items if item.lacking]
    if container:
        found.append(
            "This is a container: its kernel command line, its processors and the highest limits are the host's to set."
        )
    return found


def server(names: Iterable[str | None]) -> str:
    """Return vendor, model and firmware version in one line, as far as the firmware gives them."""
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
    """Parse the record of values before the first change; a missing file is an empty record.

    Raises Refusal for a file that is not such a record.
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
    """Say that the record of values before the first change is missing. ``lost``: the settings that it covered."""
    if not lost:
        return []
    return [
        f"{path} is gone: what {', '.join(lost)} were before tuning is not known any more. "
        "playbooks/untune_host.yml cannot put them back; a reboot after it brings the system's own values."
    ]


def abandoned(known: Mapping[str, object], wanted: Iterable[str]) -> dict[str, str]:
    """Return recorded kernel settings that the inventory dropped, with their values before the first change."""
    recorded = known.get("sysctl", {})
    return {key: value for key, value in recorded.items() if key not in wanted} if isinstance(recorded, Mapping) else {}


def left_behind(then: Mapping[str, str], running: Mapping[str, str]) -> list[str]:
    """Say which abandoned kernel settings differ from their values before the first change.

    ``then``: those earlier values. ``running``: the current ones.
    """
    return [
        f"{key} is {now}, and was {then[key]} before it was set here. The inventory no longer asks for it; "
        "playbooks/untune_host.yml puts it back, or sysctl -w does."
        for key, now in sorted(running.items())
        if now != then[key]
    ]


def remember(known: Mapping[str, object], found: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the record of values before the first change; entries that are in it already stay."""
    merged: dict[str, Any] = {"schema": _RECORD_SCHEMA}
    for section, values in found.items():
        kept = known.get(section, {})
        merged[section] = {**values, **(kept if isinstance(kept, Mapping) else {})}
    return merged
