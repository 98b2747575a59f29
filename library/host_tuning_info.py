#!/usr/bin/python
"""Say how a host is tuned: wanted, configured, in effect now, in effect after a reboot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning_info
short_description: State of the host settings a Gaudi server needs
description:
  - Reads kernel settings, the kernel command line, GRUB, processors, limits and what can be seen of the firmware.
  - Changes nothing, in check mode as otherwise.
author: gaudi-serving
options:
  wanted:
    description: What the role wants, as it is in the role's variables.
    type: dict
    required: true
    suboptions:
      sysctl:
        description: Kernel settings, name and value.
        type: dict
        required: true
      max_memory_share:
        description: Largest part of the memory that hugepages may take, in percent.
        type: int
        required: true
      kernel_rules:
        description: The catalogue's rules for the kernel command line that this site follows.
        type: list
        elements: dict
        required: true
      set_arguments:
        description: Whether the role sets the kernel arguments, or somebody does it by hand.
        type: bool
        required: true
      always:
        description: Ids of the rules that hold whatever the node is.
        type: list
        elements: str
        default: []
      formerly:
        description: Kernel arguments that were ours and whose record is gone, in the run that takes them back.
        type: list
        elements: str
        default: []
      cpu:
        description: Whether processors are to run at full speed.
        type: bool
        required: true
      limits:
        description: Limits of our units, name and value.
        type: dict
        required: true
      firmware:
        description: The catalogue's list of firmware settings.
        type: list
        elements: dict
        required: true
  paths:
    description: Where the role keeps its files.
    type: dict
    required: true
    suboptions:
      sysctl:
        description: The sysctl drop-in.
        type: path
        required: true
      grub:
        description: The GRUB drop-in.
        type: path
        required: true
      limits:
        description: The drop-in for our units.
        type: path
        required: true
      unit:
        description: Our unit.
        type: path
        required: true
      udev_rule:
        description: The rule that has our unit treat a processor that comes online.
        type: path
        required: true
      program:
        description: The program that our unit runs.
        type: path
        required: true
      former:
        description: The record of what was there before the first change.
        type: path
        required: true
      state:
        description: The document for those who decide whether to serve.
        type: path
        required: true
  refuse:
    description: Whether to fail, with the reasons, where the host cannot be tuned like this.
    type: bool
    default: false
attributes:
  check_mode:
    description: Reads only.
    support: full
"""

EXAMPLES = r"""
- name: See how the host is tuned
  host_tuning_info:
    wanted: "{{ __host_tuning_wanted }}"
    paths: "{{ __host_tuning_paths }}"
  register: host
"""

