"""Output of programs in lines: what ends a line, and how much of an endless one is held."""

from __future__ import annotations

import os
import threading
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

import pytest
from ansible.module_utils.gaudi.node.long_work import LONGEST_LINE, lines_of


@contextmanager
def printed(parts: Iterable[bytes]) -> Iterator[IO[bytes]]:
    """What a program prints that writes these parts, one after the other."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as out:
            for part in parts:
                out.write(part)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reading, "rb", buffering=0) as stream:
        yield stream
    thread.join(300)


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"one\r\ntwo", ["one", "two"]),
        # Bars overwrite themselves.
        (b" 25%|#|\r 50%|##|\r\r\nend\n", [" 25%|#|", " 50%|##|", "", "end"]),
        (b"\xff\xc3\xa4\n", ["\ufffd\u00e4"]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_output_is_cut_into_lines_whatever_arrives_at_a_time(
    output: bytes, lines: list[str], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, _size: read(descriptor, size))
    with printed([output]) as stream:
        assert list(lines_of(stream)) == lines


def test_a_program_without_a_pipe_has_no_lines() -> None:
    assert list(lines_of(None)) == []


def test_of_a_long_line_the_beginning_is_kept_and_the_next_one_is_whole() -> None:
    with printed([b"x" * 50_000, b"y" * 50_000, b"\n", b"next\n"]) as stream:
        assert list(lines_of(stream, 10)) == ["x" * 10, "next"]


@pytest.mark.parametrize("mebibytes", [2, 16])
def test_an_endless_line_takes_no_more_memory_than_its_beginning(mebibytes: int) -> None:
    """Work for a part of it does not grow either: it depends on what is held and on the part."""
    with printed(b"x" * 65536 for _ in range(16 * mebibytes)) as stream:
        tracemalloc.start()
        try:
            (line,) = lines_of(stream)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(line) == LONGEST_LINE
    assert peak < 1 << 20
