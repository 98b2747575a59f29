"""What a refused request may say instead, found by planning it: another number of cards, a shorter length, options."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..base.refusal import Refusal
from ..catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ..model.facts import facts
from ..request.node import Node
from .planner import AUTO, SIZES, TOO_FEW, plan
from .refusals import any_of

# Refusals that another number of cards may help against.
OTHER_CARDS = (*TOO_FEW, "cards_not_joined", "too_few_free_cards", "fits_on_no_cards")
# Refusals that a shorter max_model_len may help against, and the lengths that are tried, in tokens.
TOO_LONG = (
    "max_model_len_beyond_node",
    "max_model_len_beyond_model",
    "batch_below_longest_request",
    "kv_cache_too_small",
    "fits_on_no_cards",
)
HELPED = (*OTHER_CARDS, *TOO_LONG)
LENGTHS = (131072, 65536, 32768, 16384, 8192, 4096)
HOST_NICS = "fabric_check_host_nics"
CODE = "trust_remote_code"
# Refusals that an option helps against, which is the site's to decide.
DECISIONS: Mapping[str, tuple[str, object]] = {
    "remote_code_undecided": (CODE, True),
    "expert_width_not_divisible": ("enable_expert_parallel", True),
    "cards_not_joined": (HOST_NICS, True),
}
# Refusals that have another advice of their own, which holds without a remedy.
ADVISED = ("too_few_cards", "too_few_free_cards")
NOTHING_HELPS = "No number of cards, no shorter max_model_len and no host NICs help on this node. Use another release."


@dataclass(frozen=True)
class RemedyPlan:
    """A plan of a request, and what is set for it beyond the request. ``cards``: of one copy of the model.

    known: whether so many are known to do; the size of the weights may not be known.
    """

    made: Mapping[str, Any]
    cards: int
    options: Mapping[str, object]
    known: bool = True


@dataclass(frozen=True)
class PlanningInputs:
    """What requests are planned with: a release, the model and card types of the catalogue, and a node."""

    release: ReleaseEntry
    entry: ModelEntry | None
    cards: Mapping[str, CardType]
    node: Node

    def plan(self, request: Mapping[str, object]) -> dict[str, Any]:
        """The plan of a request, which may have the node's option for host NICs. Raises Refusal."""
        node = replace(self.node, host_nics=True) if request.get(HOST_NICS) else self.node
        asked = {name: value for name, value in request.items() if name != HOST_NICS}
        return plan(asked, self.release, self.entry, self.cards, node)


def first_way(request: Mapping[str, object], site: PlanningInputs, decided: Container[str] = ()) -> RemedyPlan:
    """The first plan of a request, with what helps against its refusals; ``decided``: options that stay as they are.

    Raises the Refusal that nothing helps against. Where no length helps, that of the longest one says most.
    """
    options: dict[str, object] = {}
    lengths = iter(() if "max_model_len" in decided else _lengths(request, site.entry))
    too_long: Refusal | None = None
    while True:
        try:
            return _way(request, site, options)
        except Refusal as refusal:
            if refusal.id in TOO_LONG:
                too_long = too_long or refusal
            cause = refusal.__cause__ if isinstance(refusal.__cause__, Refusal) else refusal
            name, value = DECISIONS.get(cause.id, ("", None))
            if name and name not in options and name not in decided:
                options[name] = value
                continue
            length = next(lengths, None) if refusal.id in TOO_LONG else None
            if length is None:
                told = too_long if too_long is not None and refusal.id in TOO_LONG else refusal
                raise told from refusal.__cause__
            options.update(_of_length(length, request))


def _way(request: Mapping[str, object], site: PlanningInputs, options: Mapping[str, object]) -> RemedyPlan:
    """The plan with these options. Where it does not start without host NICs, they are one of the options.

    Raises Refusal.
    """
    made, known = _made({**request, **options}, site)
    if made["requires"]["host_nics"] and not site.node.host_nics and HOST_NICS not in options:
        options = {**options, HOST_NICS: True}
        made, known = _made({**request, **options}, site)
    copies = request.get("data_parallel_size")
    cards = len(made["modules"]) // (copies if isinstance(copies, int) and copies else 1)
    return RemedyPlan(made, cards, dict(options), known=known)


