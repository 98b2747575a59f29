"""Compare a host with what is wanted; the result of the module host_tuning_info."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from . import cmdline, energy, grub, iommu, state, sysctl, tuned, tuners
from . import files as host_files
from .boot import Boot
from .cmdline import NeededArgument
from .document import SCHEMA
from .grub import Word

UNIT = "gaudi-host-tuning.service"
# Files in our own directories need no mark.
_OWN_FOLDER = ("former", "program", "state")


@dataclass(frozen=True)
class HostFacts:
    """Facts read from a host. ``texts`` and ``obstacles`` are by the names of the role's files in its variables."""

    system: Mapping[str, str]
    """/etc/os-release."""
    kernel: str
    container: bool
    virtual: bool
    memory: sysctl.NodeMemory
    running: Mapping[str, str]
    """The wanted kernel settings that this kernel knows, and their values."""
    abandoned: Mapping[str, str]
    """Values of settings that the record names and nobody asks for any more."""
    frozen: Sequence[str]
    """Settings that cannot be changed from here."""
    assignments: Sequence[sysctl.Assignment]
    boot: Boot
    installed: Sequence[str]
    """Kernels below /boot."""
    command_line: Sequence[str]
    cpuinfo: str
    cpus: Sequence[state.Cpu]
    lockdown: str
    """The kernel's lockdown, as it shows it: none [integrity] confidentiality."""
    firmware: state.Firmware
    own_limits: Mapping[str, str]
    """The limits in our drop-in."""
    limits: Mapping[str, Mapping[str, str]]
    """The limits of each of our units."""
    started: frozenset[str]
    """Those of our units that run."""
    unit_enabled: bool
    units: Mapping[str, Mapping[str, str]]
    """ActiveState, NeedDaemonReload and DropInPaths of the host's unit and of the instances'."""
    unit_age: float | None
    """Seconds since our unit started; None while it does not run."""
    file_ages: Mapping[str, float]
    """Seconds since each of the files that our unit is made of was written, by the wall clock."""
    clock_set: float
    """By how many seconds the wall clock was set forward since our unit started."""
    tuned_profile: str
    """TuneD's active profile; "" without one, and where TuneD is switched off."""
    tuned: Mapping[str, str]
    """TuneD's own files, by path."""
    tuners: Mapping[str, Mapping[str, str]]
    """Files of other active programs that set governors, by unit and path."""
    server: Sequence[str | None]
    """Maker, model and firmware version."""
    texts: Mapping[str, str | None]
    obstacles: Mapping[str, str | None]
    drop_in: bool
    """Whether there is anything at the path of GRUB's drop-in."""
    groups: Sequence[iommu.IommuGroup]
    """The IOMMU groups of the cards."""


