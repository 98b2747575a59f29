"""Which compiled recipes a node has, and which it lacks before a start, as the preflight says it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.node import folders, instances

from library import gaudi_preflight

KEY = "qwen3-8b-bfloat16-hl225-tp1-0123456789ab"
LACKS: dict[str, str] = {KEY: "chat"}


@pytest.mark.parametrize(
    ("there", "state", "carries", "has", "lacks"),
    [
        ("", None, True, {}, LACKS),
        (f"{KEY}/chat/a.recipe", None, True, {KEY: "chat"}, {}),
        # Another instance of the node gives a copy.
        (f"{KEY}/talk/a.recipe", None, True, {KEY: "talk"}, {}),
        # These are on their way from another node, and nobody's yet.
        (f"{KEY}.carried/chat/a.recipe", None, True, {}, LACKS),
        # It was installed, and does not run.
        ("", "failed", True, {}, LACKS),
        # It is about to compile, or had nothing to compile.
        ("", "activating", True, {}, {}),
        ("", "active", True, {}, {}),
        # A site that wants none of it.
        ("", None, False, {}, {}),
        (f"{KEY}/talk/a.recipe", None, False, {}, {}),
    ],
)
def test_a_node_says_which_recipes_it_has_and_lacks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: str,
    state: str | None,
    carries: bool,
    has: dict[str, str],
    lacks: dict[str, str],
) -> None:
    recipes = tmp_path
    look = folders.keys_with_recipes
    monkeypatch.setattr(folders, "keys_with_recipes", lambda _place: look(recipes))
    monkeypatch.setattr(instances, "is_up", lambda *_: state in ("active", "activating"))
    if there:
        (recipes / there).parent.mkdir(parents=True)
        (recipes / there).write_text("x")
    plan: dict[str, Any] = {
        "instance": "chat",
        "environment": {"PT_HPU_RECIPE_CACHE_CONFIG": "/cache,false,5"},
        "container": {"mounts": [{"source": f"{paths.RECIPES}/{KEY}/chat", "target": "/cache"}]},
    }
    # One that keeps its recipes in a directory of its own, and one that keeps none.
    others = [
        {**plan, "instance": "own", "container": {"mounts": [{"source": "/data/own", "target": "/cache"}]}},
        {**plan, "instance": "none", "environment": {}},
    ]
    module: Any = SimpleNamespace(params={"plans": [plan, *others], "carry_recipes": carries})
    before = {"chat": plan} if state else {}
    assert gaudi_preflight.look_at_recipes(module, before) == {"has": has, "lacks": lacks}