RETURN = r"""
refusals:
  description: Why the host cannot be tuned like this, in sentences. Empty when it can.
  type: list
  elements: str
  returned: always
  sample: []
in_effect:
  description: Whether every item is in effect now and after a reboot.
  type: bool
  returned: always
  sample: true
items:
  description: The items of the table.
  type: list
  elements: dict
  returned: always
  sample:
    - {"item": "vm.nr_hugepages", "wanted": "64", "configured": "64", "now": "64", "after_reboot": "64", "state": "ok"}
table:
  description: The same as lines for people.
  type: list
  elements: str
  returned: always
  sample: ["ITEM             WANTED  CONFIGURED  NOW  AFTER REBOOT  STATE"]
checklist:
  description: Settings only the firmware can change.
  type: list
  elements: dict
  returned: always
  sample: [{"setting": "VT-d (IOMMU)", "want": "enabled", "state": "ok", "because": "the firmware has a DMAR table"}]
checklist_table:
  description: The same as lines for people.
  type: list
  elements: str
  returned: always
  sample: ["FIRMWARE SETTING  WANTED   STATE  HOW IT IS KNOWN"]
findings:
  description: What a person should know, in sentences.
  type: list
  elements: str
  returned: always
  sample: ["/etc/sysctl.d/10-db.conf:3 sets vm.nr_hugepages = 8, wanted is 64. ..."]
reboot:
  description: What a reboot would bring into effect, in sentences.
  type: list
  elements: str
  returned: always
  sample: ["intel_idle.max_cstate=0 (speed: the processor's power saving costs tokens per second)"]
leaving:
  description: What the running kernel still has and the next boot will not have, in sentences.
  type: list
  elements: str
  returned: always
  sample: []
ours:
  description: Kernel arguments that are ours, or were before they left the inventory.
  type: list
  elements: str
  returned: always
  sample: ["cpufreq.default_governor=performance", "intel_idle.max_cstate=0"]
unit_present:
  description: Whether the role's unit is there.
  type: bool
  returned: always
  sample: true
loader:
  description: What sets kernel arguments here, grub or grubby; null when neither is there.
  type: str
  returned: always
  sample: grub
unit_settled:
  description: Whether our unit starts at boot, runs as its files say, and no processor was slowed since.
  type: bool
  returned: always
  sample: true
former_lost:
  description: Settings of ours whose values from before are not recorded any more.
  type: list
  elements: str
  returned: always
  sample: []
former_kept:
  description: Whether the record of what was there before says all of RV(former) already.
  type: bool
  returned: always
  sample: true
document_kept:
  description: Whether the node keeps RV(document) already.
  type: bool
  returned: always
  sample: true
reload_needed:
  description: Whether systemd still has an older version of our unit, or of an instance's, than the files.
  type: bool
  returned: always
  sample: false
drop_in:
  description: Whether the drop-in for GRUB is there.
  type: bool
  returned: always
  sample: true
serving_refused:
  description: Why nothing may be served on the running kernel, or null.
  type: str
  returned: always
  sample: null
kernel_arguments:
  description: The arguments this node needs.
  type: list
  elements: str
  returned: always
  sample: ["cpufreq.default_governor=performance", "intel_idle.max_cstate=0"]
container:
  description: Whether this is a container, whose kernel is its host's.
  type: bool
  returned: always
  sample: false
former:
  description: What was there before the first change.
  type: dict
  returned: always
  sample: {"schema": 1, "sysctl": {"kernel.numa_balancing": "1"}, "kernel_arguments": {}}
document:
  description: What the node keeps for those who decide whether to serve.
  type: dict
  returned: always
  sample: {"schema": 2, "serving_refused": null}
report:
  description: What verify_host.yml leaves for programs; reboot_needed and serving_refused are sentences.
  type: dict
  returned: always
  sample: {"server": "Supermicro SYS-821GV-TNR, firmware 1.4", "in_effect": true, "items": [], "serving_refused": null}
server:
  description: Maker, model and firmware version, as the firmware names them.
  type: str
  returned: always
  sample: Supermicro SYS-821GV-TNR, firmware 1.4
"""

import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.host import cmdline as kernel_cmdline
from ansible.module_utils.gaudi.host import files as host_files
from ansible.module_utils.gaudi.host import grub, sysctl
from ansible.module_utils.gaudi.host import state as host_state
from ansible.module_utils.gaudi.node import host

_TEXT: dict[str, Any] = {"type": "path", "required": True}
ARGUMENT_SPEC: dict[str, Any] = {
    "wanted": {
        "type": "dict",
        "required": True,
        "options": {
            "sysctl": {"type": "dict", "required": True},
            "max_memory_share": {"type": "int", "required": True},
            "kernel_rules": {"type": "list", "elements": "dict", "required": True},
            "set_arguments": {"type": "bool", "required": True},
            "always": {"type": "list", "elements": "str", "default": []},
            "formerly": {"type": "list", "elements": "str", "default": []},
            "cpu": {"type": "bool", "required": True},
            "limits": {"type": "dict", "required": True},
            "firmware": {"type": "list", "elements": "dict", "required": True},
        },
    },
    "paths": {
        "type": "dict",
        "required": True,
        "options": dict.fromkeys(
            ("sysctl", "grub", "limits", "unit", "udev_rule", "program", "former", "state"), _TEXT
        ),
    },
    "refuse": {"type": "bool", "default": False},
}
# What lies in folders of our own needs no mark.
_OWN_FOLDER = ("former", "program", "state")
_BOOT = Path("/boot")
_GRUB_DEFAULTS = Path("/etc/default/grub")
_GRUB_CONFIG = Path("/boot/grub/grub.cfg")
_UNIT = "gaudi-host-tuning.service"
_INSTANCES = "vllm-*.service"
_UNIT_WANTED = Path("/etc/systemd/system/multi-user.target.wants") / _UNIT
_SYSCTL = Path("/proc/sys")
_CPUS = Path("/sys/devices/system/cpu")
_TUNED = Path("/etc/tuned/active_profile")
_LIMITS = {"nofile": "LimitNOFILE", "memlock": "LimitMEMLOCK"}


