"""Recipes that the stand-in compiles: two files a graph, as the vendor's bridge keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
from gaudi_simulated import recipes
from gaudi_simulated.processes import StartError


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each graph took."""
    seconds: list[float] = []
    monkeypatch.setattr("gaudi_simulated.recipes.time.sleep", seconds.append)
    return seconds


def cache(folder: Path, rest: str = ",false,40960") -> recipes.Cache:
    return recipes.Cache({recipes.VARIABLE: f"{folder}{rest}"})


def names(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir())


def test_what_was_compiled_is_read_by_the_next_start(tmp_path: Path, slept: list[float]) -> None:
    for _ in range(2):
        for graph in ("prompt 1", "prompt 2"):
            cache(tmp_path).warm(graph, 10)
    assert slept == [10, 10, 3.5, 3.5]
    assert names(tmp_path) == [".lock", ".metadata", ".metadata", ".recipe", ".recipe"]
    assert (tmp_path / recipes.LOCK).stat().st_size == 0


def test_without_a_folder_every_graph_is_compiled(slept: list[float]) -> None:
    for _ in range(2):
        recipes.Cache({}).warm("prompt 1", 10)
    assert slept == [10, 10]


def test_empty_metadata_is_compiled_anew(tmp_path: Path, slept: list[float]) -> None:
    cache(tmp_path).warm("prompt 1", 10)
    (metadata,) = tmp_path.glob("*.metadata")
    metadata.write_text("")
    for _ in range(2):
        cache(tmp_path).warm("prompt 1", 10)
    assert slept == [10, 10, 3.5]


def test_a_recipe_that_cannot_be_read_is_never_replaced(tmp_path: Path, slept: list[float]) -> None:
    cache(tmp_path).warm("prompt 1", 10)
    (recipe,) = tmp_path.glob("*.recipe")
    recipe.write_text("")
    for _ in range(2):
        cache(tmp_path).warm("prompt 1", 10)
    assert slept == [10, 10, 10]
    recipe.unlink()
    with pytest.raises(StartError, match="would compute nothing"):
        cache(tmp_path).warm("prompt 1", 10)


def test_the_folder_is_emptied_and_kept_small_as_asked(tmp_path: Path, slept: list[float]) -> None:
    cache(tmp_path).warm("prompt 1", 1)
    cache(tmp_path, ",true,40960").warm("prompt 2", 1)
    assert len(list(tmp_path.glob("*.recipe"))) == 1
    cache(tmp_path, ",false,0").warm("prompt 3", 1)
    assert list(tmp_path.glob("*.recipe")) == []
    assert slept == [1, 1, 1]
