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
    """The action of a module that writes programs. Its option library_for names the role whose programs they are.

    One task holds the library first and the programs after it, so that no program is there before what it imports.
    """

    TRANSFERS_FILES = False
    MODULE = ""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Hold the library where library_for is given, then call the module. Adds library_changed to its answer."""
        del tmp
        arguments = dict(self._task.args)
        role = arguments.pop("library_for", None)
        library = self.hold({"user": role}, task_vars) if role else {}
        if library.get("failed"):
            return library
        answer: dict[str, Any] = self._execute_module(self.MODULE, module_args=arguments, task_vars=task_vars)
        changed = bool(library.get("changed"))
        diff = [entry for entry in (library.get("diff"),) if changed and entry]
        mine = answer.get("diff") or []
        return {
            **answer,
            "library_changed": changed,
            "changed": changed or bool(answer.get("changed")),
            "diff": diff + (mine if isinstance(mine, list) else [mine]),
        }

    def hold(self, asked: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Call the module node_library with the digest alone; call it again with the files where it needs them."""
        here = files()
        arguments = {**asked, "digest": digest(here)}
        answer: dict[str, Any] = self._execute_module("node_library", module_args=arguments, task_vars=task_vars)
        if answer.get("needed") and not self._task.check_mode:
            arguments["files"] = here
            answer = self._execute_module("node_library", module_args=arguments, task_vars=task_vars)
        return answer
