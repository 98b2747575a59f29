#!/usr/bin/python3
"""Runs at boot: processors at full speed, and whether the kernel was started as serving needs it.

apply [--cpu]  sets governor and idle states, keeping what was there in /run, and brings the node's state file,
               /var/lib/gaudi-serving/host_tuning.json, up to date with the kernel that runs now.
restore        puts governor and idle states back, but for those that somebody changed since.
allow          status 1, with the reason, where nothing may be served on the running kernel; every instance asks.
               Status 255, which has systemd call the instance failed, where the state file cannot say.
waits          says what waits for a reboot, and whether serving is refused until then; nothing when nothing waits.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
from itertools import takewhile
from pathlib import Path
from typing import Any

CPUS = Path("/sys/devices/system/cpu")
BEFORE = Path("/run/gaudi-serving/cpu_before.json")
STATE = Path("/var/lib/gaudi-serving/host_tuning.json")
SCHEMA = 2
GOVERNOR = "performance"
# Idle states that stay on: busy waiting, C1 as intel_idle and acpi_idle name it, and a guest's halt.
SHALLOW = ("POLL", "C1", "C1_ACPI", "haltpoll")


def changes(cpus: Path) -> dict[str, str]:
    """Return the controls that are to change, relative to `cpus`, and their new values."""
    found: dict[str, str] = {}
    for governor in sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")):
        offered = (governor.parent / "scaling_available_governors").read_text().split()
        if GOVERNOR in offered and governor.read_text().strip() != GOVERNOR:
            found[str(governor.relative_to(cpus))] = GOVERNOR
    for state in sorted(cpus.glob("cpu[0-9]*/cpuidle/state[0-9]*")):
        disable = state / "disable"
        if (state / "name").read_text().strip() not in SHALLOW and disable.read_text().strip() == "0":
            found[str(disable.relative_to(cpus))] = "1"
    return found


def write(path: Path, text: str) -> None:
    """Replace a file in one step: whoever reads it sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).chmod(0o644)
    Path(temporary).rename(path)


def kept_values(before: Path) -> dict[str, str] | None:
    """Return what the controls were before the first change; None, with a sentence, when that cannot be read."""
    try:
        kept = json.loads(before.read_text()) if before.exists() else {}
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        print(f"{before} cannot be read: what the processors had before is not known; a reboot brings it back.")
        return None
    return kept


def apply(cpus: Path, before: Path) -> int:
    """Set the controls; keep the value each had the first time. Returns how many were set."""
    kept = kept_values(before) or {}
    todo = changes(cpus)
    for control in todo:
        kept.setdefault(control, (cpus / control).read_text().strip())
    write(before, json.dumps(kept, indent=1) + "\n")
    for control, value in todo.items():
        (cpus / control).write_text(value)
    return len(todo)


def restore(cpus: Path, before: Path) -> tuple[int, list[str]]:
    """Put back what was kept, where the processor is still online and has what we set.

    Returns how many were put back, and the controls that somebody changed since.
    """
    kept = kept_values(before)
    if not kept:
        return 0, []
    there = {control: value for control, value in kept.items() if (cpus / control).exists()}
    theirs = [
        control
        for control in there
        if (cpus / control).read_text().strip() != (GOVERNOR if control.endswith("scaling_governor") else "1")
    ]
    for control, value in there.items():
        if control not in theirs:
            (cpus / control).write_text(value)
    before.unlink()
    return len(there) - len(theirs), theirs


