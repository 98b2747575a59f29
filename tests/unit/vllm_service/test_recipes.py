"""Compiled recipes: what a start finds, throws away, and copies from another instance of the same key."""

from __future__ import annotations

import copy
import json
import os
import stat
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.recipes import COPYING
from ansible.module_utils.gaudi.base.units import human_bytes
from ansible.module_utils.gaudi.node.kept import Place
from ansible.module_utils.gaudi.serving.kept import Kept, StartsFrom
from gaudi_supervisor import recipes
from gaudi_supervisor.instance import Supervisor
from gaudi_supervisor.settings import Paths, Settings

from tests.unit.vllm_service.node import PATIENCE, Node


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The folder of an instance that has never started."""
    return tmp_path / "key" / "a"


def other(own: Path, **files: str) -> Path:
    folder = own.with_name("b")
    (folder / "rank0").mkdir(parents=True)
    for name, text in files.items():
        (folder / "rank0" / name).write_text(text)
    return folder


def ready(own: Path) -> tuple[recipes.Found, list[str]]:
    return recipes.made_ready(own, lambda: None)


def test_the_first_start_finds_an_empty_folder(own: Path) -> None:
    assert ready(own) == (recipes.Found(0, 0), [])
    # As the role makes them: a run after it changes nothing.
    assert [stat.S_IMODE(path.stat().st_mode) for path in (own.parent, own)] == [0o750, 0o750]
    assert ready(own) == (recipes.Found(0, 0), [])


def test_its_own_recipes_stay(own: Path) -> None:
    other(own, one="from b")
    own.mkdir()
    (own / "mine").write_text("mine")
    assert ready(own) == (recipes.Found(1, 4), [])
    assert [path.name for path in own.iterdir()] == ["mine"]


def test_an_empty_folder_gets_a_copy_of_another_instances(own: Path) -> None:
    folder = other(own, one="abc", two="de", empty="")
    own.mkdir()
    assert ready(own) == (recipes.Found(2, 5, "b"), [])
    assert (own / "rank0" / "one").read_text() == "abc"
    assert stat.S_IMODE(own.stat().st_mode) == 0o750
    assert sorted(path.name for path in own.parent.iterdir()) == ["a", "b"]
    (own / "rank0" / "one").write_text("changed")
    assert (folder / "rank0" / "one").read_text() == "abc"


def test_a_file_that_is_being_written_is_left_out(own: Path) -> None:
    folder = other(own, one="abc")

    def goes_on() -> None:
        (folder / "rank0" / "one").write_text("abc and more")

    found, said = recipes.made_ready(own, goes_on)
    # The change came before the file was read, after it was measured.
    assert (found.files, said) == (0, [])
    assert list(own.rglob("one")) == []


def test_a_copy_that_was_cut_off_is_made_anew(own: Path) -> None:
    other(own, one="abc")
    left = own.with_name(COPYING + "a")
    left.mkdir()
    (left / "half").write_text("h")
    assert ready(own) == (recipes.Found(1, 3, "b"), [])
    assert not left.exists()


def test_a_copy_that_cannot_be_made_ends_nothing(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other(own, one="abc")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    found, said = ready(own)
    assert (found.files, own.is_dir()) == (0, True)
    assert len(said) == 1 and "The recipes of b cannot be copied" in said[0]
    assert sorted(path.name for path in own.parent.iterdir()) == ["a", "b"]


def test_what_is_no_recipe_is_thrown_away(own: Path) -> None:
    outside = own.parent.parent / "outside"
    own.mkdir(parents=True)
    outside.write_text("outside")
    (own / "good").write_text("good")
    (own / "empty").touch()
    (own / "link").symlink_to(outside)
    os.mkfifo(own / "pipe")
    found, said = ready(own)
    assert (found.files, len(said)) == (1, 3)
    assert f"The compiled recipe {own / 'empty'} is empty, and is thrown away" in said
    assert [path.name for path in own.iterdir()] == ["good"]
    assert outside.read_text() == "outside"


@pytest.mark.parametrize("empty", ["1.recipe", "1.metadata"])
def test_the_two_files_of_a_recipe_go_together(own: Path, empty: str) -> None:
    own.mkdir(parents=True)
    for name in ("1.metadata", "1.recipe", "2.metadata", "2.recipe"):
        (own / name).write_text("" if name == empty else "abc")
    found, said = ready(own)
    assert said == [f"The compiled recipe {own / empty} is empty, and is thrown away"]
    assert (found.files, sorted(path.name for path in own.iterdir())) == (2, ["2.metadata", "2.recipe"])


@pytest.mark.parametrize("gone", ["1.recipe", "1.metadata"])
def test_half_a_recipe_is_thrown_away(own: Path, gone: str) -> None:
    own.mkdir(parents=True)
    for name in ("1.metadata", "1.recipe", "2.metadata", "2.recipe"):
        (own / name).write_text("abc")
    (own / gone).unlink()
    left = {"1.recipe": "1.metadata", "1.metadata": "1.recipe"}[gone]
    found, said = ready(own)
    assert said == [f"The compiled recipe {own / left} has no {Path(gone).suffix} beside it, and is thrown away"]
    assert (found.files, sorted(path.name for path in own.iterdir())) == (2, ["2.metadata", "2.recipe"])


def test_the_lock_of_the_vendors_bridge_is_no_recipe(own: Path) -> None:
    own.mkdir(parents=True)
    (own / recipes.LOCK).touch()
    assert ready(own) == (recipes.Found(0, 0), [])
    assert (own / recipes.LOCK).exists()


def test_half_a_recipe_is_not_copied(own: Path) -> None:
    folder = own.with_name("b")
    folder.mkdir(parents=True)
    for name in ("1.metadata", "2.metadata", "2.recipe", "3.recipe", "4.metadata"):
        (folder / name).write_text("abc")
    # Being written; and 4 has lost its recipe.
    (folder / "1.recipe").touch()
    (folder / "3.metadata").touch()
    assert ready(own) == (recipes.Found(2, 6, "b"), [])
    assert sorted(path.name for path in own.iterdir()) == ["2.metadata", "2.recipe"]


@pytest.mark.parametrize("what", ["file", "link"])
def test_something_in_the_folders_place_is_removed(own: Path, what: str) -> None:
    own.parent.mkdir(parents=True)
    if what == "file":
        own.write_text("a file")
    else:
        own.symlink_to(own.parent)
    assert ready(own)[1] == [f"{own} was no directory of compiled recipes, and is removed"]
    assert own.is_dir()
    assert not own.is_symlink()


def keyed(node: Node) -> Path:
    """Give the node's plan a folder of recipes by their key."""
    folder = node.root / "state/recipes/key/tiny"
    inside = "/data/recipe_cache/tiny"
    node.plan["environment"]["PT_HPU_RECIPE_CACHE_CONFIG"] = f"{inside},false,5"
    node.plan["container"]["mounts"].append({"source": str(folder), "target": inside, "read_only": False})
    node.write_plan()
    return folder


