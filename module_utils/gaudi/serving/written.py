"""The plan of an instance as it lies on a node: what was written is read back, or found to be damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..base.documents import DEEPEST, deeper

# What is read of a plan again, and what each part is.
_PARTS = {
    "container": dict,
    "requires": dict,
    "environment": dict,
    "arguments": list,
    "modules": list,
    "cpu_binding": list,
}


def parse(content: str) -> dict[str, Any]:
    """Read the content of plan.json. Raises ValueError with what is wrong; a part that is left out is not."""
    try:
        plan = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(plan, dict) or not plan:
        raise ValueError("it is no plan")
    if deeper(plan, DEEPEST):
        raise ValueError("it is nested too deeply")
    for name, kind in _PARTS.items():
        _check(plan, name, kind)
    container = plan.get("container", {})
    _check(container, "mounts", list)
    _check(container, "environment", dict)
    if not all(isinstance(mount, dict) for mount in container.get("mounts", [])):
        raise ValueError("a mount is no mapping")
    if not all(isinstance(card, dict) and "module_id" in card for card in plan.get("modules", [])):
        raise ValueError("a module has no module_id")
    return plan


def _check(part: Mapping[str, Any], name: str, kind: type) -> None:
    if name in part and not isinstance(part[name], kind):
        raise ValueError(f"{name} is of another type")
