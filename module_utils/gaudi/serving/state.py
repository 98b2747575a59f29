"""Fields of state.json, which a supervisor writes about its instance, and their meaning for readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..faults.words import say
from . import counts, loading, starts
from .kept import SHOWN

# Phases in which a server does not answer, although its unit may be active.
SILENT = ("starting", "loading", "warming-up", "not-answering")

# Beginning of the status while a supervisor waits for a lost card.
WAITS_FOR_CARDS = "waiting for its cards"
# The same for its lock, at first and after a while. Only systemd gets it, as the holder of the lock writes state.json.
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
    "loading?": loading.FORM,
    "low_memory?": (dict, type(None)),
    "load?": (dict, type(None)),
    "counts?": counts.FORM,
    "sockets?": [int],
}
"""The form of state.json (see base.documents.misfit); a program that reads more of it names more."""


def unit_fault(found: Mapping[str, Any], node: str) -> str:
    """Return why systemd cannot start an instance, and what to do; "" if it can.

    found: the instance as node.instances.read returns it. node: its name in the inventory.
    """
    name, load = str(found["instance"]), str(found["load"])
    if load == "loaded":
        return ""
    what = {"not-found": "has no unit", "masked": "is masked"}.get(load, f"has a unit that systemd cannot use ({load})")
    return say("no-unit", instance=name, what=what, node=node)


def went_back(state: Mapping[str, Any], label: str | None) -> str:
    """Return why a serving instance does not serve with its wished plan; "" if it does.

    label: the digest that its container should have; None without a wish.
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
