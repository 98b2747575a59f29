"""Read how a host is tuned; host/ interprets the facts."""

from __future__ import annotations

import calendar
import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ...base.printable import printable
from ...host import cmdline, energy, grub, inspection, state, sysctl, tuned, tuners
from ...host.boot import Boot
from .. import iommu
from ..files import take_turn, unwritable
from ..module import output
from ..registers import read_register
from . import boot_loader
from .kernel_settings import running_settings

ROOT = Path("/")
BOOT = Path("/boot")
# Held by what writes the boot menu: update-grub fails if another one runs.
BOOT_LOCK = Path("/run/gaudi-host-tuning.lock")
# Seconds to wait for it; update-grub scans every disk.
BOOT_LOCK_SECONDS = 300.0
# Has the system's language.
LOCALE = Path("/etc/default/locale")
OS_RELEASE = Path("/etc/os-release")
PROC = Path("/proc")
CPUINFO = PROC / "cpuinfo"
CPUS = Path("/sys/devices/system/cpu")
LOCKDOWN = Path("/sys/kernel/security/lockdown")
TUNED = Path("/etc/tuned/active_profile")
_TUNED_UNIT = "tuned.service"
UNIT_WANTED = Path("/etc/systemd/system/multi-user.target.wants") / inspection.UNIT
_INSTANCES = "vllm-*.service"
_LIMITS = {"LimitNOFILE": "nofile", "LimitMEMLOCK": "memlock"}
_PROPERTIES = (
    "ActiveState",
    "NeedDaemonReload",
    "DropInPaths",
    "ActiveEnterTimestamp",
    "ActiveEnterTimestampMonotonic",
)
# Seconds by which two clocks may drift without counting as set.
_WHOLE_SECONDS = 2.0
# What our unit runs.
_RUN = ("unit", "program")


def read_host(module: AnsibleModule, wanted: Mapping[str, Any], paths: Mapping[str, str]) -> inspection.HostFacts:
    """Read the host. Raises Refusal for a name that is not a kernel setting, and for unreadable files."""
    settings = inspection.requested(wanted)
    container, virtual = _virtual(module, "--container"), _virtual(module, "--vm")
    running = running_settings(PROC / "sys", settings)
    # A directory in a file's place is reported as an obstacle. Any other non-file, such as a pipe, counts as a missing
    # file and is replaced.
    texts = {name: text_of(Path(path)) if Path(path).is_file() else None for name, path in paths.items()}
    known = state.record(paths["former"], texts["former"])
    cpuinfo = text_of(CPUINFO) or ""
    cpus = _cpus(energy.controls(cpuinfo) if wanted["energy"] and not container else [])
    own_limits = _limits_in(_pairs(texts["limits"] or ""))
    limits, started = _limits_of_units(module)
    units = _units(module, *_PROPERTIES, of=[inspection.UNIT, _INSTANCES])
    return inspection.HostFacts(
        system=_os_release(),
        kernel=platform.release(),
        container=container,
        virtual=virtual,
        memory=sysctl.parse_meminfo((PROC / "meminfo").read_text()),
        running=running,
        abandoned=running_settings(PROC / "sys", state.abandoned(known, settings)),
        frozen=[key for key in running if not os.access(PROC / "sys" / key.replace(".", "/"), os.W_OK)],
        assignments=_sysctl_files(),
        boot=Boot(str(boot_loader.GRUB_DEFAULTS), str(boot_loader.GRUB_CONFIG)) if container else _boot(module),
        installed=[] if container else [path.name.partition("-")[2] for path in BOOT.glob("vmlinuz-*")],
        command_line=cmdline.split((PROC / "cmdline").read_text()),
        cpuinfo=cpuinfo,
        cpus=cpus,
        lockdown=text_of(LOCKDOWN) or "",
        firmware=_firmware(cpus, virtual=virtual or container),
        own_limits=own_limits,
        limits=limits,
        started=frozenset(started),
        unit_enabled=UNIT_WANTED.is_symlink(),
        units=units,
        unit_age=_age(units.get(inspection.UNIT, {})),
        clock_set=_clock_set(units.get(inspection.UNIT, {})),
        file_ages={
            name: time.time() - Path(paths[name]).stat().st_mtime for name in _RUN if Path(paths[name]).exists()
        },
        tuned_profile=_tuned_profile(module),
        tuned=_matching(tuned.FILES),
        tuners=_tuners(module) if wanted["cpu"] and not container else {},
        server=[text_of(Path("/sys/class/dmi/id") / name) for name in ("sys_vendor", "product_name", "bios_version")],
        texts=texts,
        obstacles={name: obstacle(Path(path)) for name, path in paths.items()},
        drop_in=Path(paths["grub"]).exists(),
        groups=iommu.read_groups(),
    )


