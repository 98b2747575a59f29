"""Read vLLM instances; with follow, follow their start from the controller, and show how far they are."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.serving.state import (
    SILENT,
    WAITS_FOR_CARDS,
    WAITS_FOR_LOCK,
    WAITS_LONG_FOR_LOCK,
)
from ansible.module_utils.gaudi.serving.unserved import went_back

from plugin_utils.following import Following, unanswered
from plugin_utils.screen import WAITING

FOLLOWING: dict[str, Any] = {
    "follow": {"type": "bool", "default": False},
    "instances": {"type": "list", "elements": "str", "required": True},
    "labels": {"type": "dict", "default": {}},
    "timeout": {"type": "int", "default": 14400},
    "interval": {"type": "int", "default": 10},
}
SETTLED = {"active", "inactive", "failed"}
# The start limit of the unit.
LIMIT_STARTS = 10
LIMIT_SECONDS = 600


# How a supervisor's status begins while it waits for a person to act, and what happens after that.
WAITS = {
    WAITS_FOR_CARDS: "It starts by itself once it has them.",
    WAITS_LONG_FOR_LOCK: "It starts by itself once that is free.",
}


def waits(found: dict[str, Any]) -> str:
    """The start time of an instance whose supervisor waits for a person; empty where it does not wait.

    systemd forgets the status at the next start.
    """
    if found["active"] != "activating":
        return ""
    return next((then for begin, then in WAITS.items() if found["said"].startswith(begin)), "")


def settled(found: dict[str, Any]) -> bool:
    """Has the start ended, well or badly, so that there is nothing left to follow?

    An active unit may start as well, since somebody has started its container again, or hang, which its supervisor ends
    after a while. A supervisor that cannot write its state any more still tells systemd that it serves. A supervisor
    that waits for a lost card, or for a lock of another process, may wait for days.
    """
    if waits(found):
        return True
    silent = found["active"] == "active" and found["state"].get("phase") in SILENT
    if silent and not found["said"].startswith("serving "):
        return False
    return found["active"] in SETTLED and not found["job"]


def line(host: str, found: dict[str, Any]) -> str:
    """One line of progress, as people read it."""
    state = found["state"]
    if found["sub"] == "auto-restart" and state.get("phase") not in ("handing-over", "going-back"):
        text = f"a try failed, systemd starts it again: {found['said'] or state.get('status', 'no reason was left')}"
    elif found["active"] == "activating" and found["said"].startswith(WAITS_FOR_LOCK):
        text = found["said"]
    else:
        text = state.get("status", "waiting for systemd to start it")
    return printable(f"[{host}: {found['instance']}] {text}")


def at_its_limit(found: dict[str, Any]) -> bool:
    """Has systemd given the unit up? It keeps how the last start ended, and says that in the journal alone."""
    reason = found["state"].get("reason") or {}
    its_own_end = found["state"].get("phase") == "failed" and (not reason.get("retry") or found["state"].get("gave_up"))
    often = found["result"] == "start-limit-hit" or found["restarts"] >= LIMIT_STARTS - 1
    return found["active"] == "failed" and often and not its_own_end


def failure(host: str, found: dict[str, Any]) -> str:
    """Why an instance does not serve, in its supervisor's own words."""
    unit = f"vllm-{found['instance']}.service"
    said = found["state"].get("status") if found["state"].get("phase") in ("failed", "stopped") else None
    text = said or f"{unit} ended ({found['result']}) before its supervisor could say why."
    if then := waits(found):
        text = f"{found['said'].rstrip('.')}. {then}"
    elif found["said"]:
        # Systemd has its words where the state cannot be written.
        text = found["said"] if said else f"{text} It said last: {found['said']}."
    if at_its_limit(found):
        text = (
            f"{text.rstrip('.')}. It was started {LIMIT_STARTS} times within {LIMIT_SECONDS} seconds, so systemd "
            "starts it no more (its start limit). Once that is repaired, playbooks/start.yml starts it again."
        )
    return printable(f"{found['instance']} does not serve on {host}: {text.rstrip('.')}. More: journalctl -u {unit}")


class ActionModule(Following):
    """The action."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Look; with follow show, and look again, until every instance is settled."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        if not boolean(self._task.args.get("follow", False)):
            return {**result, **self._execute_module(module_name="vllm_service_info", task_vars=variables)}
        _, options = self.validate_argument_spec(argument_spec=FOLLOWING)
        host = str(variables.get("inventory_hostname", "node"))
        shown: dict[str, tuple[str, str, float]] = {}
        progress: list[str] = []
        deadline = time.monotonic() + options["timeout"]
        digest, wait = "", 0
        while True:
            looked = self.look(
                "vllm_service_info",
                {"instances": options["instances"], "seen": digest, "wait": wait},
                variables,
                what=f"the start of {', '.join(options['instances'])}",
                again="Run the playbook again to follow further, or look with playbooks/status.yml.",
            )
            if unanswered(looked):
                return {**result, **looked}
            # The module answers at once when a phase changes; what is in between is shown every interval.
            digest, wait = looked["digest"], options["interval"]
            self._show(host, looked["instances"], shown, progress, options["interval"])
            result.update(changed=False, instances=looked["instances"], progress=progress)
            if self._task.check_mode or all(settled(found) for found in looked["instances"]):
                break
            if time.monotonic() > deadline:
                waiting = "; ".join(line(host, found) for found in looked["instances"] if not settled(found))
                hint = "The units go on: run the playbook again to follow further."
                return {**result, "failed": True, "msg": f"Not ready after {options['timeout']} s. {waiting}. {hint}"}
        bad = [failure(host, found) for found in looked["instances"] if found["active"] != "active"]
        bad += [
            printable(f"{found['instance']} on {host}: {said}")
            for found in looked["instances"]
            if found["active"] == "active"
            and (said := went_back(found["state"], options["labels"].get(found["instance"])))
        ]
        if bad and not self._task.check_mode:
            # The sentence is the result; the whole state below it would hide it.
            return {"failed": True, "changed": False, "msg": " ".join(bad)}
        return result

    def _show(
        self,
        host: str,
        instances: list[dict[str, Any]],
        shown: dict[str, tuple[str, str, float]],
        progress: list[str],
        interval: int,
    ) -> None:
        """Show what is new: a new phase at once, progress within one now and then."""
        for found in instances:
            text, phase, now = line(host, found), str(found["state"].get("phase")), time.monotonic()
            last_text, last_phase, last_time = shown.get(found["instance"], ("", "", 0.0))
            if text != last_text and (phase != last_phase or now - last_time >= interval):
                shown[found["instance"]] = (text, phase, now)
                progress.append(text)
                Display().display(WAITING + text)