def load(path: Path) -> dict[str, Any]:
    """Return the state document. Raises ValueError, with what to do, when it is not one that the role wrote."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(damaged(path, str(error))) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(damaged(path, f"it is no document of schema {SCHEMA}"))
    return document


def damaged(path: Path, why: str) -> str:
    """Say that the state cannot be read, and what to do."""
    return (
        f"Whether this kernel may serve is not known: {path} cannot be read ({why}). "
        "Run playbooks/tune_host.yml, which writes it anew."
    )


def refresh(document: dict[str, Any], kernel: str, command_line: list[str]) -> dict[str, Any]:
    """Return the state document as it is for the kernel that runs now.

    The same rule as module_utils/gaudi/host/state.py, which this program cannot import; a test holds them together.
    """
    arguments = [
        # An argument in effect no longer waits for a reboot. If a later boot lacks it, one more reboot does not help.
        {**need, "waits": need["waits"] and not holds(need["argument"], command_line)}
        for need in document["kernel_arguments"]
    ]
    lacking = [need for need in arguments if not holds(need["argument"], command_line)]
    wrong = [
        need
        for need in lacking
        if need["purpose"] == "correctness"
        and (
            not need["kernels"]
            or any(re.match(re.escape(version) + "(?![0-9])", kernel) for version in need["kernels"])
        )
    ]
    refused = None
    if wrong:
        refused = (
            f"The running kernel {kernel} was started without {' '.join(need['argument'] for need in wrong)}: "
            f"{wrong[0]['because']}. "
        ) + remedy([need["cause"] for need in wrong if not need["waits"]])
    return {
        **document,
        "kernel_arguments": arguments,
        "serving_refused": refused,
        "reboot_needed": reasons(
            [need for need in lacking if need["waits"]]
            + [need for need in document["leaving"] if holds(need["argument"], command_line)]
        ),
    }


def reasons(needs: list[dict[str, Any]]) -> list[str]:
    """Say what a reboot brings into effect, and why it matters."""
    found: dict[str, list[str]] = {}
    for need in needs:
        found.setdefault(f"{need['purpose']}: {need['because']}", []).append(need["argument"])
    return [f"{' '.join(arguments)} ({reason})" for reason, arguments in found.items()]


def remedy(causes: list[str]) -> str:
    """Say what to do about arguments the running kernel lacks. `causes`: of those that a reboot does not bring."""
    if not causes:
        return "Reboot this node (playbooks/tune_host.yml with host_tuning_reboot=if_needed does it), then serve."
    known = " ".join(dict.fromkeys(cause for cause in causes if cause))
    return (
        known or "A reboot does not bring it; playbooks/verify_host.yml names the file and line that says otherwise."
    ) + " Then run playbooks/tune_host.yml with host_tuning_reboot=if_needed."


def waits(document: dict[str, Any]) -> list[str]:
    """Return what the state document says for people, in sentences."""
    refused = document["serving_refused"]
    sentences = [f"Reboot needed, because of {reason}" for reason in document["reboot_needed"]]
    return [*sentences, f"Serving is refused. {refused}"] if refused else sentences


def holds(argument: str, command_line: list[str]) -> bool:
    """Tell whether the last argument of this name is this one; the kernel reads "-" and "_" as the same letter.

    Words behind "--" go to init, no later word takes back that the IOMMU is off, and a later iommu.passthrough=0 takes
    back iommu=pt.
    """

    def name(word: str) -> str:
        return word.partition("=")[0].replace("-", "_")

    def switches_off(word: str) -> bool:
        parts = word.partition("=")[2].split(",")
        return name(word) in ("iommu", "intel_iommu") and any(part.startswith("off") for part in parts)

    def subject(word: str) -> str:
        value = word.partition("=")[2].lower()
        off = value[:1] in ("0", "n") or value == "off"
        return "iommu" if name(word) == "iommu.passthrough" and off else name(word)

    given = [word for word in takewhile(lambda word: word != "--", command_line) if subject(word) == subject(argument)]
    return next((word for word in given if switches_off(word)), given[-1] if given else None) == argument


def main() -> int:
    """Do what the unit asks for, and say it in one line of the journal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["apply", "restore", "allow", "waits"])
    parser.add_argument("--cpu", action="store_true", help="set governor and idle states")
    chosen = parser.parse_args()
    if chosen.action == "restore":
        count, theirs = restore(CPUS, BEFORE)
        print(f"{count} controls of the processors put back")
        if theirs:
            print(f"Somebody changed these since, and they are left: {' '.join(theirs)}")
        return 0
    if chosen.cpu:
        print(f"{apply(CPUS, BEFORE)} controls of the processors set")
    if not STATE.exists():
        return 0
    try:
        document = load(STATE)
    except ValueError as error:
        print(error, file=sys.stderr if chosen.action == "allow" else sys.stdout)
        return 255 if chosen.action == "allow" else 0
    current = refresh(document, platform.release(), Path("/proc/cmdline").read_text().split())
    if chosen.action == "waits":
        print("\n".join(waits(current)))
        return 0
    if chosen.action == "allow":
        if current["serving_refused"]:
            print(current["serving_refused"], file=sys.stderr)
        return int(current["serving_refused"] is not None)
    if current != document:
        write(STATE, json.dumps(current, indent=4, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
