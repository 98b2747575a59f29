"""How long an instance takes to start: the record of earlier starts, the time left, and the time limit.

Pure: the caller reads the clock (roles/vllm_service/files/gaudi_supervisor/starting.py).
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

# Share of a warm-up that must be done before its own rate counts; single graphs differ widely.
_TELLING = 0.05
# A start may take this many times the last one with the same plan: losing the recipe cache is not a fault.
_PATIENCE = 3


@dataclass(frozen=True)
class Start:
    """One successful start.

    plan: the digest on its container. graphs: captured in its warm-up, 0 without one. seconds: from the container's
    start until the endpoint answered. warm_up_seconds: the warm-up's part of that. at: the end of the start, UTC.
    filled: whether it found compiled recipes; None without a recipe cache, or if unknown.
    """

    plan: str
    graphs: int
    warm_up_seconds: float
    seconds: float
    at: str
    filled: bool | None = None

    def document(self) -> dict[str, Any]:
        """Return the entry for state.json."""
        return dict(vars(self))


def read(documents: Sequence[Mapping[str, Any]]) -> list[Start]:
    """Return the starts in a state, the last one first."""
    names = [name.rstrip("?") for name in FORM]
    return [Start(**{name: document[name] for name in names if name in document}) for document in documents]


def added(starts: Sequence[Start], start: Start) -> list[Start]:
    """The record with one more start."""
    return [start, *starts][:MOST]


def other_filling(starts: Sequence[Start]) -> Start | None:
    """Return the last earlier start of the same plan that found recipes when the newest did not, or the reverse."""
    newest = next(iter(starts), None)
    if newest is None or newest.filled is None:
        return None
    same = [each for each in starts[1:] if each.plan == newest.plan and each.filled is not None]
    return next((each for each in same if each.filled != newest.filled), None)


def last(starts: Sequence[Start], plan: str) -> Start | None:
    """Return the last start with a plan."""
    return next((start for start in starts if start.plan == plan), None)


def graphs(planned: int, reported: int, complete: bool, before: Start | None) -> int:
    """Return the graphs of a warm-up; 0 if their number is unknown.

    planned: of the plan, which knows no second warm-up. reported: by the server so far. complete: whether it reports no
    more. before: the last start with the same plan.
    """
    return reported if complete else max(planned, reported, before.graphs if before is not None else 0)


def pace(seen: int, elapsed: float, total: int, before: Start | None) -> float | None:
    """Return the seconds for one graph of a warm-up; None if unknown.

    seen: graphs captured in the last ``elapsed`` seconds, of ``total``. before: an earlier start of the instance, whose
    rate is used until this one has captured enough.
    """
    if seen and seen >= _TELLING * total and elapsed > 0:
        return elapsed / seen
    if before is not None and before.graphs:
        return before.warm_up_seconds / before.graphs
    return None


def budget(graphs: int, before: Start | None, loading: float = 0.0) -> float | None:
    """Return the seconds that a start may take; None without a number of graphs or an earlier start.

    The larger of two limits: a base time plus twice the expected time of its graphs, and three times the last start.
    graphs: of its warm-up, 0 if unknown. before: the last start with the same plan. loading: seconds in which its
    weights are there at the latest, which may raise the base time.
    """
    if not graphs and before is None:
        return None
    base = max(LONGEST_START, 2.0 * loading)
    return max(base + 2.0 * GRAPH_SECONDS * graphs, _PATIENCE * before.seconds if before is not None else 0.0)


def words(seconds: float) -> str:
    """Return a duration in words, to the minute."""
    if seconds < 60:
        return "less than a minute"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"about {hours} h {minutes:02d} min" if hours else f"about {minutes} min"
