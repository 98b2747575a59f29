"""Send the library to a node that does not have it: module_utils/gaudi of this checkout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.library import digest

PACKAGE = brain.ROOT / "module_utils" / "gaudi"


def files() -> dict[str, str]:
    """The library's files: text by relative name."""
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Name the files; send them only where they are needed."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the module with the digest alone; call it again with the files where it needs them."""
        del tmp
        here = files()
        arguments = {**self._task.args, "digest": digest(here)}
        answer: dict[str, Any] = self._execute_module("node_library", module_args=arguments, task_vars=task_vars)
        if answer.get("needed") and not self._task.check_mode:
            arguments["files"] = here
            answer = self._execute_module("node_library", module_args=arguments, task_vars=task_vars)
        return answer
