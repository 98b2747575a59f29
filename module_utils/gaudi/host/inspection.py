"""What was seen of a host against what is wanted: everything the module host_tuning_info says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from . import cmdline, grub, state, sysctl
from . import files as host_files
from .boot import Boot
from .cmdline import Needed
from .document import SCHEMA
from .grub import Word

UNIT = "gaudi-host-tuning.service"
# What lies in folders of our own needs no mark.
_OWN_FOLDER = ("former", "program", "state")


@dataclass(frozen=True)
class Seen:
    """What was read of a host. ``texts`` and ``obstacles`` go by the names that the role's files have in its
    variables.
    """

    system: Mapping[str, str]
    """/etc/os-release."""
    kernel: str
    container: bool
    virtual: bool
    memory: sysctl.Memory
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
    cpus: Sequence[state.Cpu]
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
    tuned_profile: str | None
    server: Sequence[str | None]
    """Maker, model and firmware version."""
    texts: Mapping[str, str | None]
    obstacles: Mapping[str, str | None]
    drop_in: bool
    """Whether there is anything at the path of GRUB's drop-in."""


class Inspection:
    """One host. Raises Refusal, at whatever is asked first, for a wish or a record that cannot be read."""

    def __init__(self, wanted: Mapping[str, Any], paths: Mapping[str, str], seen: Seen) -> None:
        self.wanted, self.paths, self.seen = wanted, paths, seen
        self.settings = requested(wanted)
        self.limits = {key: str(value) for key, value in wanted["limits"].items()}

    # The kernel command line.

    @cached_property
    def needed(self) -> list[Needed]:
        """The arguments this node needs, for every kernel that can be booted."""
        seen = self.seen
        # One that is installed is booted sooner or later, whatever the boot entries say at this moment.
        booted = [entry.kernel.rpartition("vmlinuz-")[2] for entry in seen.boot.entries]
        kernels = [seen.kernel, *seen.installed, *booted]
        return cmdline.needed(self.wanted["kernel_rules"], seen.system.get("ID", ""), kernels, self.wanted["always"])

    @cached_property
    def arguments(self) -> list[str]:
        """The same as texts, each once."""
        return cmdline.check(need.argument for need in self.needed)

    @cached_property
    def lines(self) -> list[list[Word]]:
        """The command lines of the boot entries, with the place of each word."""
        return self.seen.boot.written(self.arguments, self.paths["grub"])

    @cached_property
    def taken_away(self) -> str:
        """Which file takes our arguments away again; empty when none does."""
        return self.seen.boot.taken_away(self.arguments, self.paths["grub"]) if self.wanted["set_arguments"] else ""

    @cached_property
    def causes(self) -> dict[str, str]:
        """What keeps arguments from holding, for each that does not."""
        causes: dict[str, str] = {}
        for line in self.lines:
            causes |= cmdline.causes(self.arguments, line, self.paths["grub"])
        return {argument: cause or self.taken_away for argument, cause in causes.items()}

    @cached_property
    def waiting(self) -> list[Needed]:
        """The arguments that a reboot brings into effect."""
        seen = self.seen
        return [] if seen.container else state.waits_for_reboot(self.needed, seen.boot.entries, seen.command_line)

    @cached_property
    def serving_refused(self) -> str | None:
        """Why nothing may be served on the running kernel, or None."""
        seen = self.seen
        if seen.container:
            return None
        return state.serving_refusal(self.needed, seen.kernel, seen.command_line, self.waiting, self.causes)

    # What was there before the first change, and what was ours.

    @cached_property
    def record(self) -> dict[str, object]:
        """What was there before the first change."""
        return state.record(self.paths["former"], self.seen.texts["former"])

    @cached_property
    def lost(self) -> list[str]:
        """Settings of ours whose record is gone."""
        ours = sysctl.parse(self.paths["sysctl"], self.seen.texts["sysctl"] or "")
        return [] if self.record else sorted(found.key for found in ours)

    @cached_property
    def held(self) -> list[str]:
        """The arguments in our drop-in."""
        drop_in = self.seen.texts["grub"] or ""
        return grub.drop_in_arguments(drop_in) if drop_in.startswith(host_files.MARK) else []

    @cached_property
    def gone(self) -> dict[str, str]:
        """Those of them that the inventory no longer asks for, as the record keeps them."""
        return {argument: "was ours" for argument in self.held if argument not in self.arguments}

    @cached_property
    def given_up(self) -> list[str]:
        """Every argument that was ours and left the inventory, now or in an earlier run."""
        return list(state.remember(self.record, {"arguments": self.gone})["arguments"])

    @cached_property
    def past(self) -> list[Needed]:
        """The arguments that were ours and are no longer wanted."""
        return cmdline.past([*self.wanted["formerly"], *self.given_up], self.arguments)

    @cached_property
    def removed_at_reboot(self) -> list[Needed]:
        """The arguments that the running kernel has and the next boot does not give."""
        return state.removed_at_reboot([*self.needed, *self.past], self.seen.boot.entries, self.seen.command_line)

    @cached_property
    def given_up_until_reboot(self) -> list[Needed]:
        """Those of them that the inventory no longer asks for."""
        return [need for need in self.removed_at_reboot if need in self.past]

    @cached_property
    def former(self) -> dict[str, Any]:
        """The record as it is to be: what is recorded already stays."""
        boot = self.seen.boot
        # A drop-in is undone by removing it; only what grubby replaces has to be known to be put back.
        replaced = boot.entries if boot.loader == "grubby" and self.wanted["set_arguments"] else []
        arguments = {entry.kernel: " ".join(entry.arguments) for entry in replaced}
        found = {"sysctl": self.seen.running, "kernel_arguments": arguments, "arguments": self.gone}
        return state.remember(self.record, found)

    # What is said of it.

    def refusals(self) -> list[str]:
        """Say why the host cannot be tuned like this."""
        wanted, seen = self.wanted, self.seen
        pages = int(self.settings.get(sysctl.HUGEPAGES, 0))
        marked = {path: seen.texts[name] for name, path in self.paths.items() if name not in _OWN_FOLDER}
        written = [name for name in self.paths if wanted["set_arguments"] or name != "grub"]
        sentences = [
            sysctl.memory_refusal(pages, seen.memory, wanted["max_memory_share"]),
            seen.boot.refusal(),
            *host_files.foreign(marked),
            *(seen.obstacles[name] for name in written),
            self._no_loader(),
        ]
        return [str(sentence) for sentence in sentences if sentence]

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
        """The lines of the table."""
        seen, container = self.seen, self.seen.container
        frozen = seen.frozen if container else ()
        boot = seen.boot
        items = state.sysctl_items(self.settings, seen.running, seen.assignments, self.paths["sysctl"], frozen)
        items += state.argument_items(self.needed, boot.entries, seen.command_line, boot.follows(), container=container)
        if self.wanted["cpu"]:
            items += state.cpu_items(seen.cpus, enabled=seen.unit_enabled, container=container)
        return items + state.limit_items(self.limits, seen.own_limits, seen.limits, container=container)

    @cached_property
    def findings(self) -> list[str]:
        """Say what a person should know."""
        seen, boot = self.seen, self.seen.boot
        running = {} if seen.container else {unit: seen.limits[unit] for unit in seen.started}
        abandoned = state.abandoned(self.record, self.settings)
        return [
            *sysctl.conflicts(self.settings, seen.assignments, self.paths["sysctl"]),
            *(said for line in self.lines for said in cmdline.conflicts(self.arguments, line, self.paths["grub"])),
            *([self.taken_away] if self.taken_away else []),
            *boot.unread(),
            *state.lost_at_next_update_grub(self.needed, boot.entries, boot.follows()),
            *state.other_tuners(seen.tuned_profile),
            *state.absences(self.items, container=seen.container),
            *state.restarts(self.limits, running),
            *state.record_lost(self.paths["former"], self.lost),
            *state.left_behind(abandoned, seen.abandoned),
        ]

    @cached_property
    def checklist(self) -> list[dict[str, str]]:
        """The firmware's settings."""
        return state.checklist(self.wanted["firmware"], self.seen.firmware)

    @cached_property
    def reboot(self) -> list[str]:
        """What a reboot would bring into effect."""
        return state.reboot_reasons([*self.waiting, *self.given_up_until_reboot])

    @cached_property
    def reload_needed(self) -> bool:
        """Whether systemd has an older version of a unit than the files."""
        units = self.seen.units.values()
        return any(values.get("NeedDaemonReload") == "yes" for values in units) or self._limits_unread()

    def _limits_unread(self) -> bool:
        """NeedDaemonReload does not tell of the first drop-in of a unit: systemd knows no directory made since."""
        there, path = self.seen.texts["limits"] is not None, self.paths["limits"]
        read = {
            name: values["DropInPaths"].split() for name, values in self.seen.units.items() if "DropInPaths" in values
        }
        return any((path in files) != there for name, files in read.items() if name != UNIT)

    @cached_property
    def unit_outdated(self) -> bool:
        """Whether our unit, or its program, was written after the unit started.

        Where the clock was set meanwhile, a file may be from before that or from after it; either counts. A file of the
        future was written before the clock was set right.
        """
        age, by = self.seen.unit_age, self.seen.clock_set
        ages = [since for written in self.seen.file_ages.values() for since in (written, written - by)]
        return age is not None and any(0 <= since < age for since in ages)

    def unit_settled(self) -> bool:
        """Whether our unit starts at boot, runs as its files say, and has nothing to do."""
        seen = self.seen
        active = seen.units.get(UNIT, {}).get("ActiveState") == "active"
        slowed = self.wanted["cpu"] and state.slowed(seen.cpus)
        # In a container it is never started (ConditionVirtualization).
        current = not self.reload_needed and not self.unit_outdated
        return seen.unit_enabled and current and (seen.container or (active and not slowed))

    def document(self) -> dict[str, Any]:
        """What the node keeps for those who decide whether to serve."""
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
        """What verify_host.yml leaves for programs."""
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
        """Return what the module answers."""
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
    """Return the kernel settings asked for. Raises Refusal for what the kernel could never take."""
    return sysctl.check_request({key: str(value) for key, value in wanted["sysctl"].items()})


def _json(text: str | None) -> object:
    """Return what a text of JSON says, or None when it says nothing that can be read."""
    try:
        return json.loads(text or "")
    except (ValueError, RecursionError):
        return None
