"""Which strategy a server gets when nobody chose one, and why."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.refusal import Refusal
from .made import buckets
from .padding import Padding, padding_of
from .server import ServerSettings
from .versions import EXPONENTIAL, LINEAR, STRATEGY_NAMES, version_of

# Less padding than this, as a share of what is computed, is nearly the same; so many times the graphs are far more.
# Both numbers are ours. A graph took about a second to warm up (somebody's Gaudi 2, plugin 0.26.0, 7B to 32B: two to
# three minutes in all).
NEARLY = 0.10
FAR_MORE = 2.0

CHOOSING = ("VLLM_BUCKETING_STRATEGY", "VLLM_EXPONENTIAL_BUCKETING", "VLLM_BUCKETING_FROM_FILE")


@dataclass(frozen=True)
class Candidate:
    """A strategy with the graphs it would warm up and its padding; ``refused`` says why it cannot be taken."""

    strategy: str
    prompt_graphs: int = 0
    decode_graphs: int = 0
    padding: Padding | None = None
    refused: str | None = None

    @property
    def graphs(self) -> int:
        """Graphs of both phases."""
        return self.prompt_graphs + self.decode_graphs


@dataclass(frozen=True)
class Choice:
    """The strategy, the reason in a sentence, and all that were compared."""

    strategy: str
    reason: str
    candidates: tuple[Candidate, ...]


def variables_for(plugin: str, strategy: str) -> dict[str, str]:
    """The variables that choose a strategy; none for the one that a version takes by itself."""
    if strategy == EXPONENTIAL:
        return {}
    if version_of(plugin).strategy_is_named:
        return {"VLLM_BUCKETING_STRATEGY": next(name for name, long in STRATEGY_NAMES.items() if long == strategy)}
    return {"VLLM_EXPONENTIAL_BUCKETING": "false"} if strategy == LINEAR else {}


def choose(plugin: str, server: ServerSettings, environment: Mapping[str, str]) -> Choice:
    """The exponential strategy, unless another pads no more with no more graphs, or much less with not far more.

    What ``environment`` says of the choice itself is put aside; its other variables count. A strategy that would be
    refused is not taken; where that is the exponential one, making its buckets says why.
    """
    rest = tuple(sorted((name, text) for name, text in environment.items() if name not in CHOOSING))
    candidates = tuple(_candidate(plugin, server, rest, strategy) for strategy in version_of(plugin).strategies)
    best = candidates[0]
    for other in candidates[1:]:
        if _is_better(other, best):
            best = other
    return Choice(best.strategy, _reason(best, candidates), candidates)


@functools.lru_cache(maxsize=256)  # Instances of one model on one node, and the page of a plan, compare the same.
def _candidate(plugin: str, server: ServerSettings, rest: tuple[tuple[str, str], ...], strategy: str) -> Candidate:
    try:
        found = buckets(plugin, server, {**dict(rest), **variables_for(plugin, strategy)})
    except Refusal as refusal:
        return Candidate(strategy, refused=str(refusal))
    return Candidate(strategy, len(found.prompt), len(found.decode), padding_of(server, found))


def _is_better(other: Candidate, best: Candidate) -> bool:
    if other.padding is None or best.padding is None or other.padding.unprepared > best.padding.unprepared:
        return False
    saved = best.padding.mean - other.padding.mean
    return (saved >= 0 and other.graphs <= best.graphs) or (saved > NEARLY and other.graphs <= FAR_MORE * best.graphs)


def _reason(best: Candidate, candidates: tuple[Candidate, ...]) -> str:
    """Why this one: its figures beside those of the others."""
    others = "; ".join(_figures(candidate) for candidate in candidates if candidate is not best)
    rule = (
        f"Another is taken only if it has no more graphs and pads no more, or if it pads over {NEARLY:.0%} of the work "
        f"less with at most {FAR_MORE:g} times the graphs"
        if best.strategy == EXPONENTIAL
        else "It pads less than exponential, for no more graphs or not far more"
    )
    return ". ".join(part for part in (_figures(best), rule, others) if part) + "."


def _figures(candidate: Candidate) -> str:
    if candidate.padding is None:
        return f"{candidate.strategy}: would be refused"
    return f"{candidate.strategy}: {candidate.graphs} graphs, about {candidate.padding.mean:.0%} padding"
