"""Kill the container engine of the node this runs on at random points of a fetch, and ask the instance each time.

    python3 - KEY FOLDER TOTAL SEED PHASE...

KEY is the fetch's job, FOLDER the model's folder, TOTAL its bytes. For each PHASE (before, arriving, there; in this
order) one part of the engine is killed where chance says. Prints one JSON document: what was killed, in which phase it
was seen then, and how the instance answered.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

UNITS = ("docker.service", "containerd.service")
PATIENCE = 300.0  # seconds until the fetch has come to the next point, or the engine is back


def shown(unit: str, name: str) -> str:
    """A property of a unit."""
    command = ["systemctl", "show", f"--property={name}", "--value", unit]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.005)  # files and systemd are asked, and neither tells


def arrived(folder: Path, total: int) -> int:
    """Bytes of the model that are there; all of them once the folder is published, which may be while this counts."""
    size = 0
    for place, _, names in os.walk(f"{folder}.partial"):
        for name in names if ".gaudi-serving" not in place else []:
            try:
                size += Path(place, name).stat().st_size
            except FileNotFoundError:
                continue  # a file that was renamed meanwhile counts the next time
    return total if folder.exists() else size


def past(folder: Path, total: int, point: int) -> Callable[[], bool]:
    """Ask whether so many bytes are there."""
    return lambda: arrived(folder, total) >= point


def seen(folder: Path, total: int) -> str:
    """The phase the fetch is in."""
    there = arrived(folder, total)
    return "before" if not there else "there" if there >= total else "arriving"


def kill(unit: str) -> None:
    """Kill a part of the engine, and wait until it is back by itself."""
    before = int(shown(unit, "MainPID"))
    os.kill(before, signal.SIGKILL)
    until(lambda: shown(unit, "MainPID") not in ("0", str(before)) and shown(unit, "ActiveState") == "active", unit)
    # So many kills in a minute are this test's doing; without this systemd would give the unit up.
    subprocess.run(["systemctl", "reset-failed", unit], check=True)


def healthy() -> int:
    """How the instance answers."""
    with urllib.request.urlopen("http://127.0.0.1:30001/health", timeout=30) as answer:
        return int(answer.status)


def main(arguments: list[str]) -> None:
    """Kill, look, report."""
    key, folder, total = arguments[0], Path(arguments[1]), int(arguments[2])
    draw = random.Random(int(arguments[3]))
    phases = arguments[4:]
    points = sorted(draw.randrange(1, total) for phase in phases if phase == "arriving")
    until(lambda: shown(f"gaudi-job@{key}.service", "ActiveState") == "active", "the fetch to begin")
    killed = []
    for phase in phases:
        if phase == "before":
            time.sleep(draw.uniform(0, 0.1))  # where in the phase is chance; the first byte comes soon after
        else:
            until(past(folder, total, total if phase == "there" else points.pop(0)), f"the phase {phase!r}")
        unit = draw.choice(UNITS)
        phase_seen = seen(folder, total)
        kill(unit)
        killed.append({"unit": unit, "phase": phase_seen, "health": healthy()})
    print(json.dumps(killed))


main(sys.argv[1:])
