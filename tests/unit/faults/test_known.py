"""The list of faults: one wording for each, used by whoever finds it, caused by a test, shown on its page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from string import Formatter

import pytest
import yaml
from ansible.module_utils.gaudi.faults import words
from ansible.module_utils.gaudi.faults.entry import PARTS, SEVERITIES
from ansible.module_utils.gaudi.faults.known import FAULTS
from ansible.module_utils.gaudi.serving.failure import Reason, is_over

from tests.unit.faults import page
from tests.unit.sources import nodes, tree

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
        for node in nodes(tree(path)) if names == ENDING or ".faults" in path.read_text(encoding="utf-8") else ():
            if isinstance(node, ast.Call) and named(node) in names and node.args:
                said = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
                # A sentence is no id: others have a say() for their log.
                if isinstance(said, str) and re.fullmatch(r"[a-z][a-z_-]+", said):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node, said


def test_each_fault_is_there_once_and_well_formed() -> None:
    assert len(KNOWN) == len(FAULTS)
    for fault in FAULTS:
        assert re.fullmatch("[a-z][a-z0-9-]*", fault.id)
        assert fault.part in PARTS
        assert fault.severity in SEVERITIES
        assert fault.seen_by or fault.signs or fault.hints, f"{fault.id} is recognised by nothing"
        assert fault.sentence
        for said in (fault.sentence, fault.remedy, *fault.remedies.values()):
            assert said == said.strip()


def test_whoever_finds_it_takes_its_words_from_the_list() -> None:
    for fault in FAULTS:
        re.compile(fault.signs)
    assert not [
        f"{fault.seen_by} does not name {fault.id}"
        for fault in FAULTS
        if fault.seen_by and f'"{fault.id}"' not in (ROOT / fault.seen_by).read_text(encoding="utf-8")
    ]


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


def test_faults_of_the_node_are_no_reason_to_give_a_plan_up_and_two_of_the_server_are_at_once() -> None:
    def given_up(kind: str, *, retry: bool, tries: int) -> bool:
        return is_over(Reason(kind, "", retry), tries, 2)

    assert {kind for kind in KNOWN if not given_up(kind, retry=False, tries=9)} == {
        *("engine-unreachable", "engine-missing", "engine-restarted", "runtime-missing", "cards-not-offered"),
        *("probe", "keys", "guard-missing", "container-name-taken", "container-killed", "port-blocked"),
        *("iommu-translates", "card-memory-held", "card-not-acquired", "verbs-not-passed"),
    }
    assert {kind for kind in KNOWN if given_up(kind, retry=True, tries=1)} == {"stalled", "start-timeout"}


def test_the_checks_of_the_catalogue_are_in_the_list_as_severe_as_there() -> None:
    severity = {"refuse": "error", "warn": "warning"}
    checks = yaml.safe_load((ROOT / "catalog/compatibility.yml").read_text(encoding="utf-8"))["checks"]
    assert {check["name"]: severity[check["level"]] for check in checks} == {
        fault.id: fault.severity for fault in FAULTS if fault.seen_by == "module_utils/gaudi/preflight/compatibility.py"
    }


def strings(node: ast.AST, constants: dict[str, ast.expr]) -> set[str]:
    """The texts in a part of a test, and in the module's constants that it names; not what it says is not so."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.NotEq, ast.NotIn, ast.IsNot)):
        return set()
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return set()
    if isinstance(node, ast.Name) and node.id in constants:
        return strings(constants[node.id], {name: at for name, at in constants.items() if name != node.id})
    return {text for part in ast.iter_child_nodes(node) for text in strings(part, constants)}


def asserted(text: str, wanted: Iterable[str]) -> dict[str, set[str]]:
    """By the tests of a file: the texts in what they assert, and in the cases of a parameter that they assert.

    A file without any of the wanted texts is not read.
    """
    if not any(each in text for each in wanted):
        return {}
    tree = ast.parse(text)
    constants: dict[str, ast.expr] = {}
    for part in tree.body:
        if isinstance(part, ast.Assign):
            constants |= {target.id: part.value for target in part.targets if isinstance(target, ast.Name)}
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is not None:
            constants[part.target.id] = part.value
    found: dict[str, set[str]] = {}
    for test in ast.walk(tree):
        if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
            continue
        claims = [part.test for part in ast.walk(test) if isinstance(part, ast.Assert)]
        named_there = {part.id for claim in claims for part in ast.walk(claim) if isinstance(part, ast.Name)}
        for mark in test.decorator_list:
            if isinstance(mark, ast.Call) and named(mark) == "parametrize":
                names = {name.strip() for names in strings(mark.args[0], {}) for name in names.split(",")}
                claims += [mark.args[1]] if names & named_there else []
        found[test.name] = {said for claim in claims for said in strings(claim, constants)}
    return found


