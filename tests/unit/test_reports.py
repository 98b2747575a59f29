"""Each case of tests/reports is shown by a test, which names it: pytest -m report runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# Also as the mark of one parameter.
MARK = re.compile(r"\bmark\.report\((?P<ids>[^)]*)\)")


def test_each_case_is_named_by_a_test() -> None:
    cases = {case["id"] for file in (TESTS / "reports").glob("*.json") for case in json.loads(file.read_text())}
    marks = [mark["ids"] for file in TESTS.rglob("test_*.py") for mark in MARK.finditer(file.read_text())]
    assert {name for ids in marks for name in re.findall(r'"([\w-]+)"', ids)} == cases
