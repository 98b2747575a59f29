"""SECURITY.md promises what a test holds, and each of these tests can fail."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from tests import breaks
from tests.unit.sources import nodes, tree

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("## What is promised")[2].partition("\n## ")[0]
ROWS = [line.strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith("| ")][2:]
NAME = re.compile(r"\*\*([^*]+?)\.?\*\*")
BREAKS = breaks.load(breaks.LIST.read_text(encoding="utf-8"))


def named_tests(cell: str) -> list[str]:
    """Tests that a cell names, as FILE or FILE::TEST; a file without a folder lies beside the one before it."""
    found: list[str] = []
    for name in re.findall(r"`((?:tests/|test_)[^`]+\.py(?:::\w+)?)`", cell):
        found.append(name if "/" in name else f"{found[-1].rpartition('/')[0]}/{name}")
    return found


def promises() -> dict[str, list[str]]:
    """The tests of each promise, by the words in bold that it begins with. Rows with the same words are one promise."""
    found: dict[str, list[str]] = {}
    for promise, cell in ROWS:
        match = NAME.match(promise)
        assert match, promise
        found.setdefault(match[1], []).extend(named_tests(cell))
    return found


@functools.cache
def functions(file: str) -> frozenset[str]:
    """The names of a test file's functions and classes."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return frozenset(node.name for node in nodes(tree(ROOT / file)) if isinstance(node, kinds))


def exists(test: str) -> bool:
    """Whether a file, and the test that is named of it, is there."""
    file, *names = test.split("::")
    return (ROOT / file).is_file() and functions(file).issuperset(names)


PROMISES = promises()


def test_every_promise_has_a_test() -> None:
    assert len(PROMISES) > 10
    for promise, named in PROMISES.items():
        assert named, promise
        assert [test for test in named if not exists(test)] == [], promise


def test_every_promise_has_a_break() -> None:
    """Of one without, add a break to tests/breaks.yml, and run python -m tests.breaks."""
    unbroken = sorted(PROMISES.keys() - {each.promise for each in BREAKS})
    assert not unbroken


def faults_of(each: breaks.Break) -> Iterator[str]:
    content = (ROOT / each.file).read_text(encoding="utf-8")
    if content == each.broken(content):
        yield f"{each.file} stays as it is"
    if not exists(each.test):
        yield f"{each.test} is not there"
    # The row names the test, or the whole file.
    if not {each.test, each.test.partition("::")[0]} & set(PROMISES.get(each.promise, ())):
        yield f"SECURITY.md does not name {each.test} for {each.promise}"


def test_a_break_breaks_one_place_and_names_a_test_of_its_promise() -> None:
    assert len(BREAKS) > 100
    assert not [f"{each.title}: {fault}" for each in BREAKS for fault in faults_of(each)]


def test_no_break_is_listed_twice() -> None:
    for key in ("title", "file before test"):
        assert len({tuple(getattr(each, name) for name in key.split()) for each in BREAKS}) == len(BREAKS)


def test_what_it_names_is_there() -> None:
    for name in re.findall(r"`((?:playbooks|tests|docs|catalog|molecule)/[^`*{ ]+\.(?:py|yml|md))`", TEXT):
        assert (ROOT / name).is_file(), name
