"""Follow long work on a node from the controller, and show how far it is."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ansible.utils.display import Display

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.printable import printable

from plugin_utils.following import Following, bar, unanswered
from plugin_utils.screen import WAITING


def failure(host: str, job: dict[str, Any], begun: bool) -> str:
    """Why the work did not succeed, in its own words. begun: whether it was started, by whomever."""
    unit = f"gaudi-job@{job['key']}.service"
    if job["status"] == "absent" and begun:
        return (
            f"{job['key']} on {host} has ended, and nothing is written of how: its folder below /var/lib/gaudi-serving "
            f"cannot be written to, as on a file system without room or free inodes. journalctl -u {unit} has its "
            "words. Make room, then run this again."
        )
    if job["status"] == "absent":
        return f"{job['key']} was never started on {host}; playbooks/jobs.yml lists what was."
    said = job["state"].get("message", "cut off by a kill or a restart of the node; run it again to continue")
    return printable(f"{job['key']} on {host}: {job['status']}: {said}. More: journalctl -u {unit}")


class Voice:
    """Shows progress, a line now and then."""

    def __init__(self, host: str, key: str, interval: int) -> None:
        self.label = f"[{host}: {key}]"
        self.interval = interval
        self.said = ""
        self.said_at = 0.0

    def opening(self, host: str, key: str) -> None:
        """Say how to come back before following begins: after Ctrl-C nothing can be said."""
        Display().display(
            f"{self.label} The work belongs to the node; Ctrl-C only stops watching. Watch again: run this again, or "
            f"ansible-playbook playbooks/jobs.yml --limit {host} -e job_key={key}"
        )

    def show(self, job: dict[str, Any]) -> None:
        """Show how far it is, if that is news."""
        text = printable(f"{self.label} {bar(job['progress'].get('done'), job['progress'].get('total'))}{job['text']}")
        now = time.monotonic()
        if text != self.said and now - self.said_at >= self.interval:
            Display().display(WAITING + text)
            self.said, self.said_at = text, now


class ActionModule(Following):
    """The action."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start or attach through the module, then look until the work ends."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        options = dict(self._task.args)
        state = str(options.get("state", "finished"))
        begun = self._execute_module(module_name="node_job", module_args=options, task_vars=variables)
        if begun.get("failed") or self._task.check_mode or state not in ("finished", "followed"):
            return {**result, **begun}
        host = str(variables.get("inventory_hostname", "node"))
        voice = Voice(host, str(options["key"]), int(options.get("interval", 30)))
        looked = begun
        if looked["job"]["status"] == "running":
            voice.opening(host, str(options["key"]))
        while looked["job"]["status"] == "running":
            voice.show(looked["job"])
            looked = self.look(
                "node_job",
                {
                    "key": options["key"],
                    "state": "read",
                    "seen": looked["digest"],
                    "wait": voice.interval,
                },
                variables,
                what=str(options["key"]),
                again=f"Run this again to follow further, or ansible-playbook playbooks/jobs.yml --limit {host} "
                f"-e job_key={options['key']}.",
            )
            if unanswered(looked):
                return {**result, **looked}
        voice.show(looked["job"])
        result.update(looked)
        result["changed"] = bool(begun["changed"])
        if looked["job"]["status"] != "succeeded":
            left = looked["job"]["state"].get("result") or {}
            result.update(
                failed=True,
                msg=failure(host, looked["job"], state == "finished"),
                refused_id=str(left.get("refused_id", "")),
            )
        return result
