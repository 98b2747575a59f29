"""Have another command run to its end when a task of a run begins: what a second controller does meanwhile."""

from __future__ import annotations

import json
import os
import subprocess

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core carries no types
    """Run RUN_COMMAND, an argument vector as JSON, at the task whose name ends with RUN_AT."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "run_at"

    def v2_playbook_on_task_start(self, task: object, is_conditional: bool) -> None:
        """Called before the task runs anywhere."""
        wanted = os.environ.get("RUN_AT")
        if not wanted or not str(task).endswith(wanted):
            return
        environment = {name: value for name, value in os.environ.items() if name != "RUN_AT"}
        ran = subprocess.run(
            json.loads(os.environ["RUN_COMMAND"]), env=environment, capture_output=True, text=True, check=False
        )
        # Where it did not end well, the scenario shows why.
        self._display.display(f"Meanwhile, status {ran.returncode}: {ran.stdout}{ran.stderr}")
