"""The plans of a node's instances, as the node reports them: the part ``plans`` of its report, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base import values
from ..base.checks import mapping, switch
from ..base.refusal import Refusal
from ..base.reported import MOST_ENTRIES, sentence
from . import written


@dataclass(frozen=True)
class InstancePlan:
    """What a node has of an instance's plan.

    up: whether the instance runs or starts. damage: why the plan cannot be read, as a clause that begins with "it".
    """

    up: bool
    plan: Mapping[str, Any] | None = None
    damage: str = ""


def plans_in(part: Mapping[str, Any]) -> dict[str, InstancePlan]:
    """Return the plans by instance; what has no instance's name is left out. Raises Refusal for another form."""
    found = mapping(part.get("plans"), "What the node reports of its plans")
    if len(found) > MOST_ENTRIES:
        raise Refusal("too_many_entries", f"The node reports {len(found)} plans, the limit is {MOST_ENTRIES}.")
    return {name: _read(name, each) for name, each in found.items() if values.INSTANCE.fullmatch(name)}


def _read(name: str, value: object) -> InstancePlan:
    found = mapping(value, f"What the node reports of the plan of {name}")
    up, text = switch(found.get("up"), f"Whether {name} runs"), found.get("text")
    if "damage" in found or not isinstance(text, (str, type(None))):
        return InstancePlan(up, damage=sentence(found.get("damage", "it is no text")))
    try:
        return InstancePlan(up, None if text is None else written.parse(text))
    except ValueError as why:
        return InstancePlan(up, damage=sentence(str(why)))