def test_a_test_causes_every_fault() -> None:
    """And asserts its id: a test that only mentions it, or says that it is not found, causes nothing."""
    wanted, caused = set(KNOWN), set[str]()
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path.parent != Path(__file__).parent:
            caused = caused.union(*asserted(path.read_text("utf-8"), wanted - caused).values())
    uncaused = sorted(wanted - caused)
    assert not uncaused


@pytest.mark.parametrize(
    ("test", "counts"),
    [
        ('def test_it():\n    assert found().id == "a-fault"', True),
        ('IDS = ["a-fault"]\ndef test_it():\n    assert found() == IDS', True),
        ('@pytest.mark.parametrize("kind", ["a-fault"])\ndef test_it(kind):\n    assert found() == kind', True),
        ('@pytest.mark.parametrize("kind", ["a-fault"])\ndef test_it(kind):\n    assert found()', False),
        ('def test_it():\n    # "a-fault"\n    assert found()', False),
        ('def test_it():\n    say("a-fault")', False),
        ('def test_it():\n    assert found() != "a-fault"', False),
        ('def test_it():\n    assert "a-fault" not in found()', False),
        ('def test_it():\n    assert not found("a-fault")', False),
        ('def helper():\n    assert found() == "a-fault"', False),
    ],
)
def test_a_fault_counts_as_caused_where_its_id_is_asserted(test: str, counts: bool) -> None:
    assert any("a-fault" in said for said in asserted(test, ["a-fault"]).values()) is counts


def test_no_two_ids_are_the_same_words() -> None:
    """Nobody could tell a lost_card from a card-lost, nor which of them a program is to look for."""
    words_of = [" ".join(sorted(re.split("[_-]", identifier))) for identifier in KNOWN]
    assert [said for said in words_of if words_of.count(said) > 1] == []


def test_the_manuals_advice_is_in_the_list() -> None:
    """Manual v1.22, 3.4.4: fetch time-outs, and large pictures."""
    assert {fault.id for fault in FAULTS if "3.4.4" in fault.source} == {"media-fetch-timeout", "picture-too-large"}


def test_a_fault_is_said_with_its_remedy() -> None:
    assert words.say("profiled") == (
        "A server that is told to profile ends when it has done so. Leave VLLM_PROFILE_PROMPT, VLLM_PROFILE_DECODE and "
        "VLLM_PT_PROFILE out of extra_environment."
    )
    assert "Stop it (systemctl stop vllm-a), or give" in words.say("port-taken", "instance", other="a")
    # What fills a hole is not read again.
    assert words.say("probe", why="{x}").startswith("The supervisor has nothing to ask its server with: {x}. ")


def test_each_fault_has_a_remedy_and_each_line_of_a_log_an_example() -> None:
    assert [fault.id for fault in FAULTS if not (fault.remedy or fault.remedies) and fault.severity != "info"] == []
    assert [fault.id for fault in FAULTS if bool(fault.signs or fault.hints) != bool(fault.example)] == []


def test_each_fault_has_an_anchor() -> None:
    text = page.DOCUMENT.read_text(encoding="utf-8")
    assert {fault.id for fault in FAULTS if text.count(f'<a id="{fault.id}"></a>') == 1} == KNOWN


def test_the_page_is_the_list() -> None:
    assert page.tables_in(page.DOCUMENT.read_text(encoding="utf-8")) == page.tables()


def test_a_sentence_has_the_id_of_its_entry_once() -> None:
    assert words.with_id("It crashed.", "crashed") == "It crashed. [crashed]"
    assert words.with_id("It crashed. [crashed] Gave up.", "crashed") == "It crashed. [crashed] Gave up."
    # Without an entry there is nothing to find.
    assert words.with_id("A sentence of preflight.", "preflight") == "A sentence of preflight."
