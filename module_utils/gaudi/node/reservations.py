"""Read who has which card; a damaged file is made up for from the plans on the node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..base.documents import Damaged
from ..base.refusal import Refusal
from ..cards.reservations import Reservations, parse_reservations, rebuild
from ..pages import written
from .documents import read, read_text


@dataclass(frozen=True)
class Read:
    """The reservations; where they had to be rebuilt, `damage` says why, as a sentence without a full stop."""

    reservations: Reservations
    damage: str = ""


def read_reservations(path: Path, plans: Path, now: str) -> Read:
    """Read cards.lock; none where there is no file.

    plans: the directory with a directory for each instance. now: ISO 8601, for what is rebuilt.
    Raises Refusal where the file is damaged and the plans do not say clearly who has which card.
    """
    try:
        return Read(read(path, parse_reservations) or {})
    except Damaged as damage:
        try:
            rebuilt = rebuild(_plans(plans), now)
        except (Damaged, Refusal) as unclear:
            raise Refusal(
                "reservations_damaged", f"{damage}, and it cannot be rebuilt from the plans, because {unclear}"
            ) from unclear
        names = ", ".join(sorted(rebuilt)) or "no instance"
        return Read(rebuilt, f"{damage}; who has which card is taken from the plans of {names}")


def _plans(plans: Path) -> dict[str, dict[str, object]]:
    """The plans of all instances of the node. Raises Damaged for one that cannot be read."""
    found = {}
    for folder in sorted(plans.iterdir()) if plans.is_dir() else ():
        text = read_text(folder / "plan.json") if folder.is_dir() else None
        if text is not None:
            try:
                found[folder.name] = written.parse(text.encode())
            except ValueError as error:
                raise Damaged(str(folder / "plan.json"), str(error)) from error
    return found