def _made(request: Mapping[str, object], site: PlanningInputs) -> tuple[dict[str, Any], bool]:
    """The plan, and whether its number of cards is known to do.

    Where the size of the weights is not known, that of the model's file does; without any, the plan is for as many
    cards as possible.
    """
    try:
        return site.plan(request), True
    except Refusal as refusal:
        if request.get("tensor_parallel_size") != AUTO or refusal.id != "auto_without_size":
            raise
    own = site.entry.defaults.get("tensor_parallel_size") if site.entry is not None else None
    if isinstance(own, int):
        return site.plan({**request, "tensor_parallel_size": own}), True
    largest: Refusal | None = None
    for count in reversed(SIZES):
        try:
            return site.plan({**request, "tensor_parallel_size": count}), False
        except Refusal as refusal:
            largest = largest or refusal
    raise largest or AssertionError("a size plans or is refused")


def _lengths(request: Mapping[str, object], entry: ModelEntry | None) -> Iterator[int]:
    """The lengths to try where a request's own does not do, none above the model's."""
    config = request.get("model_config")
    longest = facts("", entry, config if isinstance(config, Mapping) else None, {}).positions.longest
    return iter(dict.fromkeys(length if longest is None else min(length, longest) for length in LENGTHS))


def _of_length(length: int, request: Mapping[str, object]) -> dict[str, object]:
    """The options for a length; ranges that the request has would ask for one of their own."""
    ranges = {name: None for name in ("input_range", "output_range") if request.get(name) is not None}
    return {"max_model_len": length, **ranges}


def with_remedy(refusal: Refusal, request: Mapping[str, object], site: PlanningInputs) -> Refusal:
    """The refusal with what the request may say instead; a request that says so is planned.

    Without any, the remedy says that. A refusal that no number of cards and no length helps against stays as it is.
    """
    if refusal.id not in HELPED or request.get("share_card_with"):
        return refusal
    found = _alternatives(refusal, request, site)
    if found:
        said = ", or ".join(" and ".join(_words(name, value) for name, value in options.items()) for options in found)
        said = f"or {said}" if refusal.id in ADVISED else said
        return Refusal(refusal.id, refusal.cause, f"{said[0].upper()}{said[1:]}.")
    nothing = NOTHING_HELPS if refusal.remedy else "Use another release."
    return Refusal(refusal.id, refusal.cause, "" if refusal.id in ADVISED else nothing)


def _alternatives(refusal: Refusal, request: Mapping[str, object], site: PlanningInputs) -> list[Mapping[str, object]]:
    """Sets of options with which the request is planned: of each kind the first, or else several kinds together."""
    found: list[Mapping[str, object]] = []
    modules = {"modules": None} if request.get("modules") is not None else {}
    fewest: dict[str, object] = {"tensor_parallel_size": AUTO, **modules}
    if refusal.id in OTHER_CARDS:
        way = _first([fewest], request, site)
        larger = [] if way is None else [count for count in SIZES if count > way.cards or not way.known]
        also = [{**fewest, "tensor_parallel_size": count} for count in larger]
        numbers = [other.cards for other in [way, *(_first([each], request, site) for each in also)] if other]
        found += [{**fewest, "tensor_parallel_size": tuple(sorted({*numbers}))}] if numbers else []
    if refusal.id in TOO_LONG:
        shorter = (_of_length(length, request) for length in _lengths(request, site.entry))
        found += [way.options for way in [_first(shorter, request, site)] if way is not None]
    if refusal.id in DECISIONS:
        decision = dict([DECISIONS[refusal.id]])
        found += [way.options for way in [_first([decision], request, site)] if way is not None]
    if found:
        return found
    try:
        way = first_way({**request, **fewest}, site, decided=(CODE,))
    except Refusal:
        return []
    return [{**fewest, **way.options, "tensor_parallel_size": (way.cards,)}]


def _first(
    kind: Iterable[Mapping[str, object]], request: Mapping[str, object], site: PlanningInputs
) -> RemedyPlan | None:
    """The plan with the first of several sets of options that plans with nothing else."""
    for options in kind:
        try:
            way = _way(request, site, options)
        except Refusal:
            continue
        if way.options == options:
            return way
    return None


def _words(name: str, value: object) -> str:
    """An option of a remedy in words."""
    if name == HOST_NICS:
        return f"have host NICs configured and measured ({HOST_NICS}: true for the node)"
    if value is None:
        return f"leave {name} out"
    if isinstance(value, tuple):
        return f"set {name} to {any_of(value)}"
    return f"set {name} to {str(value).lower() if isinstance(value, bool) else value}"
