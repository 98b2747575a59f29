"""What this node knows when a server has ended, which decides between the causes of a line of its log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi.cards.users import owner_of
from gaudi.faults.facts import Facts
from gaudi.node import open_cards
from gaudi.serving.plan import Plan
from gaudi.serving.signs import EngineGone

from . import cards

if TYPE_CHECKING:
    from .instance import Supervisor

# Where the vendor's images name the release of their software.
_IMAGE_RELEASE = "RELEASE_VERSION"


def read(boss: Supervisor, plan: Plan) -> Facts:
    """Read what can be read. What cannot be is left unknown."""
    modules = _modules(boss.paths.proc)
    states = cards.states(boss.paths.sys)
    return Facts(
        release=plan.release or None,
        driver=boss.past.driver() or None,
        image=_image(boss, plan),
        cards=tuple(card.module_id for card in plan.cards),
        visible=tuple(sorted(cards.driven(boss.paths.sys))) if states else None,
        holders=tuple(_holders(boss)),
        modules=modules,
        infiniband=(boss.paths.dev / "infiniband").is_dir(),
        model=plan.served_model_name,
        workers=len(plan.cards),
        command=plan.command,
    )


def _modules(proc: Path) -> frozenset[str] | None:
    """The names of the loaded modules; None where the kernel does not list them."""
    found = open_cards.text(proc / "modules")
    return frozenset(line.split()[0] for line in found.splitlines() if line.strip()) or None


def _image(boss: Supervisor, plan: Plan) -> str | None:
    try:
        return (boss.docker.image_environment(plan.image) or {}).get(_IMAGE_RELEASE)
    except EngineGone:
        return None


def _holders(boss: Supervisor) -> Iterable[str]:
    """Processes that have a card of this instance open. Its own container has ended by now."""
    indexes = {card["index"]: card["module_id"] for card in boss.state["cards"] if "index" in card}
    init = open_cards.text(boss.paths.proc / "1/cgroup")
    for holder in open_cards.read_open(boss.paths.proc):
        if holder.index in indexes:
            unit, container = owner_of(holder.cgroup, init)
            where = f" in container {container[:12]}" if container else f" of {unit}" if unit else ""
            yield f"{holder.name} (pid {holder.pid}){where} has module {indexes[holder.index]}"
