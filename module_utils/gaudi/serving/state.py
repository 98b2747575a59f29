"""Fields of state.json, which a supervisor writes about its instance."""

from __future__ import annotations

from . import counts, loading, starts

# ActiveState values of a unit that runs or is starting; "is-active" denies the latter.
RUNNING = ("active", "activating", "reloading")

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
