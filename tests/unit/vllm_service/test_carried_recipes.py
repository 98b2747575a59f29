"""The module that has compiled recipes in a folder for other nodes, and makes such a folder an instance's own."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.recipes import COPYING, whole
from ansible.module_utils.gaudi.node import beneath, folders, states
from ansible.module_utils.gaudi.weights import record

from library import carried_recipes
from tests.unit.preflight.conftest import Answer, ModuleRun, run

__all__ = ["run"]
KEY = "qwen3-8b-bfloat16-hl225-tp1-0123456789ab"


def systemd(state: str = "inactive") -> dict[str, Answer]:
    return {"systemctl show vllm-": (0, f"ActiveState={state}\n", "")}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all keys."""
    # Whoever runs the tests may write to what lies above it.
    monkeypatch.setattr(carried_recipes, "RECIPES", tmp_path / "recipes")
    monkeypatch.setattr(beneath, "refuse_writers", lambda _folder: None)
    (tmp_path / "recipes").mkdir()
    return tmp_path / "recipes"


def compiled(root: Path, instance: str = "chat", **files: str) -> Path:
    folder = root / KEY / instance
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def content(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and record.FOLDER not in path.parts]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class RecipesModule:
    """The module on one node."""

    def __init__(self, run: Any, state: str = "inactive") -> None:
        self.run, self.state = run, state

    def __call__(self, state: str, instance: str | None = None, **more: Any) -> ModuleRun:
        arguments = {"state": state, "key": KEY, **({"instance": instance} if instance else {})}
        ran: ModuleRun = self.run(carried_recipes, arguments, systemd(self.state), **more)
        return ran


@pytest.fixture
def does(run: Any) -> RecipesModule:
    return RecipesModule(run)


def test_whole_recipes_are_given_with_a_record_of_their_digests(root: Path, does: RecipesModule) -> None:
    compiled(root, one_recipe="abc", one_metadata="d", half_recipe="no metadata", other_txt="x", empty_recipe="")
    ran = does("given", "chat")
    assert (ran["changed"], ran["files"], ran["bytes"]) == (True, 2, 4)
    folder = root / f"{KEY}.carried"
    assert content(folder) == {"one.recipe": "abc", "one.metadata": "d"}
    made = record.parse((folder / record.MANIFEST).read_text())
    assert {file.name: file.sha256 for file in made.files} == {
        name: hashlib.sha256(text.encode()).hexdigest() for name, text in content(folder).items()
    }
    # rsync reads it as nobody.
    assert stat.S_IMODE((folder / "one.recipe").stat().st_mode) == 0o644


