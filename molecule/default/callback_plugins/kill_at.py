"""End a run the hard way when a task begins: what a lost controller leaves behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core carries no types
    """Kill this process at a task: KILL_AT is its number, from 0 on, or what its name ends with.

    TASK_LOG names a file that all names are added to.
    """

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kill_at"

    def __init__(self, *arguments: object, **options: object) -> None:
        """Count from the first task on."""
        super().__init__(*arguments, **options)
        self._number = 0

    def v2_playbook_on_task_start(self, task: object, is_conditional: bool) -> None:
        """Called before the task runs anywhere."""
        name, wanted = str(task).removeprefix("TASK: "), os.environ.get("KILL_AT", "")
        if log := os.environ.get("TASK_LOG"):
            with Path(log).open("a", encoding="utf-8") as names:
                names.write(f"{name}\n")
        if wanted == str(self._number) or (wanted and not wanted.isdigit() and name.endswith(wanted)):
            os.kill(os.getpid(), signal.SIGKILL)
        self._number += 1