def text_of(path: Path) -> str | None:
    """Return a small file's text without its line end; None if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        # sysfs answers some reads with an error if the hardware lacks the feature.
        return None


def _virtual(module: AnsibleModule, kind: str) -> bool:
    """Tell whether this is a container (--container) or a virtual machine (--vm)."""
    return (output(module, ["systemd-detect-virt", kind]) or "none").strip() != "none"


def _os_release() -> dict[str, str]:
    return {key: value.strip("\"'") for key, value in _pairs(text_of(OS_RELEASE) or "").items()}


def _sysctl_files() -> list[sysctl.Assignment]:
    """Read the files that set kernel settings at boot, in their order of application."""
    there = [str(path) for folder in sysctl.DIRECTORIES for path in sorted(Path(folder).glob("*.conf"))]
    found: list[sysctl.Assignment] = []
    for path in sysctl.boot_order(there):
        # The link's name decides the order, but its target is the file to edit: 99-sysctl.conf is /etc/sysctl.conf.
        found += sysctl.parse(os.path.realpath(path), text_of(Path(path)) or "")
    return found


def _boot(module: AnsibleModule) -> Boot:
    """Read what the boot loader will hand to the next kernel. Raises Refusal for a file that cannot be read."""
    defaults, config = str(boot_loader.GRUB_DEFAULTS), str(boot_loader.GRUB_CONFIG)
    listing = output(module, ["grubby", "--info=ALL"])
    if listing is not None:
        return Boot(defaults, config, "grubby", grub.parse_grubby(listing))
    if not boot_loader.GRUB_CONFIG.exists():
        return Boot(defaults, config)
    # Without its defaults file or update-grub the system still boots, but no argument can be set.
    settable = boot_loader.GRUB_DEFAULTS.exists() and module.get_bin_path("update-grub")
    return Boot(
        defaults,
        config,
        "grub" if settable else None,
        grub.parse_config(boot_loader.GRUB_CONFIG.read_text(errors="replace")),
        boot_loader.grub_files(boot_loader.GRUB_DEFAULTS),
        read_only=not os.access(boot_loader.GRUB_CONFIG, os.W_OK),
    )


def _cpus(controls: Sequence[energy.Control]) -> list[state.Cpu]:
    """Read the processors, in the order of their numbers. controls: those of the energy preference that are wanted."""
    folders = [path for path in CPUS.glob("cpu[0-9]*") if path.name[3:].isdigit()]
    return [_cpu(path, controls) for path in sorted(folders, key=lambda path: int(path.name[3:]))]


def _cpu(path: Path, controls: Sequence[energy.Control]) -> state.Cpu:
    """Read one processor. An offline one has no controls, and with an unread control only that one is unknown."""
    number = int(path.name[3:])
    if text_of(path / "online") == "0":
        return state.Cpu(number, None, {}, online=False)
    states = {
        text_of(folder / "name") or folder.name: text_of(folder / "disable")
        for folder in path.glob("cpuidle/state[0-9]*")
    }
    governor = path / "cpufreq/scaling_governor"
    scaled = governor.parent.exists()
    governed, offered = text_of(governor), text_of(governor.with_name("scaling_available_governors")) or ""
    return state.Cpu(
        number,
        governed,
        {name: disable == "0" for name, disable in sorted(states.items()) if disable is not None},
        offered.split(),
        unread=[
            *(["governor"] if governed is None and governor.exists() else []),
            *(["idle states"] if None in states.values() else []),
        ],
        energy=None if scaled or not controls else {each.name: _energy(path, each) for each in controls},
        energy_registers=not scaled and any(not _file(path, each).is_file() for each in controls),
    )


def _file(path: Path, control: energy.Control) -> Path:
    """Return the file in which the kernel may offer a control of a processor; the directory itself for none."""
    return path / control.file


def _energy(path: Path, control: energy.Control) -> int | None:
    """Return a processor's energy preference; None if it cannot be read."""
    offered = text_of(_file(path, control)) if _file(path, control).is_file() else None
    if offered is not None:
        return int(offered) if offered.isdigit() else None
    try:
        return control.field(read_register(int(path.name[3:]), control.register))
    except OSError:
        # Without the module msr there is no device, and without HWP the processor refuses to answer.
        return None


