"""Kernel settings that belong to this machine although a simulated node sets them.

A container has no kernel of its own: what the role host_tuning writes on a node, it writes here.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from simulator import host

SETTINGS = Path("/proc/sys")
RECORD = Path("/run/gaudi-simulator-kernel.json")
"""One for the machine and not for each checkout: what the second one finds, the first one's nodes may have set.

In /run, because a reboot undoes the settings and their record alike.
"""

_NAMES = ("vm.nr_hugepages", "kernel.numa_balancing")


def read() -> dict[str, str]:
    """Read the settings; a kernel without NUMA has no numa_balancing."""
    paths = {name: SETTINGS.joinpath(*name.split(".")) for name in _NAMES}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


def record() -> None:
    """Remember the values from before the machine's first simulated node, unless they are remembered already."""
    # Read first: two checkouts that begin together find the same, as neither has a node that could change it.
    found = read()
    if RECORD.exists():
        return
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(json.dumps(found) + "\n")
        file.flush()
        host.run(host.as_root(["install", "-m", "0644", file.name, str(RECORD)]))


def restore() -> list[str]:
    """Put back what was recorded; give a sentence for every setting that had changed.

    To be called when no checkout has a node left.
    """
    if not RECORD.exists():
        return []
    changed = differences(json.loads(RECORD.read_text()), read())
    for name, (_, before) in changed.items():
        host.run(host.as_root(["sysctl", "-q", "-w", f"{name}={before}"]))
    host.run(host.as_root(["rm", str(RECORD)]))
    return [f"Restored {name} of this machine: {now} -> {before}" for name, (now, before) in changed.items()]


def differences(before: dict[str, str], now: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Give, for every setting that is not as it was, its value now and the one before."""
    return {name: (now[name], value) for name, value in before.items() if name in now and now[name] != value}
