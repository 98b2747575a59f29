"""Compiled recipes: what a start of the supervisor finds, keeps, and removes."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.units import human_bytes
from ansible.module_utils.gaudi.node.kept import InstancePaths
from ansible.module_utils.gaudi.serving.kept import StartsFrom, StoredPlan
from gaudi_supervisor import recipes
from gaudi_supervisor.settings import Paths

from tests.integration.vllm_service.node import PATIENCE, SupervisedNode


def keyed(node: SupervisedNode) -> Path:
    """Give the node's plan a folder of recipes by their key."""
    folder = node.root / "state/recipes/key/tiny"
    inside = "/data/recipe_cache/tiny"
    node.plan["environment"]["PT_HPU_RECIPE_CACHE_CONFIG"] = f"{inside},false,5"
    node.plan["container"]["mounts"].append({"source": str(folder), "target": inside, "read_only": False})
    node.write_plan()
    return folder


def test_a_start_says_what_it_found(node: SupervisedNode) -> None:
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


def test_a_folder_that_cannot_be_made_ends_no_start(node: SupervisedNode) -> None:
    folder = keyed(node)
    folder.parents[1].mkdir()
    folder.parent.write_text("a file")
    node.scenario(lines=["INFO hello"], exit=1)
    _, output = node.run()
    assert f"{folder} cannot be made" in output
    assert "Starting container vllm-tiny" in output
    assert node.state["recipes"] is None


def stored(node: SupervisedNode, name: str, seconds: int) -> Path:
    """A folder with a GiB of recipes, which takes no room, that are so many seconds old."""
    folder = node.root / "state/recipes" / name / "gone"
    folder.mkdir(parents=True)
    with (folder / "recipe").open("wb") as stream:
        stream.truncate(2**30)
    os.utime(folder / "recipe", (1e9 - seconds, 1e9 - seconds))
    return folder


def paths_of(node: SupervisedNode) -> Paths:
    return Paths(etc=node.root / "etc", state=node.root / "state")


def test_the_oldest_recipes_that_no_plan_uses_go(node: SupervisedNode, capsys: pytest.CaptureFixture[str]) -> None:
    own = keyed(node)
    own.mkdir(parents=True)
    (own / "recipe").write_text("abc")
    old, older, new = stored(node, "old", 20), stored(node, "older", 30), stored(node, "new", 10)
    recipes.prune(paths_of(node), 1)
    assert [path.exists() for path in (own, new, old, older)] == [True, True, False, False]
    said = capsys.readouterr().out
    assert f"Removed {older}: no plan uses its compiled recipes, and {human_bytes(2**30)} of such are kept." in said


def test_a_start_keeps_as_much_as_it_is_told(node: SupervisedNode) -> None:
    keyed(node)
    folder = stored(node, "old", 20)
    node.scenario(lines=["INFO hello"], exit=1)
    node.run()
    assert folder.exists()
    _, output = node.run("--recipes-gib", "0")
    assert f"Removed {folder}" in output
    assert not folder.exists()


@pytest.mark.parametrize("name", ["key.carried", "key.carried.partial"])
def test_what_was_left_on_its_way_from_another_node_goes_as_a_whole(node: SupervisedNode, name: str) -> None:
    keyed(node)
    left = node.root / "state/recipes" / name
    (left / "rank0").mkdir(parents=True)
    (left / "rank0" / "one.recipe").write_text("abc")
    recipes.prune(paths_of(node), 1)
    assert (left / "rank0" / "one.recipe").exists()
    recipes.prune(paths_of(node), 0)
    assert not left.exists()


def test_recipes_of_a_plan_that_is_kept_stay(node: SupervisedNode) -> None:
    folder = stored(node, "kept", 10)
    document = copy.deepcopy(node.plan)
    document["environment"]["PT_HPU_RECIPE_CACHE_CONFIG"] = "/cache,false,5"
    document["container"]["mounts"].append({"source": str(folder), "target": "/cache", "read_only": False})
    files = {"plan.json": json.dumps(document), "environment": ""}
    place = InstancePaths("tiny", node.root / "state/instances/tiny", node.root / "etc/instances")
    place.keep(StoredPlan(files, StartsFrom("", "", ""), 1, "2026-01-01T00:00:00Z"), ())
    recipes.prune(paths_of(node), 0)
    assert folder.exists()


@pytest.mark.parametrize("what", ["plan", "kept plan"])
def test_nothing_goes_while_a_plan_cannot_be_read(node: SupervisedNode, what: str) -> None:
    folder = stored(node, "unknown", 10)
    if what == "plan":
        (node.instances / "plan.json").write_text("{")
    else:
        kept = node.root / "state/instances/tiny/plans"
        kept.mkdir(parents=True)
        (kept / "a.json").write_text("{")
    recipes.prune(paths_of(node), 0)
    assert folder.exists()


def test_a_start_is_recorded_with_whether_it_found_recipes(node: SupervisedNode) -> None:
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
