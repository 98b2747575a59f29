"""Compiled recipes: who can use the same ones, and where an instance's lie."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.recipes import RecipeKey, folder_of, is_keyed
from ansible.module_utils.gaudi.node.weight_folders import shared_by_nodes
from ansible.module_utils.gaudi.serving.plan import recipe_directory

KEY = RecipeKey(
    model="Qwen/QwQ 32B",
    revision="abc",
    quantization="fp8 file.json",
    image="base:1",
    driver="1.22.2-32",
    card_type="HL-225",
    cards=2,
    dtype="bfloat16",
    block_size=128,
)


def test_a_folder_is_called_by_what_is_in_it() -> None:
    assert KEY.folder.startswith("qwq-32b-bfloat16-hl225-tp2-")
    assert folder_of(KEY, "a") == f"/var/lib/gaudi-serving/recipes/{KEY.folder}/a"
    assert replace(KEY).folder == KEY.folder


@pytest.mark.parametrize("name", [field.name for field in fields(RecipeKey)])
def test_everything_of_the_key_makes_another_folder(name: str) -> None:
    value: Any = getattr(KEY, name)
    other: dict[str, Any] = {name: value + 1 if isinstance(value, int) else value + "x"}
    assert replace(KEY, **other).folder != KEY.folder


def test_any_name_of_a_model_makes_one_folder() -> None:
    for name in ("", "/", "../..", "/data/models/Ünï", "a" * 500):
        folder = replace(KEY, model=name).folder
        assert "/" not in folder and folder[0] != "." and len(folder) < 128


def test_where_recipes_lie_on_the_node() -> None:
    environment = {"PT_HPU_RECIPE_CACHE_CONFIG": "/data/recipe_cache/a,false,5"}
    mounts = [{"source": folder_of(KEY, "a"), "target": "/data/recipe_cache/a"}]
    assert recipe_directory({"environment": environment, "container": {"mounts": mounts}}) == folder_of(KEY, "a")
    assert recipe_directory({"environment": environment}) == "/data/recipe_cache/a"
    assert recipe_directory({"environment": {}, "container": {"mounts": mounts}}) == ""
    assert is_keyed(folder_of(KEY, "a"))
    assert not is_keyed("/data/recipe_cache/a")


def test_a_folder_on_a_file_system_of_all_nodes_is_known() -> None:
    table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / /var/lib/gaudi-serving rw shared:7 - nfs4 filer:/state rw\n"
    assert shared_by_nodes(folder_of(KEY, "a"), table) == "nfs4"
    assert shared_by_nodes("/data/recipe_cache/a", table) == ""
    assert shared_by_nodes("", table) == ""
