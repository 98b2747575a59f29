"""Text from outside reaches a person through one function. The exits are listed here, and held."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.printable import journal_line, printable, printable_lines
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.jobs import decisions
from ansible.module_utils.gaudi.serving.failure import Reason
from ansible.module_utils.gaudi.serving.progress import Progress
from hypothesis import given
from hypothesis import strategies as st

from tests.crossings import CROSSINGS, FILES
from tests.unit.serving.ends import diagnose
from tests.unit.sources import nodes, tree

ROOT = Path(__file__).resolve().parents[3]
# Clears the screen, renames the window, starts a line of its own, turns the reading direction.
HOSTILE = "\x1b[2J\x1b]0;owned\x07a\r\n<0>b\u2028c\u202ed\x9b31me"


def plugin(path: str) -> Any:
    """A plugin of the checkout, which no package holds."""
    spec = importlib.util.spec_from_file_location(f"exit_{Path(path).stem}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m \x07bell\x00", "red ?bell?"),
        ("a\x1b[2J\nb", "a b"),
        ("\x1b]0;title\x07x\x1b]8;;http://e\x1b\\y", "xy"),
        ("tab\there", "tab here"),
        ("\x1b", "?"),
        ("\x9b31m", "?31m"),
        ("left\u202eright", "left?right"),
        ("模型 é \ufffd", "模型 é \ufffd"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_no_text_does_anything_to_a_terminal(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    assert all(line.isprintable() for line in printable_lines(text).split("\n"))
    assert printable_lines(text).count("\n") == text.count("\n")


@given(st.text(), st.integers(0, 7))
def test_only_our_priority_counts(text: str, priority: int) -> None:
    (line,) = journal_line(text, priority).split("\n")
    assert line.startswith(f"<{priority}>")
    assert line.isprintable()


@pytest.mark.parametrize("letter", ["x", "\N{SNOWMAN}", "\U0001f600"])
def test_no_piece_of_a_line_that_the_journal_cuts_has_a_priority_of_its_own(letter: str) -> None:
    text = f"{letter * 60000}<0>text" * 2
    pieces = journal_line(text).split("\n")
    assert {piece[:3] for piece in pieces} == {"<6>"}
    assert "".join(piece[3:] for piece in pieces) == text
    # LineMax= of journald.conf(5).
    assert max(len(piece.encode()) for piece in pieces) < 48 * 1024


def test_every_sentence_of_a_refusal_and_of_an_end_is_printable() -> None:
    assert str(Refusal("an_id", f"a file named {HOSTILE}")).replace("\n", "").isprintable()
    assert Reason("kind", HOSTILE, retry=True).message.isprintable()
    assert diagnose([f"ValueError: {HOSTILE}"], 1, True, 0, Progress()).message.isprintable()


def test_a_refusal_quotes_no_megabytes() -> None:
    for refusal in (Refusal("an_id", "x" * 10**7, "Repair it."), Refusal("an_id", "No.", "y" * 10**7)):
        assert len(str(refusal)) < 20_000
    assert str(Refusal("an_id", "x" * 10**7, "Repair it.")).endswith("... Repair it.")


def test_a_table_of_jobs_is_printable() -> None:
    job = {"key": "fetch.x", "status": "failed", "since": "", "message": HOSTILE, "text": ""}
    assert all(line.isprintable() for line in decisions.table([job]))


def test_what_the_controller_shows_of_an_instance_is_printable() -> None:
    state = {"phase": "failed", "status": HOSTILE, "endpoint": HOSTILE, "cards": []}
    found = {
        "instance": "a", "load": "loaded", "active": "failed", "sub": "failed", "result": "exit-code", "job": "",
        "restarts": 0, "damaged": "", "state": state, "said": HOSTILE,
    }  # fmt: skip
    wait = plugin("action_plugins/vllm_service_info.py")
    table = plugin("filter_plugins/vllm_service_table.py")
    summary = plugin("filter_plugins/summary_lines.py")
    said = [wait.line("h", found), wait.failure("h", found), *table.vllm_service_table({"h": [found]})]
    answers = {"a": {"question": HOSTILE, "answer": HOSTILE}}
    topology = {"cards": [{"name": HOSTILE, "module_id": 0, "numa_node": 0}], "driver_version": HOSTILE}
    said += summary.summary_lines(topology, "h", "1.22", [found], answers, None)
    assert [line for line in said if not line.isprintable()] == []


def test_what_the_controller_shows_of_work_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    work = plugin("action_plugins/node_job.py")
    shown: list[str] = []
    monkeypatch.setattr(work.Display, "display", lambda _self, text: shown.append(text))
    job = {"key": "a", "status": "failed", "text": HOSTILE, "state": {"message": HOSTILE}, "progress": {}}
    work.Voice("h", "a", 0).show(job)
    assert [line for line in [*shown, work.failure("h", job, True)] if not line.isprintable()] == []
    assert shown


def test_a_line_of_work_reaches_the_journal_with_our_priority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "module_utils"))
    log = plugin("roles/node_job/files/gaudi_job.py").Log(tmp_path / "log")
    log.add("<0>the node is on fire\x1b[2J")
    assert capsys.readouterr().out == "<6><0>the node is on fire\n"
    assert log.tail == ["<0>the node is on fire"]


# Words of a tool, a container or a server in what a module says.
WORDS = {
    "out",
    "err",
    "stdout",
    "stderr",
    "said",
    "reply",
    "complaint",
    "errors",
    "error",
    "output",
    "printed",
    "words",
}
SAYING = {"fail_json", "warn"}


def unguarded(node: ast.AST) -> Iterator[str]:
    """Names in an expression that stand for somebody else's words and do not pass through ``printable``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("printable", "shown"):
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "dumps":
        return
    if isinstance(node, ast.Name) and node.id in WORDS:
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from unguarded(child)


