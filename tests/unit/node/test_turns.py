"""Waiting for a lock that another process has: not for ever, and with its name."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.node import reservations

from tests.unit.refused import refused

# Holds it much longer than anybody waits here, on a busy machine too, and ends by itself.
HOLD = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2); print('', flush=True); time.sleep(600)"


@contextlib.contextmanager
def held(lock: Path) -> Iterator[int]:
    """Another process has the lock; its number."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        yield holder.pid
        holder.kill()


def test_whoever_does_not_let_go_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "PATIENCE", 0.3, raising=False)
    lock = tmp_path / "cards.lock.guard"
    with (
        held(lock) as holder,
        refused("lock_held", lock, f"process {holder} ({sys.executable} -c import fcntl"),
        reservations.turn(tmp_path),
    ):
        pass


def test_a_lock_whose_holder_was_killed_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "PATIENCE", 0.3, raising=False)
    with held(tmp_path / "cards.lock.guard"):
        pass
    with reservations.turn(tmp_path), reservations.turn(tmp_path / "other"):
        assert (tmp_path / "cards.lock.guard").exists()
