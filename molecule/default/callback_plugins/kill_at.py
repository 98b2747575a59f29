"""End a run the hard way when a task begins: what a lost controller leaves behind."""

from __future__ import annotations

import os
import signal

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core carries no types
    """Kill this process at the task whose name ends with KILL_AT."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kill_at"

    def v2_playbook_on_task_start(self, task: object, is_conditional: bool) -> None:
        """Called before the task runs anywhere."""
        if str(task).removeprefix("TASK: ").endswith(os.environ["KILL_AT"]):
            os.kill(os.getpid(), signal.SIGKILL)