def _text(path: Path) -> str | None:
    """Return a small file's text without its end of line, or None when it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        # sysfs answers some reads with an error where the hardware has nothing to say.
        return None


def _json(path: Path) -> object:
    """Return what a file of JSON says, or None when it says nothing that can be read."""
    try:
        return json.loads(_text(path) or "")
    except ValueError:
        return None


def _command(module: AnsibleModule, program: str, *arguments: str) -> str | None:
    """Return what a program prints, or None when this system does not have it."""
    path = module.get_bin_path(program, opt_dirs=["/usr/sbin", "/sbin"])
    if path is None:
        return None
    _rc, out, _err = module.run_command([path, *arguments], environ_update={"LC_ALL": "C"})
    return str(out)


def _os_release() -> dict[str, str]:
    lines = (_text(Path("/etc/os-release")) or "").splitlines()
    return {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in lines)}


def _sysctl_files() -> list[sysctl.Assignment]:
    """Read what sets kernel settings at boot, in the order it is applied."""
    there = [str(path) for folder in sysctl.DIRECTORIES for path in sorted(Path(folder).glob("*.conf"))]
    found: list[sysctl.Assignment] = []
    for path in sysctl.boot_order(there):
        # The name decides the order, the file it leads to is the one to edit: 99-sysctl.conf is /etc/sysctl.conf.
        found += sysctl.parse(os.path.realpath(path), _text(Path(path)) or "")
    return found


def _cpus() -> list[host_state.Cpu]:
    found = []
    for path in sorted(_CPUS.glob("cpu[0-9]*")):
        if _text(path / "online") == "0":
            continue
        states = {
            _text(state / "name") or state.name: _text(state / "disable") == "0"
            for state in sorted(path.glob("cpuidle/state*"))
        }
        governors = (_text(path / "cpufreq/scaling_available_governors") or "").split()
        found.append(host_state.Cpu(int(path.name[3:]), _text(path / "cpufreq/scaling_governor"), states, governors))
    return found


def _firmware(cpus: list[host_state.Cpu], *, virtual: bool) -> host_state.Firmware:
    tables = Path("/sys/firmware/acpi/tables")
    bias = _text(_CPUS / "cpu0/power/energy_perf_bias")
    nodes = [path for path in Path("/sys/devices/system/node").glob("node[0-9]*") if _text(path / "cpulist")]
    return host_state.Firmware(
        idle_driver=_text(_CPUS / "cpuidle/current_driver"),
        idle_states=sorted({name for cpu in cpus for name in cpu.idle_states}),
        cpufreq=any(cpu.governor is not None for cpu in cpus),
        energy_bias=int(bias) if bias and bias.isdigit() else None,
        nodes=len(nodes),
        packages=len({_text(path) for path in _CPUS.glob("cpu[0-9]*/topology/physical_package_id")}),
        iommu_table=(tables / "DMAR").exists() if tables.exists() else None,
        virtual=virtual,
    )


def _pairs(text: str) -> dict[str, str]:
    """Read lines of NAME=value, as systemd writes them."""
    return dict(line.partition("=")[::2] for line in text.splitlines())


def _units(module: AnsibleModule, *properties: str, of: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return properties of units by name; a pattern stands for the units that are loaded."""
    shown = _command(module, "systemctl", "show", f"--property=Id,{','.join(properties)}", *of) or ""
    blocks = [_pairs(block) for block in shown.split("\n\n")]
    return {values["Id"]: values for values in blocks if "Id" in values}


