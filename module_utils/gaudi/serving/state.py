"""What a supervisor says of its instance in state.json, for those who read it."""

from __future__ import annotations

# Phases of a server that does not answer yet.
STARTING = ("starting", "loading", "warming-up")

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
    "warm_up?": {str: [int]},
    "warm_up_seconds?": (int, float, type(None)),
    "memory?": dict,
}
"""The form of state.json (see base.documents.misfit); a program that reads more of it names more."""
