"""SECURITY.md promises what a test holds, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("## What is promised")[2].partition("\n## ")[0]
ROWS = [line.strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith("| ")][2:]


def named_tests(cell: str) -> list[Path]:
    """Files that a cell names; a name without a folder lies beside the one before it."""
    found: list[Path] = []
    for name in re.findall(r"`((?:tests/|test_)[^`]+\.py)`", cell):
        found.append(ROOT / name if "/" in name else found[-1].parent / name)
    return found


def test_every_promise_has_a_test() -> None:
    assert len(ROWS) > 10
    for promise, held in ROWS:
        files = named_tests(held)
        assert files, promise
        assert [path for path in files if not path.is_file()] == [], promise


def test_what_it_names_is_there() -> None:
    for name in re.findall(r"`((?:playbooks|tests|docs|catalog|molecule)/[^`*{ ]+\.(?:py|yml|md))`", TEXT):
        assert (ROOT / name).is_file(), name
