"""Functions in processes of their own: what they return, what they raise, and what never ends."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.node.report.in_time import in_time


def test_all_run_at_once_and_return_what_they_read() -> None:
    """The first one ends only once the second one has written."""
    here, there = os.pipe()
    large = "x" * 1_000_000
    found = in_time({"first": lambda: os.read(here, 1).decode() + large, "second": lambda: os.write(there, b"y")}, 60)
    assert found == {"first": f"y{large}", "second": 1}


def test_what_a_function_raises_is_raised_here() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        in_time({"a": lambda: 1 // 0}, 60)
    with pytest.raises(RuntimeError, match="not JSON serializable"):
        in_time({"a": object}, 60)


def test_what_is_killed_is_left_out() -> None:
    assert in_time({"killed": lambda: os.kill(os.getpid(), signal.SIGKILL), "other": lambda: 1}, 60) == {"other": 1}


def test_what_takes_too_long_is_left_out() -> None:
    found = in_time({"slow": signal.pause, "quick": lambda: 1}, 2)
    assert found == {"quick": 1}
    assert os.waitpid(-1, 0)[1] == signal.SIGKILL


def test_a_function_that_raises_leaves_no_other_process() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        in_time({"hangs": signal.pause, "raises": lambda: 1 // 0}, 60)
    assert os.waitpid(-1, 0)[1] == signal.SIGKILL


def test_what_is_killed_while_it_answers_is_left_out() -> None:
    """The answer is larger than a pipe, whose reader kills its writer after the first block."""
    read, block = os.read, threading.Event()

    def kill_the_writer(descriptor: int, size: int) -> bytes:
        found = read(descriptor, size)
        if not block.is_set():
            block.set()
            (child,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            os.kill(int(child), signal.SIGKILL)
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "read", kill_the_writer)
        assert in_time({"killed": lambda: "x" * 1_000_000}, 60) == {}
