"""The list of faults: one wording for each, used by whoever finds it, caused by a test, shown on its page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest
import yaml
from ansible.module_utils.gaudi.faults import words
from ansible.module_utils.gaudi.faults.entry import PARTS, SEVERITIES, Known
from ansible.module_utils.gaudi.faults.known import FAULTS
from ansible.module_utils.gaudi.serving import kept

from tests.unit.faults import page

ROOT = page.ROOT
KNOWN = {fault.id for fault in FAULTS}
ROOMS = ("module_utils/gaudi", "library", "roles")
# Functions that are given an id and the values of its holes.
SAYING = ("say", "remedy", "known", "finding")
# Those that make an end of an instance.
ENDING = ("Reason", "configuration", "transient")


def holes(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def named(call: ast.Call) -> str:
    """The name of the function that is called."""
    return call.func.id if isinstance(call.func, ast.Name) else str(getattr(call.func, "attr", ""))


def calls(names: tuple[str, ...]) -> Iterator[tuple[str, ast.Call, str]]:
    """(place, call, id) of every call of one of some functions that has an id written out."""
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if names == ENDING or ".faults" in text else ():
            if isinstance(node, ast.Call) and named(node) in names and node.args:
                said = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
                # A sentence is no id: others have a say() for their log.
                if isinstance(said, str) and re.fullmatch(r"[a-z][a-z_-]+", said):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node, said


def test_each_fault_is_there_once_and_well_formed() -> None:
    assert len(KNOWN) == len(FAULTS)
    for fault in FAULTS:
        assert fault.part in PARTS
        assert fault.severity in SEVERITIES
        assert bool(fault.seen_by) or bool(fault.signs), f"{fault.id} is recognised by nothing"
        assert fault.sentence
        for said in (fault.sentence, fault.remedy, *fault.remedies.values()):
            assert said == said.strip()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_whoever_finds_it_takes_its_words_from_the_list(fault: Known) -> None:
    if fault.seen_by:
        assert f'"{fault.id}"' in (ROOT / fault.seen_by).read_text(encoding="utf-8")
    re.compile(fault.signs)


def test_the_code_names_only_faults_of_the_list_and_fills_all_their_holes() -> None:
    said = list(calls(SAYING))
    assert len(said) > 60
    for place, call, identifier in said:
        assert identifier in KNOWN, f"{place}: {identifier} is not in the list"
        # finding() has facts of its own for each card.
        if named(call) == "finding" or any(word.arg is None for word in call.keywords):
            continue
        fault = words.fault(identifier)
        # The case is the second argument; where it is worked out, any may be chosen.
        case = call.args[1] if len(call.args) > 1 else ast.Constant("")
        cases = [case.value] if isinstance(case, ast.Constant) else ["", *fault.remedies]
        texts = [fault.remedies[str(each)] if each else fault.remedy for each in cases]
        texts += [fault.sentence] if named(call) != "remedy" else []
        lacking = {hole for text in texts for hole in holes(text)} - {word.arg for word in call.keywords}
        assert lacking == set(), f"{place}: {identifier} lacks {lacking}"


def test_every_end_of_an_instance_is_in_the_list() -> None:
    kinds = {identifier: place for place, _call, identifier in calls(ENDING)}
    assert len(kinds) > 15
    assert {kind: place for kind, place in kinds.items() if kind not in KNOWN} == {}
    assert {*kept._OF_THE_NODE, *kept._PATIENCE_SPENT} <= KNOWN


def test_the_checks_of_the_catalogue_are_in_the_list_as_severe_as_there() -> None:
    severity = {"refuse": "error", "warn": "warning"}
    checks = yaml.safe_load((ROOT / "catalog/compatibility.yml").read_text(encoding="utf-8"))["checks"]
    assert {check["name"]: severity[check["level"]] for check in checks} == {
        fault.id: fault.severity for fault in FAULTS if fault.seen_by == "module_utils/gaudi/preflight/compatibility.py"
    }


def test_a_test_causes_every_fault() -> None:
    tests = [path for path in (ROOT / "tests/unit").rglob("test_*.py") if path.parent != Path(__file__).parent]
    texts = [path.read_text(encoding="utf-8") for path in tests]
    assert [fault.id for fault in FAULTS if not any(f'"{fault.id}"' in text for text in texts)] == []


def test_the_manuals_advice_is_in_the_list() -> None:
    """Manual v1.22, 3.4.4: fetch time-outs, and large pictures."""
    assert {fault.id for fault in FAULTS if "3.4.4" in fault.source} == {"media-fetch-timeout", "picture-too-large"}


def test_a_fault_is_said_with_its_remedy() -> None:
    assert words.say("crashed") == "The server crashed (SIGSEGV). Its last lines are in the journal."
    assert "Stop it (systemctl stop vllm-a), or give" in words.say("port-taken", "instance", other="a")
    # What fills a hole is not read again.
    assert words.say("probe", why="{x}") == "The supervisor has nothing to ask its server with: {x}."


def test_the_page_is_the_list() -> None:
    assert page.tables_in(page.DOCUMENT.read_text(encoding="utf-8")) == page.tables()
