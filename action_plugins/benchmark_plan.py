"""Give the module benchmark_plan what the release files say of their benchmark clients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import releases

KEYS = ("benchmark", "fork_directory")


def clients() -> dict[str, dict[str, Any]]:
    """What each release says of its client, by its name."""
    read = {name: releases.read(name) for name in releases.names()}
    return {name: {key: content[key] for key in KEYS if key in content} for name, content in read.items()}


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """The action."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call the module."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        options = {**self._task.args, "releases": clients()}
        result.update(self._execute_module("benchmark_plan", options, task_vars=task_vars))
        return result
