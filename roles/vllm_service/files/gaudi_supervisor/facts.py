"""What this node knows when a server has ended, which decides between the causes of a line of its log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gaudi.faults.facts import Facts
from gaudi.image.versions import vendor_release
from gaudi.node.open_cards import read_facts, read_passed
from gaudi.serving.failure import EngineGone
from gaudi.serving.plan import Plan

if TYPE_CHECKING:
    from .instance import Supervisor


def read(boss: Supervisor, plan: Plan) -> Facts:
    """Read what can be read. The instance's own container has ended by now."""
    return replace(
        read_facts(_indexes(boss), boss.paths.proc, boss.paths.dev, boss.paths.sys),
        release=plan.release or None,
        driver=boss.past.driver() or None,
        image=_image(boss, plan),
        cards=tuple(card.module_id for card in plan.cards),
        model=plan.served_model_name,
        command=plan.command,
    )


def passed(boss: Supervisor) -> tuple[int, ...] | None:
    """Return the module ids of the plan's cards that the container has; None while it does not run."""
    try:
        found = boss.own_container()
    except EngineGone:
        return None
    if found is None or not found.running:
        return None
    return read_passed(found.pid, _indexes(boss), boss.paths.proc, boss.paths.dev)


def _indexes(boss: Supervisor) -> dict[int, int]:
    return {card["index"]: card["module_id"] for card in boss.state["cards"] if "index" in card}


def _image(boss: Supervisor, plan: Plan) -> str | None:
    try:
        return vendor_release(plan.image, boss.docker.image_labels(plan.image))
    except EngineGone:
        return None
