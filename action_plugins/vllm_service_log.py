"""Show what a vLLM instance writes to the journal of its node, and follow it until somebody interrupts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.utils.display import Display

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.printable import printable

from plugin_utils.following import Following, unanswered

ARGUMENT_SPEC: dict[str, Any] = {
    "instance": {"type": "str", "required": True},
    "lines": {"type": "int", "default": 100},
    "since": {"type": "str", "default": ""},
    "follow": {"type": "bool", "default": False},
}
# Seconds that the node waits for a new line before it answers that there is none.
WAIT = 20


class ActionModule(Following):
    """The action."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the last lines; on request each new one as it comes."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        variables = task_vars or {}
        host, instance = str(variables.get("inventory_hostname", "node")), options["instance"]
        follow = options.pop("follow")
        asked: dict[str, Any] = {"log": options}
        while True:
            looked = self.look(
                "vllm_service_info",
                asked,
                variables,
                what=f"the log of {instance}",
                again="Run the playbook again to follow further.",
            )
            if unanswered(looked):
                return {**result, **looked}
            for line in looked["lines"]:
                Display().display(printable(f"[{host}: {instance}] {line}"))
            if not follow or self._task.check_mode:
                return {**result, "changed": False, "shown": len(looked["lines"])}
            asked = {"log": {**options, "after": looked["cursor"]}, "wait": WAIT}
