"""Functions in processes of their own: what they return, what they raise, and what never ends."""

from __future__ import annotations

import os
import signal

import pytest
from ansible.module_utils.gaudi.node.in_time import in_time


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
