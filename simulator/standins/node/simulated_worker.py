#!/usr/bin/python3
"""Outlive a container as a worker of its server: ``simulated_worker.py GROUP INDEX...`` holds cards until it is killed.

Recorded by an owner of eight Gaudi 2: killed servers left VLLM::Worker_TP processes with 82 GB of each card.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
DEV = Path("/dev/accel")
# The kernel keeps 15 characters of VLLM::Worker_TP0.
NAME = "VLLM::Worker_TP"


def main() -> None:
    """Enter the container's control group, take the cards as the server had them, and hear no signal but SIGKILL."""
    group = GROUPS / sys.argv[1]
    group.mkdir(parents=True, exist_ok=True)
    (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    Path("/proc/self/comm").write_text(NAME, encoding="ascii")
    devices = [os.open(DEV / f"accel{index}", os.O_RDWR) for index in sys.argv[2:]]
    for device in devices:
        fcntl.flock(device, fcntl.LOCK_EX)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
