#!/usr/bin/python3
"""Runs at boot: processors at full speed, and whether the kernel was started as serving needs it.

apply [--cpu] [--energy]
               sets governor and idle states, and the energy preference of processors without cpufreq. It keeps what was
               there in /run, and brings the node's state file, /var/lib/gaudi-serving/host_tuning.json, up to date with
               the kernel that runs now.
restore        puts all of that back, but for what somebody changed since.
allow          status 1, with the reason, where nothing may be served on the running kernel; every instance asks.
               Status 255, which has systemd call the instance failed, where the state file cannot say. What the kernel
               shows of the cards' IOMMU groups is left to the supervisor, which says why it does not start.
waits          says what waits for a reboot, and whether serving is refused until then; nothing when nothing waits.

Without the library gaudi beside this program, each of them says so and ends with status 255.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

try:
    from gaudi.base import paths
    from gaudi.base.cpulist import format_cpulist
    from gaudi.base.documents import Damaged
    from gaudi.host import energy, iommu
    from gaudi.host.document import damaged, parse, refresh, waits
    from gaudi.host.state import GOVERNOR, SHALLOW
    from gaudi.node import registers
    from gaudi.node.documents import make_room, read, read_json
    from gaudi.node.files import write_text
    from gaudi.node.iommu import read_command_line, read_groups
except ImportError as missing:
    print(
        f"Whether this kernel may serve is not known: {missing}, and {__file__} needs the library gaudi beside it. "
        "Run playbooks/tune_host.yml, which installs it.",
        file=sys.stderr,
    )
    sys.exit(255)

CPUS = Path("/sys/devices/system/cpu")
CPUINFO = Path("/proc/cpuinfo")
# A field of a register among the controls: cpu0/msr/0x774.
REGISTERS = {f"{control.register:#x}": control for control in energy.CONTROLS}
BEFORE = Path("/run/gaudi-serving/cpu_before.json")
STATE = Path(paths.HOST_TUNING)


class Failures:
    """Controls that cannot be read or set, with the processors concerned. An offline processor has none."""

    def __init__(self) -> None:
        """Begin without any."""
        self._processors: dict[str, list[int]] = {}

    def note(self, control: Path, error: OSError, what: str) -> None:
        """Keep one that failed."""
        said = f"{control.parent.name}/{control.name} cannot be {what} ({error.strerror})"
        self._processors.setdefault(said, []).append(processor(control))

    def read(self, control: Path) -> str | None:
        """Return what a control says; None, and kept, if it cannot be read."""
        try:
            register = register_of(control)
            if register is None:
                return control.read_text().strip()
            return str(register.field(registers.read_register(processor(control), register.register)))
        except OSError as error:
            self.note(control, error, "read")
            return None

    def write(self, control: Path, value: str) -> bool:
        """Set a control; False, and kept, if it cannot be set."""
        try:
            register = register_of(control)
            if register is None:
                control.write_text(value)
                return True
            number, name = processor(control), register.register
            whole = register.changed(registers.read_register(number, name), int(value))
            registers.write_register(number, name, whole)
        except OSError as error:
            self.note(control, error, "set")
            return False
        return True

    def lines(self) -> list[str]:
        """Return a sentence for each kind of failure."""
        return [f"CPU {format_cpulist(numbers)}: {said}" for said, numbers in sorted(self._processors.items())]


def processor(control: Path) -> int:
    """Return the number of the processor that a control belongs to."""
    return next(int(part[3:]) for part in control.parts if part[:3] == "cpu" and part[3:].isdigit())


def register_of(control: Path) -> energy.Control | None:
    """Return which field of a register a control is; None for a file of the kernel."""
    return REGISTERS[control.name] if control.parent.name == "msr" else None


def exists(cpus: Path, control: str) -> bool:
    """Tell whether the kernel still offers a control; a register is there while its processor is."""
    path = cpus / control
    return path.exists() if register_of(path) is None else online(path.parents[1])


def online(folder: Path) -> bool:
    """Tell whether a processor is there and online; one that cannot be switched off has no such file."""
    switch = folder / "online"
    return folder.exists() and not (switch.exists() and switch.read_text().strip() == "0")


def preferences(cpus: Path, wanted: Sequence[energy.Control]) -> list[str]:
    """Return the controls of the energy preference of processors without cpufreq, relative to ``cpus``."""
    folders = [path for path in sorted(cpus.glob("cpu[0-9]*")) if online(path) and not (path / "cpufreq").exists()]
    return [
        f"{path.name}/{each.file}"
        if each.file and (path / each.file).exists()
        else f"{path.name}/msr/{each.register:#x}"
        for path in folders
        for each in wanted
    ]


def changes(cpus: Path, failures: Failures) -> dict[str, str]:
    """Return the governors and idle states that are to change, relative to ``cpus``, and their new values."""
    found: dict[str, str] = {}
    for governor in sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")):
        offered = failures.read(governor.parent / "scaling_available_governors") or ""
        if GOVERNOR in offered.split() and failures.read(governor) not in (GOVERNOR, None):
            found[str(governor.relative_to(cpus))] = GOVERNOR
    for state in sorted(cpus.glob("cpu[0-9]*/cpuidle/state[0-9]*")):
        name = failures.read(state / "name")
        if name is not None and name not in SHALLOW and failures.read(state / "disable") == "0":
            found[str((state / "disable").relative_to(cpus))] = "1"
    return found


def saving(cpus: Path, failures: Failures, wanted: Sequence[energy.Control]) -> dict[str, str]:
    """Return the controls of the energy preference that are to change, as changes() does."""
    want = str(energy.PERFORMANCE)
    return {name: want for name in preferences(cpus, wanted) if failures.read(cpus / name) not in (want, None)}


def kept_values(before: Path) -> dict[str, str] | None:
    """Return the values of the controls before the first change; None, with a sentence, when they cannot be read."""
    try:
        return read_json(before, {str: str}) or {}
    except Damaged as damage:
        print(f"{damage}: what the processors had before is not known; a reboot brings it back.")
        return None


def keep(before: Path, kept: dict[str, str]) -> None:
    """Write the values of the controls before the first change."""
    before.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    make_room(before)
    write_text(before, json.dumps(kept, indent=1) + "\n", mode=0o644)


def apply(cpus: Path, before: Path, *, cpu: bool = True, wanted: Sequence[energy.Control] = ()) -> int:
    """Set the controls; keep the value each had the first time. Returns how many were set, and prints what failed.

    cpu: whether to set governor and idle states. wanted: the controls of the energy preference.
    """
    kept, failures = kept_values(before) or {}, Failures()
    todo = {**(changes(cpus, failures) if cpu else {}), **saving(cpus, failures, wanted)}
    for control in todo:
        value = failures.read(cpus / control)
        if value is not None:
            kept.setdefault(control, value)
    keep(before, kept)
    count = sum(failures.write(cpus / control, value) for control, value in todo.items())
    print("\n".join(failures.lines()), end="\n" if failures.lines() else "")
    return count


def set_by_us(control: str) -> str:
    """Return the value that apply() gives a control."""
    if control.endswith("scaling_governor"):
        return GOVERNOR
    return "1" if control.endswith("disable") else str(energy.PERFORMANCE)


def restore(cpus: Path, before: Path) -> tuple[int, list[str]]:
    """Put back what was kept, where the processor is still online and has what we set; print what failed.

    Returns how many were put back, and the controls that somebody changed since. The record of those that could not be
    read or set stays.
    """
    kept = kept_values(before)
    if kept is None:
        return 0, []
    failures = Failures()
    current = {control: failures.read(cpus / control) for control in kept if exists(cpus, control)}
    ours = [control for control, value in current.items() if value == set_by_us(control)]
    theirs = [control for control, value in current.items() if value not in (set_by_us(control), None)]
    restored = [control for control in ours if failures.write(cpus / control, kept[control])]
    left = {control: kept[control] for control in current if control not in (*theirs, *restored)}
    print("\n".join(failures.lines()), end="\n" if failures.lines() else "")
    if left:
        keep(before, left)
    else:
        before.unlink(missing_ok=True)
    return len(restored), theirs


def main() -> int:
    """Do what the unit asks for, and say it in one line of the journal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["apply", "restore", "allow", "waits"])
    parser.add_argument("--cpu", action="store_true", help="set governor and idle states")
    parser.add_argument("--energy", action="store_true", help="have processors without cpufreq prefer performance")
    chosen = parser.parse_args()
    if chosen.action == "restore":
        count, theirs = restore(CPUS, BEFORE)
        print(f"{count} controls of the processors put back")
        if theirs:
            print(f"Somebody changed these since, and they are left: {' '.join(theirs)}")
        return 0
    if chosen.cpu or chosen.energy:
        wanted = energy.controls(CPUINFO.read_text()) if chosen.energy else []
        print(f"{apply(CPUS, BEFORE, cpu=chosen.cpu, wanted=wanted)} controls of the processors set")
    try:
        document = read(STATE, parse)
    except Damaged as damage:
        print(damaged(str(STATE), damage.what), file=sys.stderr if chosen.action == "allow" else sys.stdout)
        return 255 if chosen.action == "allow" else 0
    if document is None:
        return 0
    words = read_command_line()
    translated = "" if chosen.action == "allow" else iommu.shown(iommu.translating(read_groups(), words))
    current = refresh(document, platform.release(), words, translated)
    if chosen.action == "waits":
        print("\n".join(waits(current)))
        return 0
    if chosen.action == "allow":
        if current["serving_refused"]:
            print(current["serving_refused"], file=sys.stderr)
        return int(current["serving_refused"] is not None)
    if current != document:
        write_text(STATE, json.dumps(current, indent=4, sort_keys=True) + "\n", mode=0o644)
    return 0


if __name__ == "__main__":
    sys.exit(main())
