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

from plugin_utils.following import Following

# Seconds the module on the node waits in one call for the end, or for another phase, while a bar moves. A line every
# interval needs no look in between.
QUICK_LOOK = 1
BAR = 24


def bar(job: dict[str, Any]) -> str:
    """A bar of fixed width, or nothing while there are no figures."""
    done, total = job["progress"].get("done"), job["progress"].get("total")
    if not isinstance(done, (int, float)) or not isinstance(total, (int, float)) or total <= 0:
        return ""
    full = min(BAR, int(BAR * done / total))
    return f"[{'#' * full}{'.' * (BAR - full)}] "


def failure(host: str, job: dict[str, Any]) -> str:
    """Why the work did not succeed, in its own words."""
    if job["status"] == "absent":
        return f"{job['key']} was never started on {host}; playbooks/jobs.yml lists what was."
    said = job["state"].get("message", "cut off by a kill or a restart of the node; run it again to continue")
    unit = f"gaudi-job@{job['key']}.service"
    return printable(f"{job['key']} on {host}: {job['status']}: {said}. More: journalctl -u {unit}")


class Voice:
    """Shows progress: a bar that moves on a terminal with one host, a line now and then everywhere else."""

    def __init__(self, host: str, key: str, interval: int, alone: bool) -> None:
        self.label = f"[{host}: {key}]"
        self.interval = interval
        self.moving = alone and sys.stderr.isatty()
        self.said = ""
        self.said_at = 0.0
        self.open = False

    def opening(self, host: str, key: str) -> None:
        """Say how to come back before following begins: after Ctrl-C nothing can be said."""
        Display().display(
            f"{self.label} The work belongs to the node; Ctrl-C only stops watching. Watch again: run this again, or "
            f"ansible-playbook playbooks/jobs.yml --limit {host} -e job_key={key}"
        )

    def show(self, job: dict[str, Any]) -> None:
        """Show how far it is, if that is news."""
        said = printable(job["text"])
        text = f"{self.label} {said}"
        now = time.monotonic()
        if self.moving:
            print(f"\r\033[K{self.label} {bar(job)}{said}", end="", file=sys.stderr, flush=True)
            self.open = True
        elif text != self.said and now - self.said_at >= self.interval:
            Display().display(text)
            self.said, self.said_at = text, now

    def close(self) -> None:
        """Leave the line of the bar."""
        if self.open:
            print(file=sys.stderr)


class ActionModule(Following):
    """The action."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start or attach through the module, then look until the work ends."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        options = dict(self._task.args)
        wish = str(options.get("state", "finished"))
        begun = self._execute_module(module_name="node_job", module_args=options, task_vars=variables)
        if begun.get("failed") or self._task.check_mode or wish not in ("finished", "followed"):
            return {**result, **begun}
        host = str(variables.get("inventory_hostname", "node"))
        alone = len(variables.get("ansible_play_hosts", [host])) == 1
        voice = Voice(host, str(options["key"]), int(options.get("interval", 30)), alone)
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
                    "wait": QUICK_LOOK if voice.moving else voice.interval,
                },
                variables,
                what=str(options["key"]),
                again=f"Run this again to follow further, or ansible-playbook playbooks/jobs.yml --limit {host} "
                f"-e job_key={options['key']}.",
            )
            if looked.get("failed"):
                voice.close()
                return {**result, **looked}
        voice.show(looked["job"])
        voice.close()
        result.update(looked)
        result["changed"] = bool(begun["changed"])
        if looked["job"]["status"] != "succeeded":
            left = looked["job"]["state"].get("result") or {}
            result.update(failed=True, msg=failure(host, looked["job"]), refused_id=str(left.get("refused_id", "")))
        return result
