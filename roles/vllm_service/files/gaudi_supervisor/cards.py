"""The cards of one server: their device numbers, and whether the driver still has them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from gaudi.faults import words
from gaudi.faults.causes import quote
from gaudi.node.open_cards import DISABLED, card_states, offered
from gaudi.serving.failure import configuration, transient
from gaudi.serving.plan import PlanCard
from gaudi.serving.plan_cards import card_indexes

from . import clock
from .engine import run_command
from .state import SupervisorState


def driven(sys: Path) -> set[int]:
    """The module ids of the cards that the driver has up."""
    return offered(card_states(sys))


def disabled(sys: Path) -> set[int]:
    """The module ids of the cards that the driver has given up."""
    return {module for module, state in card_states(sys).items() if state == DISABLED}


def indexes(planned: tuple[PlanCard, ...], state: SupervisorState) -> list[int]:
    """Ask for today's device numbers of a plan's cards, and write them into the state; raises Failure."""
    command = ["hl-smi", "-Q", "index,module_id,serial", "-f", "csv,noheader"]
    try:
        done = run_command(command)
    except FileNotFoundError as missing:
        said = f"hl-smi is not installed. {words.say('cards-not-offered', 'missing')}"
        raise configuration("cards-not-offered", said) from missing
    except subprocess.TimeoutExpired as slow:
        said = f"hl-smi did not answer in {clock.COMMAND_TIMEOUT:g} s. {words.say('cards-not-offered')}"
        raise transient("cards-not-offered", said) from slow
    if done.returncode != 0:
        said = f"hl-smi fails with status {done.returncode}: {quote(done.stderr or done.stdout)}"
        raise transient("cards-not-offered", f"{said} {words.say('cards-not-offered')}")
    found = card_indexes(done.stdout, planned)
    for card, index in zip(state.document["cards"], found):
        card["index"] = index
    return found


class Cards:
    """The cards of one server. One that /sys did not show when the server was first looked at is not missed."""

    def __init__(self, sys: Path, modules: Iterable[int]) -> None:
        self._sys = sys
        self._there = driven(sys) & set(modules)
        self._missed: set[int] = set()

    def gone(self) -> int | None:
        """The module id of a card that is not there now."""
        return min(self._there - driven(self._sys), default=None)

    def lost(self) -> int | None:
        """The module id of a card that was not there at two looks in a row; in between the driver may be at work."""
        before, self._missed = self._missed, self._there - driven(self._sys)
        return min(before & self._missed, default=None)
