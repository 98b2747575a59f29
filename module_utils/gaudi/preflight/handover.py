"""Effects of a run on a node's instances: restarts, cards and ports that pass between instances, and moves.

Only the result of a run is judged, so two instances may swap cards or ports: those that give something up are stopped
before the first one starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.listeners import ANY
from ..cards.users import instance_of, new_user


@dataclass(frozen=True)
class Handover:
    """A card or port that passes from one instance (holder) to another (successor)."""

    what: str
    holder: str
    successor: str


# Parts of a plan that are stored beside it on the node, or that the server decides; a difference there does not restart
# an instance.
_BESIDE = ("explain", "ask", "paths", "warnings", "buckets")


def changed(plans: Sequence[Mapping[str, Any]], before: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the instances, sorted, whose plan on the node differs from the one in ``plans``.

    before: the plans on the node, by instance.
    """
    return sorted(
        plan["instance"]
        for plan in plans
        if plan.get("instance") in before and _document(plan) != _document(before[plan["instance"]])
    )


def _document(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plan.items() if key not in _BESIDE}


def rivals(plans: Sequence[Mapping[str, Any]], before: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the instances, sorted, whose plan on the node has the port or a card of another instance in ``plans``.

    before: the plans on the node, by instance.
    """
    return sorted(
        name
        for name, old in before.items()
        if any(
            name != plan.get("instance") and (_port_of(old, plan) or _modules_of(old) & _modules_of(plan))
            for plan in plans
        )
    )


def cards(
    plans: Sequence[Mapping[str, Any]],
    topology: Mapping[str, Any],
    reserved: Mapping[str, str],
    running: Mapping[str, Mapping[str, Any]],
) -> list[Handover]:
    """Return cards in these plans that another instance has reserved (by module id, as text), uses, or starts with.

    running: plans on the node of instances that run or start, by instance.
    """
    own = {name: old for name, old in running.items() if any(name == plan.get("instance") for plan in plans)}
    users = {card["module_id"]: card.get("users") or [] for card in topology.get("cards", [])}
    found = []
    for plan in plans:
        for module in (card["module_id"] for card in plan.get("modules", [])):
            having = {reserved.get(str(module)), *(instance_of(user) for user in users.get(module, []))}
            having |= {name for name, old in own.items() if module in _modules_of(old)}
            found += [
                Handover(f"module {module}", holder, plan["instance"])
                for holder in sorted(name for name in having if name)
                if holder != plan["instance"]
            ]
    return found


def port(
    plan: Mapping[str, Any], user: Mapping[str, Any] | None, plans: Sequence[Mapping[str, Any]]
) -> Handover | None:
    """Return the handover of a plan's port if an instance listens there that gets another port."""
    holder = None if user is None else instance_of(user)
    wanted = plan["listen"]["port"]
    if holder and any(other["instance"] == holder and other["listen"]["port"] != wanted for other in plans):
        return Handover(f"port {wanted}", holder, plan["instance"])
    return None


def about_to_listen(plan: Mapping[str, Any], running: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return an instance that is starting with the plan's port, in the form of a user; None without one."""
    for name, old in running.items():
        if name != plan["instance"] and _port_of(old, plan):
            return {**new_user(), "unit": f"vllm-{name}.service"}
    return None


def _port_of(old: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Whether two plans listen on the same port of one address."""
    here, there = old.get("listen") or {}, plan.get("listen") or {}
    hosts = {here.get("host"), there.get("host")}
    return bool(here and there and here.get("port") == there.get("port") and (len(hosts) == 1 or hosts & {*ANY}))


def _modules_of(plan: Mapping[str, Any]) -> set[int]:
    return {card["module_id"] for card in plan.get("modules", [])}


def stopped_first(handovers: Iterable[Handover]) -> list[str]:
    """Return the instances that give something up, sorted."""
    return sorted({handover.holder for handover in handovers})


def sentences(handovers: Iterable[Handover]) -> list[str]:
    """Return one sentence for each pair of instances."""
    given: dict[tuple[str, str], list[str]] = {}
    for handover in handovers:
        given.setdefault((handover.holder, handover.successor), []).append(handover.what)
    return [
        f"{holder} gives {' and '.join(what)} up to {successor}, so it is stopped before {successor} starts."
        for (holder, successor), what in given.items()
    ]


def move(plan: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[str]:
    """Say that an instance moves to other cards; ``before``: its plan on the node, None without one."""
    old, new = (sorted(card["module_id"] for card in each.get("modules", [])) for each in (before or {}, plan))
    if not old or old == new:
        return []
    return [f"{plan['instance']} moves from {_modules(old)} to {_modules(new)}."]


def _modules(ids: Sequence[int]) -> str:
    return f"{'module' if len(ids) == 1 else 'modules'} {', '.join(map(str, ids))}"
