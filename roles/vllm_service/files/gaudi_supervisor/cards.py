"""Whether the driver still has the cards of a server that serves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gaudi.node.open_cards import DISABLED, card_states, offered


def driven(sys: Path) -> set[int]:
    """The module ids of the cards that the driver has up."""
    return offered(card_states(sys))


def disabled(sys: Path) -> set[int]:
    """The module ids of the cards that the driver has given up."""
    return {module for module, state in card_states(sys).items() if state == DISABLED}


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