def test_a_start_says_what_it_found(node: Node) -> None:
    folder = keyed(node)
    node.scenario(lines=["INFO hello"], exit=1)
    node.run()
    assert folder.is_dir()
    assert node.state["recipes"] == {"folder": str(folder), "files": 0, "bytes": 0, "given_by": ""}
    (folder.parent / "b").mkdir()
    (folder.parent / "b" / "recipe").write_text("abc")
    _, output = node.run()
    assert "It starts with a copy of the compiled recipes of b: 1 files." in output
    assert node.state["recipes"] == {"folder": str(folder), "files": 1, "bytes": 3, "given_by": "b"}


def test_a_folder_that_cannot_be_made_ends_no_start(node: Node) -> None:
    folder = keyed(node)
    folder.parents[1].mkdir()
    folder.parent.write_text("a file")
    node.scenario(lines=["INFO hello"], exit=1)
    _, output = node.run()
    assert f"{folder} cannot be made" in output
    assert "Starting container vllm-tiny" in output
    assert node.state["recipes"] is None


def stored(node: Node, name: str, seconds: int) -> Path:
    """A folder with a GiB of recipes, which takes no room, that are so many seconds old."""
    folder = node.root / "state/recipes" / name / "gone"
    folder.mkdir(parents=True)
    with (folder / "recipe").open("wb") as stream:
        stream.truncate(2**30)
    os.utime(folder / "recipe", (1e9 - seconds, 1e9 - seconds))
    return folder


