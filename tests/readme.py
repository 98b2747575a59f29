"""Run the commands of README.md in order, as a reader would, and then leave no trace.

Blocks marked ``sh`` are commands; everything else in the README is text or a transcript. What the machine looked like
before (containers, volumes, networks, processes of ours) is compared with what it looks like after ``make demo-clean``.
The demo runs in a scope named after this checkout, so that another checkout's demo can stay up on the same engine.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCOPE = f"readme-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]}"
# Who made a container, volume or network: simulator/settings.py.
CHECKOUT = "gaudi-serving.simulator.checkout"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text: str) -> str:
    """All command blocks as one script."""
    return "".join(BLOCK.findall(text))


def traces() -> dict[str, list[str]]:
    """What a demo could leave behind on the engine and among the processes; not what another checkout's demo has."""
    owner = f'\t{{{{.Label "{CHECKOUT}"}}}}'
    asked = {
        "containers": ["docker", "ps", "--all", "--format", "{{.Names}}" + owner],
        "volumes": ["docker", "volume", "ls", "--format", "{{.Name}}" + owner],
        "networks": ["docker", "network", "ls", "--format", "{{.Name}}" + owner],
    }
    found = {}
    for what, command in asked.items():
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows = [line.partition("\t") for line in done.stdout.splitlines()]
        found[what] = sorted(name for name, _, checkout in rows if checkout in ("", str(ROOT)))
    done = subprocess.run(["ps", "-wweo", "args"], check=True, capture_output=True, text=True)
    ours = [line for line in done.stdout.splitlines() if SCOPE in line or f"{ROOT}/" in line]
    found["processes"] = sorted(line for line in ours if "readme.py" not in line)
    return found


def main() -> int:
    """Do as the README says; 1 with what was left behind."""
    script = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    os.environ["GAUDI_SIMULATOR_SCOPE"] = SCOPE
    # A reader types the commands into a shell that no make has started.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        os.environ.pop(name, None)
    before = traces()
    print(script, flush=True)
    subprocess.run(["bash", "-euxo", "pipefail", "-c", script], cwd=ROOT, check=True)
    # The engine goes on when it was there before: another scope, or the machine's own.
    subprocess.run(["make", "demo-clean"], cwd=ROOT, check=True)
    try:
        after = traces()
    except subprocess.CalledProcessError:
        # No engine answers any more: it was the demo's own, and nothing of it can be left.
        return 0
    left = {
        what: sorted(set(after[what]) - set(before[what])) for what in before if set(after[what]) - set(before[what])
    }
    for what, names in left.items():
        print(f"make demo-clean left {what}: {', '.join(names)}", file=sys.stderr)
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
