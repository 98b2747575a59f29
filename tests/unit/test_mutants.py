"""tests/mutants.py finds small changes of the product, and which of them tests notice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import mutants, mutations
from tests.mutants import Results, Suite, in_order, merged, users
from tests.naming import Names

SOURCE = b'''"""Cards."""

DOCUMENTATION = "page"
LIMIT: "int" = 3


def fits(cards: int, *, spare: bool = True) -> str:
    """Whether they fit."""
    if cards <= LIMIT and spare:
        raise ValueError(f"{cards} too many")
    return "-"
'''

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


def changes(source: bytes = SOURCE) -> list[tuple[str, int, str]]:
    return [(each.kind, each.line, each.change) for each in mutations.find("library/cards.py", source)]


def test_every_kind_of_change_is_found() -> None:
    assert changes() == [
        ("constant", 4, "3 → (4)"),
        ("constant", 7, "True → (False)"),
        ("condition", 9, "cards <= LIMIT and spare → not (cards <= LIMIT and spare)"),
        ("operator", 9, "cards <= LIMIT and spare → (cards <= LIMIT or spare)"),
        ("operator", 9, "cards <= LIMIT → (cards < LIMIT)"),
        ("statement", 10, 'raise ValueError(f"{cards} too many") → pass'),
        ("constant", 10, 'f"{cards} too many" → (f"{cards} too many" \'XX\')'),
        ("constant", 11, "\"-\" → ('-XX')"),
    ]


def test_a_change_is_made_at_its_bytes_alone() -> None:
    source = 'a = "é"; b = 1\n'.encode()
    last = mutations.find("a.py", source)[-1]
    assert last.applied(source).decode() == 'a = "é"; b = (2)\n'
    with pytest.raises(ValueError, match=r"a\.py:1 is not '1'"):
        last.applied(b"\n" * 20)


def test_a_draw_is_repeatable_and_has_every_kind() -> None:
    sources = {"a.py": SOURCE, "b.py": SOURCE}
    drawn = mutations.draw(sources, 1, 8)
    assert drawn == mutations.draw(sources, 1, 8)
    assert drawn != mutations.draw(sources, 2, 8)
    assert sorted(each.kind for each in drawn) == sorted([*mutations.KINDS] * 2)
    assert len({each.key for each in drawn}) == 8
    with pytest.raises(ValueError, match="There are no 20 changes"):
        mutations.draw(sources, 1, 20)


def test_a_change_in_form_alone_is_none() -> None:
    form = mutations.Mutant("a.py", "constant", 1, 1, (1, 1), 4, 5, "1", "(1)")
    assert not mutations.compiles(form, b"a = 1\n")


def test_a_constant_is_used_where_it_is_named() -> None:
    files = {
        "module_utils/gaudi/base/paths.py": b"ROOT = 1\nOTHER = 2\n",
        "library/a.py": b"from base import paths\n\n\ndef read():\n    return paths.ROOT\n",
        "library/b.py": b"ROOT = 3\n\n\ndef read():\n    return ROOT\n",
        "tests/unit/test_paths.py": b"from base.paths import ROOT\n",
        "tests/unit/test_other.py": b"from base.paths import OTHER\n",
    }
    names = Names(files.__getitem__, list(files)[:3], list(files)[3:])
    root = names.outermost("module_utils/gaudi/base/paths.py", 1)
    assert root.names == {"ROOT"}
    assert list(names.uses("module_utils/gaudi/base/paths.py", root)) == [("library/a.py", 5)]
    assert names.test_files("module_utils/gaudi/base/paths.py", root) == ["tests/unit/test_paths.py"]
    assert names.in_function("library/a.py", 5)
    assert not names.in_function("library/a.py", 4)


def test_what_runs_once_is_covered_by_all_who_use_it() -> None:
    using = {"cached a": ["t::one", "cached b"], "cached b": ["t::two", "cached a"]}
    assert users(["cached a"], using) == {"cached a", "cached b", "t::one", "t::two"}


def test_records_of_workers_are_joined() -> None:
    one: dict[str, Any] = {"users": {"file t": ["t::a"]}, "seconds": {"t::a": 1}, "failed": []}
    two: dict[str, Any] = {"users": {"file t": ["t::b"]}, "seconds": {"t::b": 2}, "failed": ["t::b"]}
    assert merged([one, two]) == {
        "users": {"file t": ["t::a", "t::b"]},
        "seconds": {"t::a": 1, "t::b": 2},
        "failed": ["t::b"],
    }


def test_tests_of_the_subject_run_first_then_the_quickest() -> None:
    tests = ["u/slow/test_a.py::x", "u/quick/test_a.py::x", "u/cards/test_a.py::b", "u/cards/test_a.py::a"]
    seconds = {tests[0]: 9.0, tests[1]: 1.0, tests[2]: 20.0}
    assert in_order(tests, "module_utils/gaudi/cards/text.py", seconds) == [tests[3], tests[2], tests[1], tests[0]]


def test_a_line_that_was_cut_off_is_no_result(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps({"suite": "s", "key": "k"}) + '\n{"suite": "s", "ke', encoding="utf-8")
    results = Results(path)
    results.add({"suite": "s", "key": "l"})
    assert set(Results(path).known) == {("s", "k"), ("s", "l")}


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
