"""Whether the driver still has the cards of a server that serves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

# What the driver calls a card whose reset failed.
DISABLED = "disabled"


def driven(sys: Path) -> set[int]:
    """The module ids of the cards that the driver has up."""
    found = set()
    for device in sys.glob("class/accel/accel[0-9]*/device"):
        try:
            module = (device / "module_id").read_text(encoding="ascii").strip()
            state = device / "status"
            disabled = state.exists() and state.read_text(encoding="ascii").strip().lower() == DISABLED
        except (OSError, ValueError):
            continue  # gone between two looks, or another vendor's
        if module.isdigit() and not disabled:
            found.add(int(module))
    return found


class Cards:
    """The cards of one server. One that /sys did not show when the server was first looked at is not missed."""

    def __init__(self, sys: Path, modules: Iterable[int]) -> None:
        self._sys = sys
        self._there = driven(sys) & set(modules)
        self._missed: set[int] = set()

    def lost(self) -> int | None:
        """The module id of a card that was not there at two looks in a row; in between the driver may be at work."""
        before, self._missed = self._missed, self._there - driven(self._sys)
        return min(before & self._missed, default=None)
