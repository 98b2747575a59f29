"""What this node knows when a server has ended, which decides between the causes of a line of its log."""

from __future__ import annotations

from dataclasses import replace

from gaudi.faults.facts import Facts
from gaudi.image.labels import vendor_release
from gaudi.node.open_cards import read_facts, read_passed
from gaudi.serving.failure import EngineGone
from gaudi.serving.plan import Plan

from .engine import Container, Docker
from .settings import Paths
from .state import SupervisorState


def read(plan: Plan, driver: str, state: SupervisorState, paths: Paths, docker: Docker) -> Facts:
    """Read what can be read. The instance's own container has ended by now. driver: its version, or empty."""
    return replace(
        read_facts(_indexes(state), paths.proc, paths.dev, paths.sys),
        release=plan.release or None,
        driver=driver or None,
        image=_image(plan, docker),
        cards=tuple(card.module_id for card in plan.cards),
        model=plan.served_model_name,
        command=plan.command,
    )


def passed(found: Container | None, state: SupervisorState, paths: Paths) -> tuple[int, ...] | None:
    """Return the module ids of the plan's cards that a container has; None while it does not run."""
    if found is None or not found.running:
        return None
    return read_passed(found.pid, _indexes(state), paths.proc, paths.dev)


def _indexes(state: SupervisorState) -> dict[int, int]:
    return {card["index"]: card["module_id"] for card in state.document["cards"] if "index" in card}


def _image(plan: Plan, docker: Docker) -> str | None:
    try:
        return vendor_release(plan.image, docker.image_labels(plan.image))
    except EngineGone:
        return None
