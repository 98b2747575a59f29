#!/usr/bin/python3
"""Hold a described card, under the described name, until stopped: ``simulated_user.py N`` is the Nth busy entry."""

from __future__ import annotations

import fcntl
import json
import signal
import sys
from pathlib import Path

NODE_DOCUMENT = Path("/etc/gaudi-simulator/node.json")


def main() -> int:
    """Take the card as a server would, and wait for a signal."""
    entry = json.loads(NODE_DOCUMENT.read_text(encoding="utf-8"))["busy"][int(sys.argv[1])]
    # The kernel's own name for this process, which hl-smi, ps and lsof show.
    Path("/proc/self/comm").write_text(entry["name"], encoding="ascii")
    with Path(f"/dev/accel/accel{entry['index']}").open("rb+", buffering=0) as device:
        fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main())