def _limits(module: AnsibleModule, path: Path) -> tuple[dict[str, str], dict[str, dict[str, str]], set[str]]:
    """Return the limits of our drop-in, those of each of our units, and which of these run.

    A unit that runs has the limits of its start, whatever systemd would give it now.
    """
    names = {systemd: name for name, systemd in _LIMITS.items()}

    def pick(pairs: Mapping[str, str]) -> dict[str, str]:
        return {names[key]: value for key, value in pairs.items() if key in names}

    units: dict[str, dict[str, str]] = {}
    running = set()
    for unit, values in _units(module, "MainPID", *names, of=[_INSTANCES]).items():
        process = _text(Path("/proc") / values["MainPID"] / "limits")
        units[unit] = host_state.process_limits(process) if process else pick(values)
        if process:
            running.add(unit)
    return pick(_pairs(_text(path) or "")), units, running


class _Boot:
    """What the boot loader will hand to the next kernel."""

    def __init__(self, module: AnsibleModule, *, container: bool) -> None:
        self.entries: list[grub.Entry] = []
        self.files: list[tuple[str, str]] = []
        self.loader: str | None = None
        self.refusal: str | None = None
        listing = None if container else _command(module, "grubby", "--info=ALL")
        if listing is not None:
            self.loader, self.entries = "grubby", grub.parse_grubby(listing)
        elif not container and _GRUB_CONFIG.exists():
            # Without its defaults or update-grub it boots all the same, but nothing can be set.
            update_grub = module.get_bin_path("update-grub", opt_dirs=["/usr/sbin", "/sbin"])
            self.loader = "grub" if _GRUB_DEFAULTS.exists() and update_grub else None
            self.entries = grub.parse_config(_GRUB_CONFIG.read_text(errors="replace"))
            self.files = host.grub_files(_GRUB_DEFAULTS)
            if not os.access(_GRUB_CONFIG, os.W_OK):
                self.refusal = f"{_GRUB_CONFIG.parent} is mounted read-only. Mount it for writing, then run again."

    def follows(self) -> list[str] | None:
        """Return what the next update-grub gives every kernel, or None without GRUB's files."""
        return [word.text for word in grub.command_line(grub.evaluate(self.files))] if self.files else None

    def taken_away(self, arguments: list[str], own: str) -> str:
        """Say who sets the line anew behind our drop-in, as if that were written already; empty where nobody does."""
        place = grub.taken_away(self._with_ours(arguments, own), own)
        if place is None:
            return ""
        return (
            f"{place} sets {grub.DEFAULT} anew, without what {own} adds to it, so that {' '.join(arguments)} do not "
            f'reach the kernel. Write "${grub.DEFAULT} ..." there, or move that line to a file that sorts before.'
        )

    def written(self, arguments: list[str], own: str) -> list[list[grub.Word]]:
        """Return command lines with the place each word is written, as if ours were written already."""
        if self.loader == "grubby":
            return [
                [grub.Word(word, grub.Place(f"grubby, {entry.kernel}", 1)) for word in entry.arguments]
                for entry in self.entries
            ]
        return [grub.command_line(grub.evaluate(self._with_ours(arguments, own)))]

    def _with_ours(self, arguments: list[str], own: str) -> list[tuple[str, str]]:
        """GRUB's files as if our drop-in had these arguments already."""
        files: list[tuple[str, str]] = grub.replaced(self.files, own, grub.render(arguments) if arguments else None)
        return files


