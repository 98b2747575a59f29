"""tests/mutants.py finds small changes of the product, and which of them tests notice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import mutations
from tests.mutants import Results, in_order, merged, users
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
