"""Kernel settings that belong to this machine although a simulated node sets them.

A container has no kernel of its own: what the role host_tuning writes on a node, it writes here.
"""

from __future__ import annotations

import json
from pathlib import Path

from simulator import host
from simulator.settings import CACHE

_SETTINGS = ("vm.nr_hugepages", "kernel.numa_balancing")
_RECORD = CACHE / "kernel.json"


def read() -> dict[str, str]:
    """Read the settings; a kernel without NUMA has no numa_balancing."""
    paths = {name: Path("/proc/sys", *name.split(".")) for name in _SETTINGS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


def record() -> None:
    """Remember the values from before the first simulated node, unless they are remembered already."""
    with host.lock("kernel"):
        if not _RECORD.exists():
            _RECORD.write_text(json.dumps(read()) + "\n")


def restore() -> list[str]:
    """Put back what was recorded; give a sentence for every setting that had changed."""
    with host.lock("kernel"):
        if not _RECORD.exists():
            return []
        changed = differences(json.loads(_RECORD.read_text()), read())
        for name, (_, before) in changed.items():
            host.run(host.as_root(["sysctl", "-q", "-w", f"{name}={before}"]))
        _RECORD.unlink()
    return [f"Restored {name} of this machine: {now} -> {before}" for name, (now, before) in changed.items()]


def differences(before: dict[str, str], now: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Give, for every setting that is not as it was, its value now and the one before."""
    return {name: (now[name], value) for name, value in before.items() if name in now and now[name] != value}
