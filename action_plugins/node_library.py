"""Hold the library on a node for a role: send module_utils/gaudi of this checkout where it is lacking."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils.node_library import WithLibrary


class ActionModule(WithLibrary):
    """Name the files; send them only where they are needed."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Pass the task's own options on."""
        del tmp
        return self.hold(dict(self._task.args), task_vars)
