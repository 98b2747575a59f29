"""Write files of ours; with library_for also the library that the programs among them import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base import library

PACKAGE = brain.ROOT / "module_utils" / "gaudi"


def library_files() -> dict[str, str]:
    """The library's files: text by relative name."""
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Call the module; where the node lacks the library, call it again with its files.

    The node's log names no call: it would have the text of every file.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Add the library's digest where library_for is given, then call the module."""
        del tmp
        arguments, unlogged = dict(self._task.args), {**(task_vars or {}), "ansible_no_target_syslog": True}
        files = library_files() if arguments.get("library_for") else {}
        if files:
            arguments["library_digest"] = library.digest(files)
        answer: dict[str, Any] = self._execute_module("node_files", module_args=arguments, task_vars=unlogged)
        if answer.get("needed"):
            arguments["library_files"] = files
            answer = self._execute_module("node_files", module_args=arguments, task_vars=unlogged)
            # It repeats the text of every file.
            answer.pop("invocation", None)
        return answer
