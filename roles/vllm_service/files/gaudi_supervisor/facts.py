"""What this node knows when a server has ended, which decides between the causes of a line of its log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gaudi.faults.facts import Facts
from gaudi.node.open_cards import read_facts
from gaudi.serving.plan import Plan
from gaudi.serving.signs import EngineGone

from . import cards

if TYPE_CHECKING:
    from .instance import Supervisor

# Where the vendor's images name the release of their software (its Dockerfiles, 1.16 to 1.24).
_IMAGE_RELEASE = "RELEASE_VERSION"


def read(boss: Supervisor, plan: Plan) -> Facts:
    """Read what can be read. The instance's own container has ended by now."""
    indexes = {card["index"]: card["module_id"] for card in boss.state["cards"] if "index" in card}
    return replace(
        read_facts(indexes, boss.paths.proc, boss.paths.dev),
        release=plan.release or None,
        driver=boss.past.driver() or None,
        image=_image(boss, plan),
        cards=tuple(card.module_id for card in plan.cards),
        visible=tuple(sorted(cards.driven(boss.paths.sys))) if cards.states(boss.paths.sys) else None,
        model=plan.served_model_name,
        command=plan.command,
    )


def _image(boss: Supervisor, plan: Plan) -> str | None:
    try:
        return (boss.docker.image_environment(plan.image) or {}).get(_IMAGE_RELEASE)
    except EngineGone:
        return None