def boss_of(node: Node, gib: int) -> Supervisor:
    return Supervisor("tiny", Settings(recipes_gib=gib), Paths(etc=node.root / "etc", state=node.root / "state"))


def test_the_oldest_recipes_that_no_plan_uses_go(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    own = keyed(node)
    own.mkdir(parents=True)
    (own / "recipe").write_text("abc")
    old, older, new = stored(node, "old", 20), stored(node, "older", 30), stored(node, "new", 10)
    recipes.prune(boss_of(node, 1))
    assert [path.exists() for path in (own, new, old, older)] == [True, True, False, False]
    said = capsys.readouterr().out
    assert f"Removed {older}: no plan uses its compiled recipes, and {human_bytes(2**30)} of such are kept." in said


def test_a_start_keeps_as_much_as_it_is_told(node: Node) -> None:
    keyed(node)
    folder = stored(node, "old", 20)
    node.scenario(lines=["INFO hello"], exit=1)
    node.run()
    assert folder.exists()
    _, output = node.run("--recipes-gib", "0")
    assert f"Removed {folder}" in output
    assert not folder.exists()


@pytest.mark.parametrize("name", ["key.carried", "key.carried.partial"])
def test_what_was_left_on_its_way_from_another_node_goes_as_a_whole(node: Node, name: str) -> None:
    keyed(node)
    left = node.root / "state/recipes" / name
    (left / "rank0").mkdir(parents=True)
    (left / "rank0" / "one.recipe").write_text("abc")
    recipes.prune(boss_of(node, 1))
    assert (left / "rank0" / "one.recipe").exists()
    recipes.prune(boss_of(node, 0))
    assert not left.exists()


def test_recipes_of_a_plan_that_is_kept_stay(node: Node) -> None:
    folder = stored(node, "kept", 10)
    document = copy.deepcopy(node.plan)
    document["environment"]["PT_HPU_RECIPE_CACHE_CONFIG"] = "/cache,false,5"
    document["container"]["mounts"].append({"source": str(folder), "target": "/cache", "read_only": False})
    files = {"plan.json": json.dumps(document), "environment": ""}
    place = Place("tiny", node.root / "state/instances/tiny", node.root / "etc/instances")
    place.keep(Kept(files, StartsFrom("", "", ""), 1, "2026-01-01T00:00:00Z"), ())
    recipes.prune(boss_of(node, 0))
    assert folder.exists()


@pytest.mark.parametrize("what", ["plan", "kept plan"])
def test_nothing_goes_while_a_plan_cannot_be_read(node: Node, what: str) -> None:
    folder = stored(node, "unknown", 10)
    if what == "plan":
        (node.instances / "plan.json").write_text("{")
    else:
        kept = node.root / "state/instances/tiny/plans"
        kept.mkdir(parents=True)
        (kept / "a.json").write_text("{")
    recipes.prune(boss_of(node, 0))
    assert folder.exists()


def test_a_start_is_recorded_with_whether_it_found_recipes(node: Node) -> None:
    folder = keyed(node)
    for wait in (lambda: len(node.state["starts"]) == 1, lambda: len(node.state["starts"]) == 2):
        process = node.start(FAKE_POLL_SERVING="3")
        node.wait_ready()
        node.wait_for(wait, "the record")
        process.terminate()
        assert process.wait(PATIENCE) == 0
        # Recipes that the server compiled.
        (folder / "recipe").write_text("abc")
    assert [start["filled"] for start in node.state["starts"]] == [True, False]
