"""The library of a node: installed whole or not at all, and gone with its last user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.gaudi.base import library as brain
from ansible.module_utils.gaudi.node import programs
from hypothesis import given
from hypothesis import strategies as st

from action_plugins.node_files import ActionModule, library_files
from tests.unit.host.modules import run_main

ONE = {"__init__.py": "", "base/__init__.py": "", "base/units.py": "GIB = 1 << 30\n"}
TWO = {**ONE, "base/units.py": "GIB = 1 << 31\n"}

# What only Ansible modules import: it asks a node through Ansible's own module object.
FOR_MODULES = {f"gaudi.node.{name}" for name in ("instances", "reader", "state", "tuning")}
IMPORTS = "import importlib, sys; sys.path.append({folder!r})\nfor name in {names!r}: importlib.import_module(name)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(programs, "FOLDER", tmp_path / "lib")
    return tmp_path / "lib"


def run(user: str, sent: dict[str, str], *, check: bool = False, **more: Any) -> dict[str, Any]:
    asked = {"library_for": user, "library_digest": brain.digest(sent), "library_files": sent, "files": []}
    return run_main("library.node_files", {**asked, **more}, check=check)


def content(folder: Path) -> dict[str, str]:
    package = folder / "gaudi"
    return {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}


def test_it_is_installed_under_the_name_of_its_content(folder: Path) -> None:
    assert run("a", ONE)["changed"]
    assert content(folder) == ONE
    assert (folder / "gaudi").resolve() == folder / f"library-{brain.digest(ONE)}" / "gaudi"
    assert {path.stat().st_mode & 0o777 for path in (folder / "gaudi").rglob("*.py")} == {0o644}
    assert not run("a", ONE)["changed"]
    assert [path.name for path in folder.iterdir() if path.name.startswith("incomplete")] == []


def test_the_files_are_asked_for_only_where_they_are_needed(folder: Path) -> None:
    program = folder.parent / "program.py"
    asked: dict[str, Any] = {"library_files": None, "files": [{"path": str(program), "state": "absent"}]}
    program.touch()
    assert run("a", ONE, **asked) == {**run("a", ONE, **asked), "changed": True, "needed": True}
    assert program.exists()
    assert not folder.exists()
    run("a", ONE)
    assert "needed" not in run("a", ONE, **asked)
    assert not program.exists()


def test_a_new_version_leaves_the_one_before_and_no_older_one(folder: Path) -> None:
    three = {**ONE, "base/units.py": "GIB = 0\n"}
    for sent in (ONE, TWO, three):
        run("a", sent)
    assert content(folder) == three
    kept = {f"library-{brain.digest(sent)}" for sent in (TWO, three)}
    assert {path.name for path in folder.glob("library-*")} == kept


@pytest.mark.parametrize("damage", ["changed", "removed", "added"])
def test_a_hand_edit_is_put_right(folder: Path, damage: str) -> None:
    run("a", ONE)
    file = folder / "gaudi" / "base" / "units.py"
    if damage == "removed":
        file.unlink()
    else:
        (file if damage == "changed" else file.with_name("extra.py")).write_text("GIB = 5\n")
    assert run("a", ONE)["changed"]
    assert content(folder) == ONE


@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_other_rights_of_the_folder_are_put_right(folder: Path, mode: int) -> None:
    run("a", ONE)
    folder.chmod(mode)
    answer = run("a", ONE, check=True)
    assert (answer["changed"], answer["library_changed"]) == (True, False)
    (diff,) = answer["diff"]
    assert f"mode {mode:04o}" in diff["before"]
    assert "mode 0755" in diff["after"]
    assert folder.stat().st_mode & 0o7777 == mode
    assert run("a", ONE)["changed"]
    assert folder.stat().st_mode & 0o7777 == 0o755
    assert not run("a", ONE)["changed"]


def test_only_other_files_count_as_installed(folder: Path) -> None:
    assert run("a", ONE)["library_changed"]
    another = run("b", ONE)
    assert (another["changed"], another["library_changed"]) == (False, False)
    assert run("b", TWO, check=True)["library_changed"]


def test_files_are_read_and_written_as_utf_8(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node's locale may be another one."""
    said = []
    for name in ("read_text", "write_text"):
        call = getattr(Path, name)

        def watched(path: Path, *given: Any, _call: Any = call, **more: Any) -> Any:
            said.append(more.get("encoding"))
            return _call(path, *given, **more)

        monkeypatch.setattr(Path, name, watched)
    run("a", ONE)
    run("b", ONE)
    assert set(said) == {"utf-8"}