def _inspect(module: AnsibleModule) -> dict[str, Any]:
    """Read everything, and let the pure functions say what it means. Raises ValueError for an impossible wish."""
    wanted, paths = module.params["wanted"], module.params["paths"]
    system, kernel = _os_release(), platform.release()
    container = (_command(module, "systemd-detect-virt", "--container") or "none").strip() != "none"
    virtual = (_command(module, "systemd-detect-virt", "--vm") or "none").strip() != "none"
    refusals: list[str] = []

    settings = sysctl.check_request({key: str(value) for key, value in wanted["sysctl"].items()})
    memory = sysctl.parse_meminfo(Path("/proc/meminfo").read_text())
    refusals.append(
        sysctl.memory_refusal(int(settings.get(sysctl.HUGEPAGES, 0)), memory, wanted["max_memory_share"]) or ""
    )
    running = host.running_settings(_SYSCTL, settings)
    frozen = [key for key in running if not os.access(_SYSCTL / key.replace(".", "/"), os.W_OK)]
    assignments = _sysctl_files()

    boot = _Boot(module, container=container)
    # One that is installed is booted sooner or later, whatever the boot entries say at this moment.
    installed = [] if container else [path.name.partition("-")[2] for path in _BOOT.glob("vmlinuz-*")]
    kernels = [kernel, *installed, *(entry.kernel.rpartition("vmlinuz-")[2] for entry in boot.entries)]
    needed = kernel_cmdline.needed(wanted["kernel_rules"], system.get("ID", ""), kernels, wanted["always"])
    arguments = kernel_cmdline.check(need.argument for need in needed)
    refusals.append(boot.refusal or "")
    refusals += host_files.foreign({path: _text(Path(path)) for name, path in paths.items() if name not in _OWN_FOLDER})
    refusals += [
        host.obstacle(Path(path)) or "" for name, path in paths.items() if wanted["set_arguments"] or name != "grub"
    ]
    if needed and wanted["set_arguments"] and boot.loader is None and not container:
        refusals.append(
            f"{system.get('PRETTY_NAME', 'This system')} has neither grubby nor update-grub (with {_GRUB_DEFAULTS} and "
            f"{_GRUB_CONFIG}), so its kernel arguments cannot be set. Set {' '.join(arguments)} by hand and "
            "host_tuning_kernel_cmdline: false, or use a system this role knows (Debian, Ubuntu, RHEL 9)."
        )
    command_line = kernel_cmdline.split(Path("/proc/cmdline").read_text())
    waiting = [] if container else host_state.waits_for_reboot(needed, boot.entries, command_line)
    lines = boot.written(arguments, paths["grub"])
    causes: dict[str, str] = {}
    for line in lines:
        causes |= kernel_cmdline.causes(arguments, line, paths["grub"])
    taken_away = boot.taken_away(arguments, paths["grub"]) if wanted["set_arguments"] else ""
    if taken_away:
        causes = {argument: causes.get(argument) or taken_away for argument in causes}
    refused = None if container else host_state.serving_refusal(needed, kernel, command_line, waiting, causes)

    cpus = _cpus()
    limits = {key: str(value) for key, value in wanted["limits"].items()}
    own_limits, units, started = _limits(module, Path(paths["limits"]))
    items = host_state.sysctl_items(settings, running, assignments, paths["sysctl"], frozen if container else ())
    items += host_state.argument_items(needed, boot.entries, command_line, boot.follows(), container=container)
    if wanted["cpu"]:
        items += host_state.cpu_items(cpus, enabled=_UNIT_WANTED.is_symlink(), container=container)
    items += host_state.limit_items(limits, own_limits, units, container=container)
    checklist = host_state.checklist(wanted["firmware"], _firmware(cpus, virtual=virtual or container))
    findings = sysctl.conflicts(settings, assignments, paths["sysctl"])
    for line in lines:
        findings += kernel_cmdline.conflicts(arguments, line, paths["grub"])
    findings += [taken_away] if taken_away else []
    findings += [
        f"{place}: what this says is worked out by a shell, and is not read here; what the next boot brings may be "
        "different. /proc/cmdline shows it after a reboot."
        for place in grub.unread(boot.files)
    ]
    findings += host_state.passing(needed, boot.entries, boot.follows())
    findings += host_state.other_tuners(_text(_TUNED))
    findings += host_state.absences(items, container=container)
    if not container:
        findings += host_state.restarts(limits, {unit: units[unit] for unit in started})
    record = host_state.record(paths["former"], _text(Path(paths["former"])))
    set_here = sysctl.parse(paths["sysctl"], _text(Path(paths["sysctl"])) or "")
    lost = [] if record else sorted(found.key for found in set_here)
    if lost:
        findings.append(
            f"{paths['former']} is gone: what {', '.join(lost)} were before tuning is not known any more. "
            "playbooks/untune_host.yml cannot put them back; a reboot after it brings the system's own values."
        )
    findings += host_state.left_behind(record, settings, lambda keys: host.running_settings(_SYSCTL, keys))
    drop_in = _text(Path(paths["grub"])) or ""
    held = grub.drop_in_arguments(drop_in) if drop_in.startswith(host_files.MARK) else []
    gone = {argument: "was ours" for argument in held if argument not in arguments}
    given_up = host_state.remember(record, {"arguments": gone})["arguments"]
    past = kernel_cmdline.past([*wanted["formerly"], *given_up], arguments)
    leaving = host_state.leaves_at_reboot([*needed, *past], boot.entries, command_line)
    past_leaving = [need for need in leaving if need in past]
    reboot = host_state.reboot_reasons([*waiting, *past_leaving])
    in_effect = all(item.state in (host_state.OK, host_state.ABSENT) for item in items)
    names = ("sys_vendor", "product_name", "bios_version")
    server = host_state.server(_text(Path("/sys/class/dmi/id") / name) for name in names)

    loaded = _units(module, "ActiveState", "NeedDaemonReload", of=[_UNIT, _INSTANCES])
    stale = any(values.get("NeedDaemonReload") == "yes" for values in loaded.values())
    active = loaded.get(_UNIT, {}).get("ActiveState") == "active"
    slowed = wanted["cpu"] and host_state.slowed(cpus)
    # In a container it is never started (ConditionVirtualization).
    settled = not stale and (container or (active and not slowed))

    # A drop-in is undone by removing it; only what grubby replaces has to be known to be put back.
    replaced = boot.entries if boot.loader == "grubby" and wanted["set_arguments"] else []
    boot_arguments = {entry.kernel: " ".join(entry.arguments) for entry in replaced}
    former = host_state.remember(record, {"sysctl": running, "kernel_arguments": boot_arguments, "arguments": gone})
    document = {
        "schema": 2,
        "serving_refused": refused,
        "reboot_needed": reboot,
        "kernel_arguments": []
        if container
        else [{**asdict(need), "waits": need in waiting, "cause": causes.get(need.argument, "")} for need in needed],
        "leaving": [asdict(need) for need in past_leaving],
        "firmware": checklist,
        "findings": findings,
    }
    return {
        "refusals": [sentence for sentence in refusals if sentence],
        "in_effect": in_effect,
        "items": [asdict(item) for item in items],
        "table": host_state.items_table(items),
        "checklist": checklist,
        "checklist_table": host_state.checklist_table(checklist),
        "findings": findings,
        "reboot": reboot,
        "leaving": host_state.reboot_reasons(leaving),
        "ours": list(dict.fromkeys([*given_up, *held])),
        "unit_present": (_text(Path(paths["unit"])) or "").startswith(host_files.MARK),
        "unit_settled": settled and _UNIT_WANTED.is_symlink(),
        "reload_needed": stale,
        "serving_refused": refused,
        "kernel_arguments": arguments,
        "container": container,
        "loader": boot.loader,
        "drop_in": Path(paths["grub"]).exists(),
        "former": former,
        "former_kept": former == record,
        "former_lost": lost,
        "server": server,
        "report": {
            "server": server,
            "in_effect": in_effect,
            "items": [asdict(item) for item in items],
            "firmware": checklist,
            "findings": findings,
            "reboot_needed": reboot,
            "serving_refused": refused,
        },
        "document": document,
        "document_kept": _json(Path(paths["state"])) == json.loads(json.dumps(document)),
    }


def main() -> None:
    """Read and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        found = _inspect(module)
    except ValueError as error:
        module.fail_json(msg=str(error))
    if module.params["refuse"] and found["refusals"]:
        module.fail_json(msg="\n".join(found["refusals"]))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
