"""Make an API key on the controller and show it there once; later tasks get only its digest."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.serving.keys import digest_of

ARGUMENT_SPEC: dict[str, Any] = {
    "words": {"type": "str", "required": True},
    "show_in_log": {"type": "bool", "default": False},
}
# Read at import, in the process of the terminal: the workers that Ansible forks later have no standard output.
TERMINAL = os.isatty(1)
# Programs that keep the output, by a variable that each sets. They may give ansible-playbook a terminal.
RECORDERS = {"AWX_ISOLATED_DATA_DIR": "ansible-runner, as AWX uses it", "CI": "a CI job (CI is set)"}
# What scanners for secrets find it by.
PREFIX = "gaudi-"
BYTES = 32


def check_screen(terminal: bool, environment: Mapping[str, str]) -> None:
    """Refuse an output that may be kept: no terminal, or a program that records it."""
    recorder = next((who for variable, who in RECORDERS.items() if environment.get(variable)), "")
    if terminal and not recorder:
        return
    found = f"The output of this run is recorded by {recorder}" if recorder else "The output of this run is no terminal"
    raise Refusal(
        "key_would_be_logged",
        f"{found}: a new key would stay in it, and no key was made. Run this playbook in a terminal. Or give the "
        "instance a key in vllm_service_api_keys. If everybody who can read this output may have the key, add "
        "-e show_in_log=true.",
    )


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Runs on the controller only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Draw, show, return the digest. The key is in no result, so that no callback and no log has it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        try:
            if not arguments["show_in_log"]:
                check_screen(TERMINAL, os.environ)
        except Refusal as refusal:
            return {**result, "failed": True, "msg": str(refusal), "refused_id": refusal.id}
        if self._task.check_mode:
            return {**result, "changed": True, "digest": "0" * 64}
        key = PREFIX + secrets.token_urlsafe(BYTES)
        # Not to log_path: a reader of the log must not get the key.
        Display().display(f"\n{arguments['words']}\n\n    {key}\n", screen_only=True)
        return {**result, "changed": True, "digest": digest_of(key)}