def test_it_goes_with_the_last_program_that_needs_it(folder: Path) -> None:
    run("host_tuning", ONE)
    for program in ("host_tuning.py", "gaudi_job.py"):
        (folder / program).touch()
    # Its programs may still lie there, or be gone already.
    assert not run("host_tuning", ONE, library_state="absent")["changed"]
    assert content(folder) == ONE
    (folder / "host_tuning.py").unlink()
    job = [{"path": str(folder / "gaudi_job.py"), "state": "absent"}]
    assert run("node_job", ONE, library_state="absent", files=job)["written"] == [str(folder / "gaudi_job.py")]
    assert not folder.exists()
    assert not run("node_job", ONE, library_state="absent", files=job)["changed"]


def test_what_others_have_beside_it_stays(folder: Path) -> None:
    run("a", ONE)
    (folder / "program.py").touch()
    run("a", ONE, library_state="absent")
    assert [path.name for path in folder.iterdir()] == ["program.py"]


def test_check_mode_changes_nothing_and_says_what_would_be(folder: Path) -> None:
    assert run("a", ONE, check=True)["changed"]
    assert not folder.exists()
    run("a", ONE)
    answer = run("a", TWO, check=True)
    assert answer["changed"]
    assert content(folder) == ONE
    (diff,) = answer["diff"]
    assert brain.digest(ONE) in diff["before"]
    assert brain.digest(TWO) in diff["after"]


@given(st.dictionaries(st.text(), st.text(), max_size=4), st.dictionaries(st.text(), st.text(), max_size=4))
def test_other_files_have_another_digest(one: dict[str, str], other: dict[str, str]) -> None:
    assert (brain.digest(one) == brain.digest(other)) == (one == other)


def test_the_checkout_sends_the_brain_and_no_byte_code() -> None:
    here = library_files()
    assert "base/units.py" in here
    assert all(name.endswith(".py") for name in here)


class ScriptedLibraryAction(ActionModule):
    """The action, whose module is scripted: it keeps what that was called with."""

    def __init__(self, arguments: dict[str, Any], *answers: dict[str, Any]) -> None:
        self._task = SimpleNamespace(args=arguments, check_mode=False)
        self.answers = [*answers]
        self.called: list[dict[str, Any]] = []
        self.logged: list[bool] = []

    def _execute_module(
        self, name: str, module_args: dict[str, Any], task_vars: dict[str, Any] | None
    ) -> dict[str, Any]:
        assert name == "node_files"
        self.called.append(dict(module_args))
        self.logged.append(not (task_vars or {}).get("ansible_no_target_syslog"))
        return self.answers.pop(0)


WRITTEN: dict[str, Any] = {"changed": True, "library_changed": True, "written": ["/a"], "diff": []}


def test_the_library_is_sent_where_the_node_lacks_it() -> None:
    asked = {"library_for": "a", "files": [], "library_digest": brain.digest(library_files())}
    action = ScriptedLibraryAction({"library_for": "a", "files": []}, {"changed": True, "needed": True}, WRITTEN)
    assert action.run() == WRITTEN
    assert action.called == [asked, {**asked, "library_files": library_files()}]
    # A node's log is no place for the text of every file.
    assert action.logged == [False, False]


def test_a_node_that_has_the_library_is_asked_once() -> None:
    action = ScriptedLibraryAction({"library_for": "a", "files": []}, WRITTEN)
    assert action.run() == WRITTEN
    assert [set(asked) for asked in action.called] == [{"library_for", "files", "library_digest"}]


def test_files_without_a_role_are_written_alone() -> None:
    action = ScriptedLibraryAction({"files": []}, WRITTEN)
    assert action.run() == WRITTEN
    assert action.called == [{"files": []}]


def test_the_library_is_there_before_the_programs_and_goes_after_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("library.node_files.OWNER", (os.getuid(), os.getgid()))
    program, theirs = folder / "gaudi_job.py", tmp_path / "theirs"
    theirs.mkdir()
    refused = [{"path": str(program), "content": "1"}, {"path": str(theirs), "content": "1"}]
    assert run("node_job", ONE, files=refused)["refused_id"] == "file_in_the_way"
    assert not folder.exists()
    answer = run("node_job", ONE, files=[{"path": str(program), "content": "1"}])
    assert (answer["written"], answer["library_changed"], content(folder)) == ([str(program)], True, ONE)
    assert answer["diff"][0]["before_header"] == str(folder)


def test_a_module_without_its_action_does_not_pass_over_the_library(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    answer = run_main("library.node_files", {"library_for": "a", "files": [{"path": str(path), "content": ""}]})
    assert answer["failed"]
    assert "library_for is for the action of the same name" in answer["msg"]
    assert not path.exists()


def test_programs_import_it_with_the_standard_library_alone(folder: Path, tmp_path: Path) -> None:
    here = library_files()
    run("a", here)
    modules = [name.removesuffix(".py").replace("/", ".") for name in here if not name.endswith("__init__.py")]
    plain = sorted(f"gaudi.{name}" for name in modules if f"gaudi.{name}" not in FOR_MODULES)
    asked = [sys.executable, "-I", "-c", IMPORTS.format(folder=str(folder), names=plain)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
