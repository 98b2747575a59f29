"""What is read and checked before a container starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gaudi.base.documents import Damaged, parse
from gaudi.base.refusal import Refusal
from gaudi.faults import words
from gaudi.node import iommu
from gaudi.node.documents import read, read_text
from gaudi.node.reservations import read_reservations
from gaudi.node.weight_folders import changed_weights, missing_weights
from gaudi.serving import unserved
from gaudi.serving.failure import Failure, configuration, transient
from gaudi.serving.keys import read as parse_keys
from gaudi.serving.made_of import MadeOf
from gaudi.serving.plan import Plan
from gaudi.serving.plan_cards import check_reservation
from gaudi.serving.state import WAITS_FOR_CARDS

from . import cards, clock
from .clock import now_text
from .endpoint import port_problem
from .engine import Docker
from .plan_history import PlanHistory
from .reporter import Reporter
from .settings import Paths
from .state import SupervisorState
from .systemd import say


def read_plan(instance: str, paths: Paths) -> tuple[Plan, MadeOf]:
    """The plan, and everything that makes the container what it is. Raises Failure."""
    path, environment_path = paths.plan(instance), paths.environment(instance)
    try:
        text, environment = read_text(path), read_text(environment_path)
    except Damaged as damage:
        raise configuration("plan", words.say("plan", what=damage)) from damage
    if text is None or environment is None:
        missing = path if text is None else environment_path
        raise configuration("plan", words.say("plan", what=f"{missing} is not there"))
    try:
        plan = Plan.from_document(parse(text))
    except ValueError as wrong:
        raise configuration("plan", words.say("plan", what=f"{path} cannot be used: {wrong}")) from wrong
    if plan.instance != instance:
        what = f"{path} is the plan of {plan.instance}, not of {instance}"
        raise configuration("plan", words.say("plan", what=what))
    if environment != plan.environment_file:
        what = (
            f"{environment_path} is not the environment of {path}: it was changed by hand, or two runs wrote it at once"
        )
        raise configuration("plan", words.say("plan", what=what))
    guard = _guard(plan, paths)
    former = plan.guarded is None and guard is not None
    return plan, MadeOf(text.encode(), environment.encode(), guard, former)


def _guard(plan: Plan, paths: Paths) -> bytes | None:
    """The guard as it is on the disk; None where the instance asks for no keys. Raises Failure."""
    # A plan of 0.1 leaves it to whether there are keys.
    if not (paths.former_keys(plan.instance).exists() if plan.guarded is None else plan.guarded):
        return None
    module = paths.programs / "guard" / "gaudi_guard.py"
    try:
        return module.read_bytes()
    except OSError as failed:
        said = words.say("guard-missing", path=module, why=failed.strerror)
        raise configuration("guard-missing", said) from failed


@dataclass(frozen=True)
class StartupChecks:
    """The checks of one start. stall: seconds that systemd is asked for while a card is waited for."""

    plan: Plan
    stall: float
    paths: Paths
    docker: Docker
    history: PlanHistory
    state: SupervisorState
    reporter: Reporter

    def run(self) -> None:
        """Check everything that can be known before a container starts; raises Failure."""
        plan = self.plan
        self._check_keys()
        lock = self.paths.state / "cards.lock"
        if not os.path.lexists(lock):
            raise configuration("reservation", words.say("reservation", what=f"{lock} is not there"))
        try:
            found = read_reservations(lock, self.paths.plan(plan.instance).parents[1], now_text())
        except Refusal as refusal:
            raise configuration("reservation", words.say("reservation", what=refusal)) from refusal
        if found.damage:
            say(f"{found.damage}. The next run of the playbook writes it again.", 4)
        check_reservation(found.reservations, plan)
        self._await_cards()
        for folder in map(Path, plan.weight_folders):
            if changed := changed_weights(folder):
                raise configuration("weights-incomplete", changed)
            if incomplete := missing_weights(folder):
                said = f"The weights are not complete: {incomplete}. {words.remedy('weights-incomplete')}"
                raise configuration("weights-incomplete", said)
        if not self.history.look().image:
            said = f"The image {plan.image} is not on this node. {words.remedy('image-missing')}"
            raise configuration("image-missing", said)
        driver, modules = self.history.look().driver, [card.module_id for card in plan.cards]
        folder = self.paths.plan(plan.instance).parent
        versions, paths = (plan.release, driver), self.paths
        if refused := unserved.translated(iommu.translated(versions, modules, folder, paths.sys, paths.proc)):
            raise configuration("iommu-translates", refused)
        if taken := port_problem(plan, self.docker):
            raise transient("port-taken", taken)

    def _await_cards(self) -> None:
        """Look the cards up; raises Failure. One that was lost while it served is waited for: no start can do without.

        Nobody has to see to the instance when the card is back, and no try is spent meanwhile.
        """
        plan = self.plan
        lost = (self.state.document["last_reason"] or {}).get("kind") == "lost-while-serving"
        modules = {card.module_id for card in plan.cards}
        while True:
            try:
                cards.indexes(plan.cards, self.state)
            except Failure as failure:
                if not lost or not failure.reason.retry:
                    raise
                text = failure.reason.message
            else:
                # hl-smi may list a card that the driver has given up.
                down = min(modules & cards.disabled(self.paths.sys), default=None) if lost else None
                if down is None:
                    return
                text = words.say("lost-while-serving", "disabled", module=down)
            self.reporter.extend(self.stall)
            self.reporter.publish("waiting", f"{WAITS_FOR_CARDS}: {text}")
            self.reporter.write_in_time()
            self.reporter.wait_alive(clock.POLL_SERVING)

    def _check_keys(self) -> None:
        """Refuse to start a server that asks for keys without what it knows them by; raises Failure."""
        plan, path = self.plan, self.paths.keys(self.plan.instance)
        if plan.guarded is None and self.paths.former_keys(plan.instance).exists():
            what = "The plan is one of an earlier release, which kept keys elsewhere"
            raise configuration("keys", words.say("keys", what=what))
        if not plan.guarded:
            return
        try:
            found = read(path, parse_keys)
        except Damaged as damage:
            raise configuration("keys", words.say("keys", what=f"{damage}, so nobody could ask with a key")) from damage
        if found is None:
            what = f"{path} is not there, but {plan.instance} asks for keys"
            raise configuration("keys", words.say("keys", what=what))