def _tuners(module: AnsibleModule) -> dict[str, dict[str, str]]:
    """Return the files of other programs that set governors and that are active."""
    units = _units(module, "ActiveState", "UnitFileState", of=tuners.TUNERS)
    return {unit: _matching(tuners.TUNERS[unit].files) for unit in tuners.active(units)}


def _matching(patterns: Iterable[str]) -> dict[str, str]:
    """Return the texts of the files that can be read, by path, those of a later pattern last."""
    paths = (path for pattern in patterns for path in sorted(ROOT.glob(pattern.lstrip("/"))))
    return {f"/{path.relative_to(ROOT)}": text for path in paths if (text := text_of(path)) is not None}


def _tuned_profile(module: AnsibleModule) -> str:
    """Return the active profile of TuneD; "" without one, and where TuneD is known not to run."""
    profile = text_of(TUNED) or ""
    shown = _units(module, "ActiveState", "UnitFileState", of=[_TUNED_UNIT]).get(_TUNED_UNIT) if profile else None
    return "" if shown and not tuners.starts(shown) else profile


def _firmware(cpus: Sequence[state.Cpu], *, virtual: bool) -> state.Firmware:
    tables = Path("/sys/firmware/acpi/tables")
    bias = text_of(CPUS / "cpu0/power/energy_perf_bias")
    nodes = [path for path in Path("/sys/devices/system/node").glob("node[0-9]*") if text_of(path / "cpulist")]
    return state.Firmware(
        idle_driver=text_of(CPUS / "cpuidle/current_driver"),
        idle_states=sorted({name for cpu in cpus for name in cpu.idle_states}),
        cpufreq=any(cpu.governor is not None for cpu in cpus),
        energy_bias=int(bias) if bias and bias.isdigit() else None,
        nodes=len(nodes),
        packages=len({text_of(path) for path in CPUS.glob("cpu[0-9]*/topology/physical_package_id")}),
        iommu_table=(tables / "DMAR").exists() if tables.exists() else None,
        virtual=virtual,
    )


def _pairs(text: str) -> dict[str, str]:
    """Read lines of NAME=value, as systemd writes them."""
    return dict(line.partition("=")[::2] for line in text.splitlines())


