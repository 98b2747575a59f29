from __future__ import annotations

import os

import pytest

from simulator import engine

# proc(5): a program may call itself anything, brackets and spaces included.
STAT = "4242 (a) b (c) S 1 4242 4242 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 15 0 105340 1 2 18446744073709551615"


def test_the_start_is_field_22_whatever_the_program_calls_itself() -> None:
    assert engine.start_ticks(STAT) == 105340


def test_a_process_is_more_than_its_pid() -> None:
    me = engine.identify(os.getpid())
    assert me is not None
    assert me == engine.identify(os.getpid())
    parent = engine.identify(os.getppid())
    assert parent != me


def test_a_process_that_is_gone_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert engine.identify(child) is None