class Inspection:
    """The inspection of one host. A wrong request or record raises Refusal when it is first used."""

    def __init__(self, wanted: Mapping[str, Any], paths: Mapping[str, str], seen: HostFacts) -> None:
        self.wanted, self.paths, self.seen = wanted, paths, seen
        self.size = wanted["hugepage_size"]
        self.requested = requested(wanted)
        if sysctl.HUGEPAGES in self.requested:
            pages = sysctl.counted(self.requested[sysctl.HUGEPAGES], seen.cpuinfo, self.size)
            self.requested[sysctl.HUGEPAGES] = str(pages)
        self.settings = sysctl.managed(self.requested, self.size, seen.memory)
        self.limits = {key: str(value) for key, value in wanted["limits"].items()}

    # The kernel command line.

    @cached_property
    def needed(self) -> list[NeededArgument]:
        """The arguments that this node needs, for every kernel that can be booted."""
        seen = self.seen
        # An installed kernel is booted sooner or later, even if no boot entry has it now.
        booted = [entry.kernel.rpartition("vmlinuz-")[2] for entry in seen.boot.entries]
        kernels = [seen.kernel, *seen.installed, *booted]
        rules, system, always = self.wanted["kernel_rules"], seen.system.get("ID", ""), self.wanted["always"]
        needed = cmdline.needed(rules, system, kernels, always, self.wanted["release"])
        return cmdline.on_processor(needed, seen.cpuinfo)

    @cached_property
    def translated(self) -> str:
        """The cards whose addresses an IOMMU translates; "" for none."""
        return iommu.shown(iommu.translating(self.seen.groups, self.seen.command_line))

    @cached_property
    def arguments(self) -> list[str]:
        """The needed arguments as texts, each once."""
        return cmdline.check(need.argument for need in self.needed)

    @cached_property
    def lines(self) -> list[list[Word]]:
        """The command lines of the boot entries, each word with its file and line."""
        return self.seen.boot.written(self.arguments, self.paths["grub"])

    @cached_property
    def taken_away(self) -> str:
        """The file that overwrites our arguments; "" if none does."""
        return self.seen.boot.taken_away(self.arguments, self.paths["grub"]) if self.wanted["set_arguments"] else ""

    @cached_property
    def causes(self) -> dict[str, str]:
        """For each argument without effect what prevents it."""
        causes: dict[str, str] = {}
        for line in self.lines:
            causes |= cmdline.causes(self.arguments, line, self.paths["grub"])
        return {argument: cause or self.taken_away for argument, cause in causes.items()}

    @cached_property
    def waiting(self) -> list[NeededArgument]:
        """The arguments that a reboot makes effective."""
        seen = self.seen
        if seen.container:
            return []
        return state.waits_for_reboot(self.needed, seen.boot.entries, seen.command_line, self.translated)

    @cached_property
    def serving_refused(self) -> str | None:
        """Why serving is refused on the running kernel, or None."""
        seen = self.seen
        if seen.container:
            return None
        return state.serving_refusal(
            self.needed, seen.kernel, seen.command_line, self.waiting, self.causes, self.translated
        )

    # What was there before the first change, and what was ours.

    @cached_property
    def record(self) -> dict[str, object]:
        """The record of values before the first change."""
        return state.record(self.paths["former"], self.seen.texts["former"])

    @cached_property
    def lost(self) -> list[str]:
        """Our settings for which that record is missing."""
        ours = sysctl.parse(self.paths["sysctl"], self.seen.texts["sysctl"] or "")
        return [] if self.record else sorted(found.key for found in ours)

    @cached_property
    def held(self) -> list[str]:
        """The arguments in our drop-in."""
        drop_in = self.seen.texts["grub"] or ""
        return grub.drop_in_arguments(drop_in) if drop_in.startswith(host_files.MARK) else []

    @cached_property
    def gone(self) -> dict[str, str]:
        """Arguments of our drop-in that the inventory no longer asks for, in the record's form."""
        return {argument: "was ours" for argument in self.held if argument not in self.arguments}

    @cached_property
    def given_up(self) -> list[str]:
        """Every argument of ours that was removed from the inventory, now or in an earlier run."""
        return list(state.remember(self.record, {"arguments": self.gone})["arguments"])

    @cached_property
    def past(self) -> list[NeededArgument]:
        """Arguments of ours that are no longer wanted."""
        return cmdline.past([*self.wanted["formerly"], *self.given_up], self.arguments)

    @cached_property
    def removed_at_reboot(self) -> list[NeededArgument]:
        """Arguments that the running kernel has and the next boot will not have."""
        return state.removed_at_reboot([*self.needed, *self.past], self.seen.boot.entries, self.seen.command_line)

    @cached_property
    def given_up_until_reboot(self) -> list[NeededArgument]:
        """Of the arguments in removed_at_reboot, those that the inventory no longer asks for."""
        return [need for need in self.removed_at_reboot if need in self.past]

    @cached_property
    def former(self) -> dict[str, Any]:
        """The record to write; entries that are in it already stay."""
        boot = self.seen.boot
        # A drop-in is undone by deleting it; only what grubby replaces must be recorded.
        replaced = boot.entries if boot.loader == "grubby" and self.wanted["set_arguments"] else []
        arguments = {entry.kernel: " ".join(entry.arguments) for entry in replaced}
        running = {key: value for key, value in self.seen.running.items() if key in self.settings}
        found = {"sysctl": running, "kernel_arguments": arguments, "arguments": self.gone}
        return state.remember(self.record, found)

    # What is said of it.

    def refusals(self) -> list[str]:
        """Return why the host cannot be tuned as wanted."""
        wanted, seen = self.wanted, self.seen
        pages = int(self.requested.get(sysctl.HUGEPAGES, 0))
        marked = {path: seen.texts[name] for name, path in self.paths.items() if name not in _OWN_FOLDER}
        written = [name for name in self.paths if wanted["set_arguments"] or name != "grub"]
        sentences = [
            sysctl.memory_refusal(pages, seen.memory, wanted["max_memory_share"], self.size),
            seen.boot.refusal(),
            *host_files.foreign(marked),
            *(seen.obstacles[name] for name in written),
            self._no_loader(),
            self._energy(),
        ]
        return [str(sentence) for sentence in sentences if sentence]

    def _energy(self) -> str | None:
        seen = self.seen
        if not self.wanted["energy"] or seen.container:
            return None
        registers = any(cpu.energy_registers for cpu in seen.cpus)
        return energy.refusal(virtual=seen.virtual, lockdown=seen.lockdown, registers=registers)

    def _no_loader(self) -> str | None:
        boot, system = self.seen.boot, self.seen.system
        if not (self.needed and self.wanted["set_arguments"]) or boot.loader is not None or self.seen.container:
            return None
        return (
            f"{system.get('PRETTY_NAME', 'This system')} has neither grubby nor update-grub (with {boot.defaults} and "
            f"{boot.config}), so its kernel arguments cannot be set. Set {' '.join(self.arguments)} by hand and "
            "host_tuning_kernel_cmdline: false, or use a system this role knows (Debian, Ubuntu, RHEL 9)."
        )

    @cached_property
    def items(self) -> list[state.Item]:
        """The rows of the table."""
        seen, container = self.seen, self.seen.container
        frozen = seen.frozen if container else ()
        boot = seen.boot
        items = state.sysctl_items(self.settings, seen.running, seen.assignments, self.paths["sysctl"], frozen)
        items += state.other_size_items(int(self.requested.get(sysctl.HUGEPAGES, 0)), self.size, seen.memory)
        items += state.argument_items(
            self.needed,
            boot.entries,
            seen.command_line,
            boot.follows(),
            container=container,
            translated=self.translated,
        )
        if self.wanted["cpu"]:
            items += state.cpu_items(seen.cpus, enabled=seen.unit_enabled, container=container)
        if self.wanted["energy"]:
            items.append(state.energy_item(seen.cpus, enabled=seen.unit_enabled, container=container))
        return items + state.limit_items(self.limits, seen.own_limits, seen.limits, container=container)

    @cached_property
    def findings(self) -> list[str]:
        """Sentences that a person should read."""
        seen, boot = self.seen, self.seen.boot
        running = {} if seen.container else {unit: seen.limits[unit] for unit in seen.started}
        abandoned = state.abandoned(self.record, self.settings)
        return [
            *sysctl.conflicts(self.settings, seen.assignments, self.paths["sysctl"]),
            *(said for line in self.lines for said in cmdline.conflicts(self.arguments, line, self.paths["grub"])),
            *([self.taken_away] if self.taken_away else []),
            *boot.unread(),
            *state.lost_at_next_update_grub(self.needed, boot.entries, boot.follows()),
            *tuned.findings(
                seen.tuned_profile, seen.tuned, self.settings, cpu=self.wanted["cpu"] and not seen.container
            ),
            *tuners.findings(seen.tuners),
            *(state.cpu_findings(seen.cpus) if self.wanted["cpu"] and not seen.container else []),
            *(state.energy_findings(seen.cpus) if self.wanted["energy"] and seen.unit_enabled else []),
            *state.absences(self.items, container=seen.container),
            *state.restarts(self.limits, running),
            *state.record_lost(self.paths["former"], self.lost),
            *state.left_behind(abandoned, seen.abandoned),
        ]

    @cached_property
    def checklist(self) -> list[dict[str, str]]:
        """The firmware settings."""
        return state.checklist(self.wanted["firmware"], self.seen.firmware)

    @cached_property
    def reboot(self) -> list[str]:
        """What a reboot would make effective."""
        return state.reboot_reasons([*self.waiting, *self.given_up_until_reboot])

    @cached_property
    def reload_needed(self) -> bool:
        """Whether systemd has not read the latest version of a unit."""
        units = self.seen.units.values()
        return any(values.get("NeedDaemonReload") == "yes" for values in units) or self._limits_unread()

    def _limits_unread(self) -> bool:
        """Whether the first drop-in of a unit is unread: systemd does not notice a directory made since its reload."""
        there, path = self.seen.texts["limits"] is not None, self.paths["limits"]
        read = {
            name: values["DropInPaths"].split() for name, values in self.seen.units.items() if "DropInPaths" in values
        }
        return any((path in files) != there for name, files in read.items() if name != UNIT)

    @cached_property
    def unit_outdated(self) -> bool:
        """Whether our unit or its program was written after the unit started.

        If the clock was set in between, a file's time may be from before or after that; either counts. A file with a
        time in the future was written before the clock was corrected.
        """
        age, by = self.seen.unit_age, self.seen.clock_set
        ages = [since for written in self.seen.file_ages.values() for since in (written, written - by)]
        return age is not None and any(0 <= since < age for since in ages)

    def unit_settled(self) -> bool:
        """Whether our unit is enabled, runs with its current files, and has nothing left to change."""
        seen = self.seen
        active = seen.units.get(UNIT, {}).get("ActiveState") == "active"
        slowed = (self.wanted["cpu"] and state.slowed(seen.cpus)) or (self.wanted["energy"] and state.saving(seen.cpus))
        # In a container the unit never starts (ConditionVirtualization).
        current = not self.reload_needed and not self.unit_outdated
        return seen.unit_enabled and current and (seen.container or (active and not slowed))

    def document(self) -> dict[str, Any]:
        """Return the document that the node keeps; it decides whether instances may serve."""
        needs = [
            {**asdict(need), "waits": need in self.waiting, "cause": self.causes.get(need.argument, "")}
            for need in self.needed
        ]
        return {
            "schema": SCHEMA,
            "serving_refused": self.serving_refused,
            "reboot_needed": self.reboot,
            "kernel_arguments": [] if self.seen.container else needs,
            "leaving": [asdict(need) for need in self.given_up_until_reboot],
            "firmware": self.checklist,
            "findings": self.findings,
        }

    def report(self) -> dict[str, Any]:
        """Return the report of verify_host.yml, for programs."""
        return {
            "server": state.server(self.seen.server),
            "in_effect": all(item.state in (state.OK, state.ABSENT) for item in self.items),
            "items": [asdict(item) for item in self.items],
            "firmware": self.checklist,
            "findings": self.findings,
            "reboot_needed": self.reboot,
            "serving_refused": self.serving_refused,
        }

    def answer(self) -> dict[str, Any]:
        """Return the module's result."""
        seen, report, document = self.seen, self.report(), self.document()
        return {
            "refusals": self.refusals(),
            **{key: report[key] for key in ("server", "in_effect", "items", "findings", "serving_refused")},
            "table": state.items_table(self.items),
            "checklist": self.checklist,
            "checklist_table": state.checklist_table(self.checklist),
            "reboot": self.reboot,
            "removed_at_reboot": state.reboot_reasons(self.removed_at_reboot),
            "ours": list(dict.fromkeys([*self.given_up, *self.held])),
            "unit_present": (seen.texts["unit"] or "").startswith(host_files.MARK),
            "unit_settled": self.unit_settled(),
            "reload_needed": self.reload_needed,
            "unit_outdated": self.unit_outdated,
            "kernel_arguments": self.arguments,
            "container": seen.container,
            "loader": seen.boot.loader,
            "drop_in": seen.drop_in,
            "former": self.former,
            "former_kept": self.former == self.record,
            "former_lost": self.lost,
            "report": report,
            "document": document,
            "document_kept": _json(seen.texts["state"]) == json.loads(json.dumps(document)),
        }


def requested(wanted: Mapping[str, Any]) -> dict[str, str]:
    """Return the requested kernel settings. Raises Refusal for values that no kernel accepts."""
    return sysctl.check_request({key: str(value) for key, value in wanted["sysctl"].items()})


def _json(text: str | None) -> object:
    """Parse a JSON text; None if it cannot be parsed."""
    try:
        return json.loads(text or "")
    except (ValueError, RecursionError):
        return None
