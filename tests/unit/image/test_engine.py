"""What a long command of the engine prints, against a program in the place of its client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gaudi.node import inspection
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


# The sleep is a container that hangs; nothing waits for it but the limit of one second, which is what is tested.
@pytest.mark.parametrize(
    ("does", "how"),
    [("exec yes", "it printed more than 4 MiB"), ("echo waits; exec sleep 600", "it did not end within 1 seconds")],
)
def test_a_container_that_prints_or_runs_without_end_is_ended_and_removed(tmp_path: Path, does: str, how: str) -> None:
    client, log = tmp_path / "docker", tmp_path / "log"
    client.write_text(f'#!/bin/sh\necho "$1 $2 $3 $4" >> {log}\n[ "$1" = run ] || exit 0\n{does}\n')
    client.chmod(0o755)
    engine = EngineClient()
    engine.client = [str(client)]
    status, out, err = engine.run_once("an/image:1", seconds=1 if "sleep" in does else 60)
    assert status != 0
    assert err.splitlines()[-1] == how
    assert len(out) < inspection.PRINTED + (1 << 20)
    name = log.read_text().splitlines()[0].split()[3]
    end = f"rm --force --volumes {name}"
    assert log.read_text().splitlines() == [end, f"run --rm --name {name}", end]


def test_a_container_reads_what_it_is_given(tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text('#!/bin/sh\n[ "$1" = run ] || exit 0\ncat; echo beside >&2; exit 3\n')
    client.chmod(0o755)
    engine = EngineClient()
    engine.client = [str(client)]
    assert engine.run_once("an/image:1", given="question") == (3, "question", "beside\n")
