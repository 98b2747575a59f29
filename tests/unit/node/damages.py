"""What may have happened to a JSON document of a node since it was written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_text(""),
    "zeros": lambda path: path.write_bytes(bytes(100)),
    "cut off": lambda path: path.write_text('{"schema": 1, "pha'),
    "other bytes": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "a number": lambda path: path.write_text("7"),
    "a list": lambda path: path.write_text("[[1]]"),
    "null": lambda path: path.write_text("null"),
    "other keys": lambda path: path.write_text('{"schema": 1, "other": {}}'),
    "other types": lambda path: path.write_text(
        '{"schema": [], "phase": 7, "state": [], "digest": {}, "reservations": 3, "images": 1, "plan": []}'
    ),
    "an older schema": lambda path: path.write_text('{"schema": 0}'),
    "nested": lambda path: path.write_text("[" * 100_000),
    "a directory": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a dangling link": lambda path: path.symlink_to("nowhere"),
}

# Each way in which a document can be no document. What is wrong within the text, test_documents.py has in this process.
KINDS = ("cut off", "null", "other types", "a directory", "a pipe", "a dangling link")
# For tests that start a program with each; make test-all takes all of them.
FOR_PROGRAMS = tuple(DAMAGES) if os.environ.get("GAUDI_DAMAGES") == "every" else KINDS


def damage(path: Path, kind: str) -> None:
    """Leave a damage where a file was."""
    path.unlink(missing_ok=True)
    DAMAGES[kind](path)
