"""The one container of a node, which the scripted docker and the tests change; bin/docker reads it line by line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

ID = "c0" * 32


class EngineRecord(NamedTuple):
    """What the scripted docker knows of its container. pid: the process that plays it."""

    name: str
    pid: int
    labels: dict[str, str]
    started: str = "2026-01-01T00:00:00Z"


def path(node: Path) -> Path:
    """The file of the record, which is there while the container is."""
    return node / "container.record"


def read(node: Path) -> EngineRecord | None:
    """Read the record; None where there is no container."""
    try:
        _, name, pid, started, labels = path(node).read_text().splitlines()
    except FileNotFoundError:
        return None
    return EngineRecord(name, int(pid), json.loads(labels), started)


def write(node: Path, record: EngineRecord) -> None:
    """Write the record."""
    lines = (ID, record.name, record.pid, record.started, json.dumps(record.labels))
    replace(path(node), "".join(f"{line}\n" for line in lines))


def replace(file: Path, text: str) -> None:
    """Write a file whole: others read it at any time."""
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(file)
