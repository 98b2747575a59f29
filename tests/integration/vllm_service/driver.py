"""Run the real supervisor against a node that is a directory: paths, clock and control groups of a test, nothing else.

The process that plays the container is in the container's group, every other one in somebody's session.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NODE = Path(os.environ["FAKE_NODE"])
# A test may install programs and library as the role does.
sys.path[:0] = [str(NODE / "programs"), str(ROOT / "roles/vllm_service/files"), str(ROOT / "module_utils"), str(ROOT)]

from gaudi.node import listening, open_cards, reservations  # noqa: E402
from gaudi_supervisor import clock, command_line, endpoint, settings  # noqa: E402 - found on the path just made

from tests.integration.vllm_service import record  # noqa: E402

clock.POLL_STARTING = 0.05
clock.POLL_SERVING = float(os.environ.get("FAKE_POLL_SERVING", "0.1"))
clock.CLEAR_OF_LIMIT = 0.5
clock.KEPT_FOR_LONG = 0.5
clock.MEMORY_FREE = float(os.environ.get("FAKE_MEMORY_FREE", "60"))
clock.STABLE_SECONDS = float(os.environ.get("FAKE_STABLE", "600"))
endpoint.HTTP_TIMEOUT = float(os.environ.get("FAKE_HTTP_TIMEOUT", "5"))  # type: ignore[attr-defined]
reservations.PATIENCE = 0.3


class ShiftedClock(datetime):
    """The wall clock, which a test may set forward and back while a supervisor runs: by so many days."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        """Now, as far as this node knows."""
        days = NODE / "days"
        return datetime.now(tz) + timedelta(days=int(days.read_text()) if days.exists() else 0)


clock.datetime = ShiftedClock  # type: ignore[attr-defined]


def cgroup_of(pid: int) -> str:
    """What /proc/PID/cgroup would have."""
    container = record.read(NODE)
    own = container is not None and container.pid == pid
    return f"0::/system.slice/docker-{record.ID}.scope\n" if own else "0::/user.slice/session-1.scope\n"


listening.cgroup_of = cgroup_of


def index_of(path: str) -> int | None:
    """The card whose device a file is. No test may make devices: /dev/null stands for accel5, which has module 0."""
    return 5 if path == "/dev/null" else None


open_cards.device_index = index_of  # type: ignore[attr-defined]
folders = ("etc", "state", "programs", "proc", "units", "sys", "dev")
paths = settings.Paths(*(NODE / folder for folder in folders))
sys.exit(command_line.main(sys.argv[1:], paths))