def _units(module: AnsibleModule, *properties: str, of: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return properties of units by name; a pattern stands for the units that are loaded."""
    command = ["systemctl", "show", f"--property=Id,{','.join(properties)}", *of]
    shown = output(module, command, {"TZ": "UTC"}) or ""
    blocks = [_pairs(block) for block in shown.split("\n\n")]
    return {values["Id"]: values for values in blocks if "Id" in values}


def _age(shown: Mapping[str, str]) -> float | None:
    """Return the seconds that a unit has been active; None if it is not active."""
    # Microseconds since boot; 0 for never.
    entered = int(shown.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
    return (
        time.clock_gettime(time.CLOCK_MONOTONIC) - entered if shown.get("ActiveState") == "active" and entered else None
    )


def _clock_set(shown: Mapping[str, str]) -> float:
    """Return by how many seconds the wall clock was set forward since a unit became active; negative: backward.

    systemd records that moment by both clocks, by the wall clock in whole seconds.
    """
    age, text = _age(shown), shown.get("ActiveEnterTimestamp", "")
    if age is None or not text:
        return 0.0
    # Ansible parses dates in the node's locale, but systemd writes names of days in English.
    entered = calendar.timegm(time.strptime(text.partition(" ")[2], "%Y-%m-%d %H:%M:%S UTC"))
    by = time.time() - entered - age
    return by if abs(by) > _WHOLE_SECONDS else 0.0


def _limits_in(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the limits among a unit's properties, by the names that the role has for them."""
    return {_LIMITS[key]: value for key, value in pairs.items() if key in _LIMITS}


def _limits_of_units(module: AnsibleModule) -> tuple[dict[str, dict[str, str]], set[str]]:
    """Return the limits of each of our units, and which of these run.

    A running unit has the limits of its start, even if systemd would set others now.
    """
    units: dict[str, dict[str, str]] = {}
    running = set()
    for unit, values in _units(module, "MainPID", *_LIMITS, of=[_INSTANCES]).items():
        process = text_of(PROC / values["MainPID"] / "limits")
        units[unit] = state.process_limits(process) if process else _limits_in(values)
        if process:
            running.add(unit)
    return units, running


@contextlib.contextmanager
def boot_lock() -> Iterator[None]:
    """Hold the lock of what writes the boot menu. Raises Refusal where another process keeps it.

    No user of the node may open the file: whoever may read a file can lock it.
    """
    handle = os.open(BOOT_LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        take_turn(handle, BOOT_LOCK, BOOT_LOCK_SECONDS)
        yield
    finally:
        os.close(handle)


def run_boot_tool(module: AnsibleModule, command: list[str]) -> str | None:
    """Run a tool that writes the boot menu; return its message if it failed, else None.

    It writes LANG into the menu, and ssh would pass on the caller's: so it gets the system's.
    """
    lines = boot_loader.content(LOCALE).splitlines()
    language = next((line[5:].strip("\"'") for line in reversed(lines) if line.startswith("LANG=")), "")
    rc, out, err = module.run_command(command, environ_update={"LANG": language})
    if rc == 0:
        return None
    end = f"was killed by signal {-rc}" if rc < 0 else f"ended with status {rc}"
    said = printable((err or out).strip()[-2000:])
    return f"{' '.join(command)} {end}{': ' + said if said else '.'}"


def change_drop_in(
    module: AnsibleModule,
    update_grub: list[str],
    drop_in: Path,
    texts: tuple[str | None, str | None],
    mark: str,
    lacking: Callable[[], str],
) -> None:
    """Change a drop-in of GRUB and run update-grub; put everything back, and fail, if the menu is not as it is to be.

    texts: the drop-in's text before and after, None for no drop-in. mark: what stands in it until it is removed.
    lacking: returns what the new menu lacks, as a sentence, "" if nothing.
    """
    old, new = texts
    before = boot_loader.GRUB_CONFIG.read_bytes()
    if old != new:
        # The drop-in is removed after update-grub, so that an interrupted removal is completed by the next run.
        _put(module, drop_in, (new or f"{mark}\n").encode())
    failure = run_boot_tool(module, update_grub) or lacking()
    if failure:
        if old != new:
            _put(module, drop_in, None if old is None else old.encode())
        if not boot_loader.GRUB_CONFIG.exists() or boot_loader.GRUB_CONFIG.read_bytes() != before:
            _put(module, boot_loader.GRUB_CONFIG, before)
        # grub-mkconfig writes to this file, and leaves it behind if it fails.
        boot_loader.GRUB_CONFIG.with_name(f"{boot_loader.GRUB_CONFIG.name}.new").unlink(missing_ok=True)
        module.fail_json(msg=f"{failure} The previous configuration is back in place. Repair GRUB, then run again.")
    if new is None:
        _put(module, drop_in, None)


def _put(module: AnsibleModule, path: Path, text: bytes | None) -> None:
    """Write a file of root's in one rename; None removes it."""
    if text is None:
        path.unlink()
        return
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as file:
        file.write(text)
    Path(temporary).chmod(0o644)
    path.parent.mkdir(exist_ok=True)
    module.atomic_move(temporary, str(path))


def obstacle(path: Path) -> str | None:
    """Say why a file of ours cannot be written or removed here, or None when it can."""
    if path.is_dir():
        return f"{path} is a directory, where a file of this role is to be. Move it away, then run again."
    return unwritable(path)