def assigned_printable(function: ast.AST) -> set[str]:
    """Names that a function makes printable when it assigns them."""
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "printable"
        for target in node.targets
        if isinstance(target, ast.Name)
    }  # fmt: skip


def quoted_as_it_is(parsed: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of somebody else's words in what a module says."""
    for function in [node for node in nodes(parsed) if isinstance(node, ast.FunctionDef)]:
        clean = assigned_printable(function)
        for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
            if isinstance(call.func, ast.Attribute) and call.func.attr in SAYING:
                # Fields beside the sentence are shown as YAML, which writes such letters as escapes.
                said = [*call.args, *(word.value for word in call.keywords if word.arg == "msg")]
                yield from ((call.lineno, name) for part in said for name in unguarded(part) if name not in clean)


def test_modules_quote_tools_printably() -> None:
    files = [*(ROOT / "library").glob("*.py"), *(ROOT / "module_utils" / "gaudi" / "node").glob("*.py")]
    assert not [
        f"{path.relative_to(ROOT)}:{line}: {name}" for path in files for line, name in quoted_as_it_is(tree(path))
    ]


# Every place below that writes to the journal or to the operator's terminal, and how its text got there.
EXITS = {
    "action_plugins/new_api_key.py": "the words of a task of ours, and the key that was drawn",
    "action_plugins/node_job.py": "Voice, failure",
    "action_plugins/vllm_service_log.py": "printable",
    "action_plugins/vllm_service_info.py": "line, failure",
    "callback_plugins/phases.py": "print_printably, through which Ansible prints all that it prints",
    "roles/node_job/files/gaudi_job.py": "Log.add; its own sentences",
    "roles/vllm_service/files/gaudi_supervisor/command_line.py": "Failure; its own sentences",
    "roles/vllm_service/files/gaudi_supervisor/run.py": "take",
    "roles/vllm_service/files/gaudi_supervisor/systemd.py": "say",
}
# Files on the controller with what nodes report (tests/crossings.py finds them): a person opens them in a terminal.
WRITTEN = {
    "action_plugins/batch_answers.py": "data for programs, with the bytes that the node sends",
    "action_plugins/explain_log.py": "JSON of printable texts (doctor/log_file.py: document)",
    "action_plugins/record_archive.py": "texts of printable lines (doctor/archive.py), in a tar",
    "playbooks/doctor.yml": "to_nice_json, which writes escapes",
    "playbooks/image.yml": "to_nice_json",
    "playbooks/plan.yml": "to_nice_json",
    "playbooks/status.yml": "to_nice_json",
    "playbooks/tasks/bundle.yml": "doctor_bundle (doctor/bundle.py: of_node)",
    "roles/benchmark/tasks/show.yml": "to_nice_json, and an SVG of element() (fabric/markup.py)",
    "roles/fabric_check/tasks/page.yml": "HTML of element()",
    "roles/fabric_check/tasks/pairs.yml": "to_nice_json, HTML of element(), CSV of printable() (fabric/pairs.py)",
    "roles/host_tuning/tasks/verify.yml": "to_nice_json",
}
# What these print is read by a job, whose Log.add is the exit, or by a person who called them.
BELOW_A_JOB = (
    "roles/benchmark/",
    "roles/fp8_calibration/",
    "roles/fp8_weights/",
    "roles/model_weights/",
    "roles/offline_batch/",
    "roles/serving_image/",
)
CALLED_BY_HAND = ("roles/host_tuning/files/host_tuning.py",)


def test_the_exits_are_listed() -> None:
    writing = set()
    for folder in ("action_plugins", "callback_plugins", "filter_plugins", "plugin_utils", "roles"):
        for path in (ROOT / folder).rglob("*.py"):
            calls = [node.func for node in nodes(tree(path)) if isinstance(node, ast.Call)]
            printing = any(isinstance(call, ast.Name) and call.id == "print" for call in calls)
            displaying = any(isinstance(call, ast.Attribute) and call.attr == "display" for call in calls)
            if printing or displaying:
                writing.add(str(path.relative_to(ROOT)))
    rest = {path for path in writing if not path.startswith(BELOW_A_JOB + CALLED_BY_HAND)}
    assert rest == set(EXITS)
    on_controller = {file for row in CROSSINGS for file, reads in row.reads.items() if FILES in reads}
    assert on_controller == set(WRITTEN)
