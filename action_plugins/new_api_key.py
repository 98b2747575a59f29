"""Make an API key on the controller and show it there once; later tasks get only its digest."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.serving.keys import digest_of

ARGUMENT_SPEC: dict[str, Any] = {"words": {"type": "str", "required": True}}
# What scanners for secrets find it by.
PREFIX = "gaudi-"
BYTES = 32


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Runs on the controller only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Draw, show, return the digest. The key is in no result, so that no callback and no log has it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {**result, "changed": True, "digest": "0" * 64}
        key = PREFIX + secrets.token_urlsafe(BYTES)
        # Not to log_path: a reader of the log must not get the key.
        Display().display(f"\n{arguments['words']}\n\n    {key}\n", screen_only=True)
        return {**result, "changed": True, "digest": digest_of(key)}
