"""Why an instance cannot be started, or does not serve with its new plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.printable import printable
from ..faults.words import say
from .kept import SHOWN


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
    """Return why a serving instance does not serve with the plan that was requested last; "" if it does.

    label: the digest that its container should have; None if no plan was requested.
    """
    back = state.get("back")
    if not back or label is None or state.get("plan") == label:
        return ""
    what = f"{back['by']} took it back" if back["by"] else f"it failed: {back['reason']}"
    since = f" since {state['ready']}" if "ready" in state else ""
    before, after = back["before"][:SHOWN], back["after"][:SHOWN]
    return (
        f"the new plan {before} does not serve, because {what.rstrip('.')}. The instance is back on the plan {after}: "
        f"{state.get('status', 'serving')}{since}. Change the inventory, or have the new plan tried again with "
        "-e retry=true. playbooks/history.yml shows the plans."
    )


def no_other_start(instance: str, why: str) -> str:
    """Return that an instance could not start again; "" without a reason. why: a clause."""
    sentence: str = printable(f"{instance} could not start again: {why.rstrip('.')}.") if why else ""
    return sentence


def translated(found: Mapping[str, str]) -> str:
    """Return why cards must not be used behind an IOMMU; "" if they may. found: node.iommu.translated."""
    if not found:
        return ""
    sentence = say("iommu-translates", found["case"], cards=found["cards"])
    return f"{sentence} {found['damage']}, so that nothing counts as allowed." if found["damage"] else sentence
