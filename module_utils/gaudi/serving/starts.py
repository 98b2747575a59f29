"""How long an instance takes to start: the record of its earlier starts, what is left of this one, and its budget.

Pure: who looks at the clock, and when, is elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST = 5
"""Starts of an instance that are kept."""
GRAPH_SECONDS = 10
"""What a graph of a warm-up takes. Somebody's Gaudi 2 took 19 minutes for about 150 (Qwen3-235B, eight cards)."""
LONGEST_START = 7200
"""Seconds that every start may take beside its graphs: somebody set two hours for the longest that was told of."""
FORM = {
    "plan": str,
    "graphs": int,
    "warm_up_seconds": (int, float),
    "seconds": (int, float),
    "at": str,
    "filled?": (bool, type(None)),
}
"""The form of one start in state.json."""

# Of a warm-up: before so much of it is done, its own pace says little. Single graphs differ by far.
_TELLING = 0.05
# How much longer than the last start with the same plan one may take. A recipe cache that was lost is no fault.
_PATIENCE = 3


@dataclass(frozen=True)
class Start:
    """One start that came to serve.

    plan: the digest on its container. graphs: how many its warm-up captured, 0 without one. seconds: from the
    container's start until the endpoint answered; warm_up_seconds: of these, the warm-up's. at: when it served, UTC.
    filled: whether it found compiled recipes; None where it keeps none, or nobody looked.
    """

    plan: str
    graphs: int
    warm_up_seconds: float
    seconds: float
    at: str
    filled: bool | None = None

    def document(self) -> dict[str, Any]:
        """What is written of it."""
        return dict(vars(self))


def read(documents: Sequence[Mapping[str, Any]]) -> list[Start]:
    """The starts of a state, the last one first."""
    names = [name.rstrip("?") for name in FORM]
    return [Start(**{name: document[name] for name in names if name in document}) for document in documents]


def added(starts: Sequence[Start], start: Start) -> list[Start]:
    """The record with one more start."""
    return [start, *starts][:MOST]


def other_filling(starts: Sequence[Start]) -> Start | None:
    """Of the plan of the last start, the last one before it that found recipes where it found none, or none."""
    newest = next(iter(starts), None)
    if newest is None or newest.filled is None:
        return None
    same = [each for each in starts[1:] if each.plan == newest.plan and each.filled is not None]
    return next((each for each in same if each.filled != newest.filled), None)


def last(starts: Sequence[Start], plan: str) -> Start | None:
    """The last start with a plan."""
    return next((start for start in starts if start.plan == plan), None)


def pace(seen: int, elapsed: float, total: int, before: Start | None) -> float | None:
    """Seconds for a graph of a warm-up; None where nothing tells.

    seen: graphs captured in the last ``elapsed`` seconds, of ``total`` altogether. before: a start of the instance,
    whose pace counts while this one's own says little.
    """
    if seen and seen >= _TELLING * total and elapsed > 0:
        return elapsed / seen
    if before is not None and before.graphs:
        return before.warm_up_seconds / before.graphs
    return None


def budget(graphs: int, before: Start | None) -> float | None:
    """Seconds that a start may take; None where neither the number of graphs nor an earlier start tells.

    Twice what its graphs are thought to take on top of what every start may take, and three times the last start.
    graphs: of its warm-up, 0 where they are not known. before: the last start with the same plan.
    """
    if not graphs and before is None:
        return None
    return max(LONGEST_START + 2.0 * GRAPH_SECONDS * graphs, _PATIENCE * before.seconds if before is not None else 0.0)


def words(seconds: float) -> str:
    """A time as a person says it, to the minute."""
    if seconds < 60:
        return "less than a minute"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"about {hours} h {minutes:02d} min" if hours else f"about {minutes} min"
