"""Check a plan before a role writes it to a node: its form, and that it asks for the keys that the instance has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..base.refusal import Refusal
from . import keys

SCHEMA = 1
_INSTANCE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?")
_PATH = re.compile(r"/[^\n\r\x00]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE_BREAK = re.compile(r"[\n\r\x00]")


def check_plan(plan: Mapping[str, Any], api_keys: object) -> None:
    """Raise Refusal for a plan that was refused, that has another form, or that would leave a server with keys open.

    api_keys: the role's option vllm_service_api_keys.
    """
    if "refused" in plan:
        raise Refusal.from_keys(plan)
    if not _is_well_formed(plan):
        raise Refusal(
            "plan_malformed",
            f"The plan of {plan.get('instance')} is not one of the action serving_plan (schema {SCHEMA}): an instance "
            "name is at most 48 of a-z, 0-9 and -, a path is absolute, and no name or value has a line break.",
        )
    if keys.for_instance(api_keys, plan["instance"]) and not plan["guarded"]:
        raise Refusal(
            "keys_not_asked_for",
            f"vllm_service_api_keys has keys for {plan['instance']}, but its plan asks for none. Plan it with guarded: "
            "true.",
        )


def _is_well_formed(plan: Mapping[str, Any]) -> bool:
    try:
        environment = {**plan["environment"], **plan["container"]["environment"]}
        return (
            plan["schema"] == SCHEMA
            and bool(_INSTANCE.fullmatch(plan["instance"]))
            and plan["container"]["name"] == f"vllm-{plan['instance']}"
            and isinstance(plan["guarded"], bool)
            and bool(_PATH.fullmatch(plan["requires"]["weights_path"]))
            and all(_VARIABLE.fullmatch(name) for name in environment)
            and not any(_LINE_BREAK.search(value) for value in environment.values())
        )
    except (KeyError, TypeError):
        return False