def test_a_file_that_changes_while_it_is_copied_is_left_out_with_the_other_one(
    root: Path, does: RecipesModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = compiled(root, one_recipe="abc", one_metadata="d", two_recipe="e", two_metadata="f")
    opened = beneath.open_file

    def written_meanwhile(path: Path, place: Path, *more: Any) -> Any:
        if path == source / "one.recipe":
            path.write_text("abc and more")
        return opened(path, place, *more)

    monkeypatch.setattr(beneath, "open_file", written_meanwhile)
    assert does("given", "chat")["files"] == 2
    assert content(root / f"{KEY}.carried") == {"two.recipe": "e", "two.metadata": "f"}


def test_a_file_that_goes_before_it_is_copied_is_left_out_with_the_other_one(
    root: Path, does: RecipesModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vendor's bridge removes recipes itself, once its folder is full."""
    source = compiled(root, one_recipe="abc", one_metadata="d", two_recipe="e", two_metadata="f")
    opened = beneath.open_file

    def gone_meanwhile(path: Path, place: Path, *more: Any) -> Any:
        if path == source / "one.recipe":
            path.unlink()
        return opened(path, place, *more)

    monkeypatch.setattr(beneath, "open_file", gone_meanwhile)
    assert does("given", "chat")["files"] == 2
    assert content(root / f"{KEY}.carried") == {"two.recipe": "e", "two.metadata": "f"}


def test_recipes_that_do_not_fit_twice_are_not_given(
    root: Path, does: RecipesModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(root, one_recipe="abc", one_metadata="d")
    monkeypatch.setattr(folders, "no_room", lambda *_: "x has 1 KiB free")
    ran = does("given", "chat")
    assert (ran["failed"], ran["refused_id"]) == (True, "no_room_for_recipes")
    assert ran["msg"] == f"The recipes of chat are not given. x has 1 KiB free. Make room in {root}."
    assert names(root) == [KEY]


def test_a_folder_without_a_whole_recipe_is_not_given(root: Path, does: RecipesModule) -> None:
    compiled(root, half_recipe="abc")
    assert does("given", "chat")["refused_id"] == "no_recipes_to_give"
    assert not (root / f"{KEY}.carried").exists()


def carried(root: Path, does: RecipesModule) -> Path:
    """What a node that took the folder of another one has."""
    compiled(root, "giver", one_recipe="abc", one_metadata="d")
    does("given", "giver")
    shutil.rmtree(root / KEY)
    return root / f"{KEY}.carried"


def test_what_came_becomes_the_instances_own(root: Path, does: RecipesModule) -> None:
    folder = carried(root, does)
    ran = does("taken", "chat")
    own = root / KEY / "chat"
    assert (ran["changed"], ran["files"], ran["bytes"]) == (True, 2, 4)
    assert content(own) == {"one.recipe": "abc", "one.metadata": "d"}
    # Nothing but recipes, and as the role makes it.
    assert names(own) == ["one.metadata", "one.recipe"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (own.parent, own)] == [0o750, 0o750]
    assert not folder.exists()
    assert folders.keys_with_recipes(root) == {KEY: "chat"}


def test_an_empty_folder_of_the_instance_gives_way(root: Path, does: RecipesModule) -> None:
    carried(root, does)
    compiled(root)
    assert does("taken", "chat")["files"] == 2


def test_recipes_of_its_own_stay(root: Path, does: RecipesModule) -> None:
    carried(root, does)
    own = compiled(root, mine_recipe="mine", mine_metadata="m")
    assert (does("taken", "chat")["changed"], content(own)["mine.recipe"]) == (False, "mine")


@pytest.mark.parametrize(
    ("state", "takes"),
    [
        ({"recipes": {"folder": "own"}}, False),
        ({"recipes": {"folder": "former"}}, True),
        # Its supervisor has not looked yet, or wrote nothing of it.
        ({"recipes": None}, False),
        ({}, False),
        (None, False),
        ("damaged", False),
    ],
)
def test_a_server_that_runs_keeps_its_folder(
    root: Path, run: Any, does: RecipesModule, monkeypatch: pytest.MonkeyPatch, state: Any, takes: bool
) -> None:
    """One that is to change writes to another folder until then."""
    carried(root, does)
    own = compiled(root)
    monkeypatch.setattr(states, "STATES", root.parent / "states")
    (root.parent / "states/chat").mkdir(parents=True)
    if state is not None:
        written = {"phase": "starting", **state} if isinstance(state, dict) else state
        said = json.dumps(written).replace('"own"', json.dumps(str(own)))
        (root.parent / "states/chat/state.json").write_text(said)
    assert RecipesModule(run, "activating")("taken", "chat")["changed"] is takes
    assert content(own) == ({"one.recipe": "abc", "one.metadata": "d"} if takes else {})


@pytest.mark.parametrize("harm", ["short", "missing", "record gone", "record damaged", "other key", "a program"])
def test_what_did_not_come_whole_or_is_no_recipe_is_never_visible(root: Path, does: RecipesModule, harm: str) -> None:
    folder = carried(root, does)
    manifest = folder / record.MANIFEST
    document = json.loads(manifest.read_text())
    if harm == "short":
        (folder / "one.recipe").write_text("a")
    elif harm == "missing":
        (folder / "one.recipe").unlink()
    elif harm == "record gone":
        manifest.unlink()
    elif harm == "record damaged":
        manifest.write_text("{")
    elif harm == "other key":
        manifest.write_text(json.dumps({**document, "repository": "another"}))
    else:
        (folder / "run.py").write_text("x")
        files = [*document["files"], {"name": "run.py", "size": 1, "sha256": "0" * 64}]
        manifest.write_text(json.dumps({**document, "files": files}))
    ran = does("taken", "chat")
    assert (ran["failed"], "refused_id" in ran.result) == (True, True)
    assert not (root / KEY / "chat").exists()


def test_a_start_removes_what_was_cut_off_while_it_became_the_instances_own(
    root: Path, does: RecipesModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried(root, does)

    def cut_off(*_: object) -> None:
        raise OSError(5, "Input/output error", "somewhere")

    with monkeypatch.context() as patched:
        patched.setattr(beneath, "remove_tree", cut_off)
        assert does("taken", "chat")["failed"] is True
    with monkeypatch.context() as patched:
        renamed = beneath.rename
        patched.setattr(beneath, "rename", lambda *given: cut_off() if given[2].name == "chat" else renamed(*given))
        assert does("taken", "chat")["failed"] is True
    # The supervisor looks for this name, and no other instance copies from it.
    assert names(root / KEY) == [f"{COPYING}chat"]
    assert folders.recipe_givers(root / KEY / "chat") == []


def test_nothing_is_left_of_it_in_the_end(root: Path, does: RecipesModule) -> None:
    carried(root, does)
    (root / f"{KEY}.carried.partial").mkdir()
    assert does("absent")["changed"] is True
    assert names(root) == []
    assert does("absent")["changed"] is False


def test_what_another_run_takes_now_stays(root: Path, does: RecipesModule, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, warning: said.append(warning))
    staging = root / f"{KEY}.carried.partial"
    (staging / record.FOLDER).mkdir(parents=True)
    with (staging / record.LOCK).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = does("absent")
    assert (ran["changed"], "is being taken by another run" in said[0]) == (False, True)
    assert staging.exists()


@pytest.mark.parametrize("locked", [True, False], ids=["of a run that was cut off", "without a lock"])
def test_nobody_begins_to_take_what_is_being_removed(
    root: Path, does: RecipesModule, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    staging = carried(root, does).with_name(f"{KEY}.carried.partial")
    (staging / record.FOLDER).mkdir(parents=True)
    if locked:
        (staging / record.LOCK).write_text("")
    removed = beneath.remove_tree
    tried: list[Path] = []

    def taken_now(path: Path, place: Path) -> None:
        with (staging / record.LOCK).open("ab") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tried.append(path)
        removed(path, place)

    monkeypatch.setattr(beneath, "remove_tree", taken_now)
    assert does("absent")["changed"] is True
    assert staging in tried
    assert names(root) == []


def test_check_mode_says_what_a_run_would_do_and_changes_nothing(root: Path, does: RecipesModule) -> None:
    compiled(root, one_recipe="abc", one_metadata="d", half_recipe="no metadata")
    said = does("given", "chat", check=True)
    assert (said["changed"], said["files"], said["bytes"]) == (True, 2, 4)
    assert does("absent", check=True)["changed"] is False
    assert names(root) == [KEY]
    shutil.rmtree(root / KEY)
    assert does("given", "chat", check=True)["refused_id"] == "no_recipes_to_give"
    assert does("taken", "chat", check=True)["refused_id"] == "recipes_without_record"
    folder = carried(root, does)
    said = does("taken", "chat", check=True)
    assert (said["changed"], said["files"], said["bytes"]) == (True, 2, 4)
    (folder / "one.recipe").write_text("a")
    assert does("taken", "chat", check=True)["refused_id"] == "no_recipes_of_the_key"
    assert names(root) == [folder.name]


@pytest.mark.parametrize("given", [{"key": "../x"}, {"key": ""}, {"key": KEY, "instance": "../x"}, {"key": "a/b"}])
def test_what_is_no_key_or_instance_is_refused(root: Path, run: Any, given: dict[str, str]) -> None:
    ran = run(carried_recipes, {"state": "given", "instance": "chat", **given}, systemd())
    assert ran["refused_id"] == "no_key_of_recipes"


def test_a_recipe_is_its_two_files() -> None:
    assert whole(["a.recipe", "a.metadata", "b.recipe", "c.metadata", "d.txt", "e/f.recipe", "e/f.metadata"]) == [
        "a.metadata",
        "a.recipe",
        "e/f.metadata",
        "e/f.recipe",
    ]


def test_what_is_on_its_way_is_no_key(root: Path, does: RecipesModule) -> None:
    compiled(root, one_recipe="abc", one_metadata="d")
    does("given", "chat")
    for name in (f"{KEY}.carried", f"{KEY}.carried.partial"):
        (root / name / "chat").mkdir(parents=True)
        (root / name / "chat/x.recipe").write_text("x")
    (root / KEY / ".copying-x").mkdir()
    (root / "other" / "empty").mkdir(parents=True)
    assert folders.keys_with_recipes(root) == {KEY: "chat"}
    assert folders.keys_with_recipes(root / "nowhere") == {}
