"""What a supervisor says of its instance in state.json, for those who read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..faults.words import say
from . import starts
from .kept import SHOWN

# Phases of a server that does not answer, though its unit may be active: not yet, or not any more.
SILENT = ("starting", "loading", "warming-up", "not-answering")

# How a supervisor begins what it says while it waits for a card that was lost.
WAITS_FOR_CARDS = "waiting for its cards"
# The same for its lock, first and after a while. It is told to systemd only: whoever has the lock writes the state.
WAITS_FOR_LOCK = "waiting for its lock"
WAITS_LONG_FOR_LOCK = f"{WAITS_FOR_LOCK}, which somebody keeps"

FORM = {
    "phase": str,
    "status?": str,
    "since?": str,
    "endpoint?": str,
    "container_id?": str,
    "container_started?": str,
    "plan?": str,
    "sized_by?": str,
    "library?": str,
    "program?": str,
    "unit?": str,
    "boot?": str,
    "failures?": int,
    "cards?": [{"module_id": int}],
    "reason?": (dict, type(None)),
    "last_reason?": (dict, type(None)),
    "back?": (dict, type(None)),
    "warm_up?": {str: [int]},
    "warm_up_seconds?": (int, float, type(None)),
    "memory?": dict,
    "starts?": [starts.FORM],
    "recipes?": (dict, type(None)),
    "load?": (dict, type(None)),
    "sockets?": [int],
}
"""The form of state.json (see base.documents.misfit); a program that reads more of it names more."""


def unit_fault(found: Mapping[str, Any], node: str) -> str:
    """Why systemd cannot start an instance, and what a person does about it; empty where it can.

    found: the instance as node.instances.read has it. node: its name in the inventory.
    """
    name, load = str(found["instance"]), str(found["load"])
    if load == "loaded":
        return ""
    what = {"not-found": "has no unit", "masked": "is masked"}.get(load, f"has a unit that systemd cannot use ({load})")
    return say("no_unit", instance=name, what=what, node=node)


def went_back(state: Mapping[str, Any], label: str | None) -> str:
    """Why an instance that serves does not serve with the plan that it is to, in a sentence; empty where it does.

    label: the digest on the container that is to be there; None where nobody wishes for one.
    """
    back = state.get("back")
    if not back or label is None or state.get("plan") == label:
        return ""
    what = f"{back['by']} took it back" if back["by"] else f"it failed: {back['reason']}"
    since = f" since {state['ready']}" if "ready" in state else ""
    before, after = back["before"][:SHOWN], back["after"][:SHOWN]
    return (
        f"the new plan {before} does not serve, because {what.rstrip('.')}. The instance is back on the plan {after}: "
        f"{state.get('status', 'serving')}{since}. Change the inventory, or have the new plan tried once more with "
        "-e retry=true. playbooks/history.yml shows the plans."
    )
