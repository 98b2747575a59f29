"""Compiled recipes: what a start finds, throws away, and copies from another instance of the same key."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.recipes import COPYING
from gaudi_supervisor import recipes


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


def ready(own: Path) -> tuple[recipes.FoundRecipes, list[str]]:
    return recipes.made_ready(own, lambda: None)


def test_the_first_start_finds_an_empty_folder(own: Path) -> None:
    assert ready(own) == (recipes.FoundRecipes(0, 0), [])
    # As the role makes them: a run after it changes nothing.
    assert [stat.S_IMODE(path.stat().st_mode) for path in (own.parent, own)] == [0o750, 0o750]
    assert ready(own) == (recipes.FoundRecipes(0, 0), [])


def test_its_own_recipes_stay(own: Path) -> None:
    other(own, one="from b")
    own.mkdir()
    (own / "mine").write_text("mine")
    assert ready(own) == (recipes.FoundRecipes(1, 4), [])
    assert [path.name for path in own.iterdir()] == ["mine"]


def test_an_empty_folder_gets_a_copy_of_another_instances(own: Path) -> None:
    folder = other(own, one="abc", two="de", empty="")
    own.mkdir()
    assert ready(own) == (recipes.FoundRecipes(2, 5, "b"), [])
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
    assert ready(own) == (recipes.FoundRecipes(1, 3, "b"), [])
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
    assert ready(own) == (recipes.FoundRecipes(0, 0), [])
    assert (own / recipes.LOCK).exists()


def test_half_a_recipe_is_not_copied(own: Path) -> None:
    folder = own.with_name("b")
    folder.mkdir(parents=True)
    for name in ("1.metadata", "2.metadata", "2.recipe", "3.recipe", "4.metadata"):
        (folder / name).write_text("abc")
    # Being written; and 4 has lost its recipe.
    (folder / "1.recipe").touch()
    (folder / "3.metadata").touch()
    assert ready(own) == (recipes.FoundRecipes(2, 6, "b"), [])
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
