"""tests/mutants.py in a checkout with one file of the product."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import mutants, mutations
from tests.mutants import Results, Suite

# A checkout with one file of the product, each of whose functions a test calls or does not.
PRODUCT = '''"""Sums."""

import functools

FIRST = 1


def total(count):
    """Add up."""
    found = 0
    while count > 0:
        found += count
        count -= 1
    return found


def unused(count):
    """Nobody calls this."""
    return count + 1


def careless(count):
    """A test calls this and does not look."""
    return count * 2


@functools.cache
def kept():
    """The first test computes this for all."""
    return FIRST + 1
'''
TESTS = """
import subprocess
import sys

from plugin_utils import sums


def test_total():
    assert sums.total(3) == 6


def test_careless():
    sums.careless(1)


def test_kept_is_computed():
    assert sums.kept()


def test_kept_is_right():
    assert sums.kept() == 2


def test_a_program():
    program = "from plugin_utils import sums; print(sums.total(1))"
    assert subprocess.run([sys.executable, "-c", program], env={}, stdout=subprocess.PIPE).stdout == b"1\\n"


def test_fails():
    assert sums.careless(1) == 3
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name, text in {
        "plugin_utils/sums.py": PRODUCT,
        "tests/unit/test_sums.py": TESTS,
        "conftest.py": "",
        ".gitignore": ".hypothesis/\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    git = ["git", "-C", str(folder), "-c", "user.name=Maker", "-c", "user.email=maker@example.com"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "Add sums"]):
        subprocess.run([*git, *words], check=True)
    return folder


def test_the_outcomes_of_a_suite(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "TEST_SECONDS", 3)
    suite = Suite.of(checkout, [])
    source = {"plugin_utils/sums.py": PRODUCT.encode()}
    assert mutants.equal_sources(suite, suite) == source
    mutants.collect(suite, 1)
    results = Results(tmp_path / "results.jsonl")
    wanted = {
        "count -= 1 → pass": ("timeout", "test_total", 2),
        "count + 1 → (count - 1)": ("not covered", "", 0),
        "count * 2 → (count // 2)": ("survived", "", 1),
        # The function itself is computed by the first of two tests.
        "FIRST + 1 → (FIRST - 1)": ("killed", "test_kept_is_computed", 2),
    }
    found = mutations.find("plugin_utils/sums.py", source["plugin_utils/sums.py"])
    chosen = [next(each for each in found if each.change == change) for change in wanted]

    mutants.run(suite, chosen, 1, results)

    rows = [results.known[(suite.folder.name, each.key)] for each in chosen]
    assert {
        row["before"] + " → " + row["after"]: (row["outcome"], row["by"].rpartition("::")[2], row["tests"])
        for row in rows
    } == wanted
    assert not mutants.git(checkout, "status", "--porcelain")
    record = json.loads((suite.folder / "record.json").read_text(encoding="utf-8"))
    assert record["branches"] == [2, 2]
    assert record["failed"] == ["tests/unit/test_sums.py::test_fails"]
    printed = "\n".join(mutants.table(chosen, [suite, suite], results))
    assert "| killed | 2 | 2 |\n| of these by a timeout | 1 | 1 |\n" in printed
    assert "| plugin_utils/sums.py:24 | count * 2 → (count // 2) | survived | survived |" in printed
    # What is known is not tried again.
    capsys.readouterr()
    mutants.run(suite, chosen, 1, results)
    assert not capsys.readouterr().out


def test_changes_that_are_not_committed_are_refused(checkout: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    subprocess.run(["git", "clone", "--quiet", str(checkout), str(copied)], check=True)
    (copied / "more").touch()
    command = [sys.executable, "-m", "tests.mutants", "--collect", "--before", str(copied), "--after", str(copied)]
    done = subprocess.run(command, cwd=mutants.ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "not committed" in done.stderr
