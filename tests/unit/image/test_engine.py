"""What a long command of the engine prints, against a program in the place of its client."""

from __future__ import annotations

import sys

from gaudi_image.engine import EngineClient


def engine_that_runs(program: str) -> EngineClient:
    engine = EngineClient()
    engine.client = [sys.executable, "-c", program]
    return engine


def test_a_line_without_end_of_a_step_is_cut() -> None:
    heard: list[str] = []
    engine = engine_that_runs("print('a'); print('x' * (4 << 20)); print('https://me:pw@host'); raise SystemExit(3)")
    assert engine.follow(heard.append, {}) == 3
    assert [line[:19] for line in heard] == ["a", "x" * 19, "https://***@host"]
    assert len(heard[1]) < 1 << 16


def test_of_a_command_that_prints_much_the_last_lines_are_kept() -> None:
    status, lines = engine_that_runs("for number in range(1000): print(number)").run()
    assert (status, lines[-1]) == (0, "999")
    assert len(lines) < 1000
