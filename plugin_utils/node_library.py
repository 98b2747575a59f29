"""The library that programs on a node import: module_utils/gaudi of this checkout, sent to nodes that lack it."""

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


class WithLibrary(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """The action of node_files. Its option library_for names the role whose programs are among the files.

    One task holds the library first and the programs after it, so that no program is there before what it imports.
    The node's log names neither call: it would have the text of every file.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Hold the library where library_for is given, then call the module.

        Adds library_changed to its answer: whether files of the library were, or would be, changed.
        """
        del tmp
        arguments = dict(self._task.args)
        role = arguments.pop("library_for", None)
        library = self.hold({"user": role}, task_vars) if role else {}
        if library.get("failed"):
            return library
        answer = self._call("node_files", arguments, task_vars)
        changed = bool(library.get("changed"))
        diff = [library["diff"]] if changed else []
        mine = answer.get("diff") or []
        return {
            **answer,
            "library_changed": bool(library.get("installed")),
            "changed": changed or bool(answer.get("changed")),
            "diff": diff + (mine if isinstance(mine, list) else [mine]),
        }

    def hold(self, asked: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Call the module node_library with the digest alone; call it again with the files where it needs them."""
        here = files()
        arguments = {**asked, "digest": digest(here)}
        answer = self._call("node_library", arguments, task_vars)
        if answer.get("needed") and not self._task.check_mode:
            arguments["files"] = here
            answer = self._call("node_library", arguments, task_vars)
        return answer

    def _call(self, name: str, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        unlogged = {**(task_vars or {}), "ansible_no_target_syslog": True}
        answer: dict[str, Any] = self._execute_module(name, module_args=arguments, task_vars=unlogged)
        return answer
