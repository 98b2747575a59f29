"""The same request on other releases: which of them serve it, and what each of them says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.refusal import Refusal
from ..catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ..families.registry import family_of
from ..model.facts import ModelFacts, facts
from ..model.headers import Weights
from ..model.remote_code import code_of
from ..model.size import loaded_bytes
from ..request.node import Node
from .chosen_cards import card_name
from .planner import AUTO, plan

# The advice of a refusal that is about its release.
ADVICE = re.compile(r"(?P<before>,? or |; |\. |^)(?P<use>[Uu]se) (?:another release|a release that knows the model)\.")

# Refusals that a shorter max_model_len may help against, and the lengths that are tried, in tokens.
TOO_LONG = ("max_model_len_beyond_node", "max_model_len_beyond_model", "kv_cache_too_small", "fits_on_no_cards")
LENGTHS = (32768, 8192)
# The refusal of releases that always take the cards of a whole node.
FIXED_CARDS = "card_count_fixed"
WHOLE_NODE = 8
# Of models whose config.json names no class, and of those whose config.json nobody has read.
NO_CLASS = "It names no architectures: whether the release has a class for it is not known."
FP8_BITS = 8

KNOWN_MOST = VALIDATED, REPORTED, PLANNED, REFUSED = "validated", "reported", "planned only", "not supported"


def asks_for_another(sentence: str) -> bool:
    """Whether a refusal advises to use another release, without its name."""
    return ADVICE.search(sentence) is not None


def with_releases(refusal: Refusal, names: Sequence[str]) -> Refusal:
    """The refusal with the releases that serve the request in the place of "another release".

    Without any, the advice goes, and the sentence says that none does.
    """
    none = "" if names else " No other release of the catalogue serves it on this node."
    return Refusal(refusal.id, f"{_named(str(refusal), names)}{none}")


def with_named_warnings(
    made: dict[str, Any], release: str, elsewhere: Callable[[], Mapping[str, Sequence[str]]]
) -> dict[str, Any]:
    """The plan with releases in its warnings in the place of "another release", or without that advice.

    ``elsewhere``: the releases that plan the request, with their warnings; asked only where there is such a warning.
    Each warning names those that do not have it.
    """
    if not any(map(asks_for_another, made["warnings"])):
        return made
    found = elsewhere()

    def without(warning: str) -> list[str]:
        return [name for name, said in found.items() if _subject(warning, release) not in _subjects(said, name)]

    return {
        **made,
        "warnings": [
            _named(warning, without(warning)) if asks_for_another(warning) else warning for warning in made["warnings"]
        ],
    }


def _subject(warning: str, release: str) -> str:
    """What a warning is about, whichever release has it."""
    return warning.partition(":")[0].replace(f"release {release}", "release")


def _subjects(warnings: Sequence[str], release: str) -> set[str]:
    return {_subject(warning, release) for warning in warnings}


def _named(sentence: str, names: Sequence[str]) -> str:
    """The sentence with these releases in the place of "another release"; without the advice if there are none."""
    if not names:
        return _unadvised(sentence)
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    return ADVICE.sub(lambda found: f"{found['before']}{found['use']} release {listed}.", sentence)


def _unadvised(sentence: str) -> str:
    """The sentence without the advice to use another release."""
    return ADVICE.sub(lambda found: "." if found["before"].strip() else "", sentence).replace("..", ".")


def serving(
    request: object,
    releases: Iterable[ReleaseEntry],
    entry: ModelEntry | None,
    cards: Mapping[str, CardType],
    node: Node,
) -> dict[str, list[str]]:
    """The releases that plan a request, with their warnings; those first that its model is known to be served with."""
    known = _known(entry)
    found = {}
    for release in releases:
        try:
            found[release.name] = plan(request, release, entry, cards, node)["warnings"]
        except Refusal:
            continue
    order = sorted(found, key=lambda name: (known.index(name) if name in known else len(known), name))
    return {name: found[name] for name in order}


def best(found: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of those of them that advise no other release themselves, or of all if there are none."""
    return [name for name, said in found.items() if not any(map(asks_for_another, said))] or list(found)


def _known(entry: ModelEntry | None) -> list[str]:
    if entry is None:
        return []
    return [*entry.releases, *(entry.validated.releases if entry.validated is not None else ())]


@dataclass(frozen=True)
class Answer:
    """Whether a release serves a model on one node: ``status``, the cards it takes, and why (not)."""

    release: str
    cards_of: str
    status: str
    cards: int | None
    because: str


def every_release(
    request: Mapping[str, object],
    releases: Iterable[ReleaseEntry],
    entries: Mapping[str, ModelEntry],
    cards: Mapping[str, CardType],
    node: Node,
) -> list[Answer]:
    """What each release says of a request on one node; the fewest cards where the request names no number.

    ``entries``: the whole catalogue. A given config.json that is of one of its models has that model's record.
    """
    name = request.get("model")
    entry = entries.get(name) if isinstance(name, str) else None
    asked = {"tensor_parallel_size": AUTO, **request}
    config = request.get("model_config")
    like = [] if entry is None else [entry]
    if entry is None and isinstance(config, Mapping):
        like = alike(config, entries.values())
        size = loaded_bytes(config)
        if size is not None and node.read_weights is None:
            files = Weights(bytes=size, code=code_of(config))
            node = replace(node, read_weights=lambda _path: files)
    return [_answer(asked, release, entry, like, cards, node) for release in releases]


def _answer(
    request: Mapping[str, object],
    release: ReleaseEntry,
    entry: ModelEntry | None,
    like: Sequence[ModelEntry],
    cards: Mapping[str, CardType],
    node: Node,
) -> Answer:
    kind, config = card_name(node.topology), request.get("model_config")
    first: Refusal | None = None
    for length in (None, *_shorter(request, entry)) if "max_model_len" not in request else (None,):
        asked = request if length is None else {**request, "max_model_len": length}
        try:
            made, unsized = _planned(asked, release, entry, cards, node)
        except Refusal as refusal:
            if refusal.id not in TOO_LONG:
                # No length helps against it.
                first = refusal
                break
            first = first or refusal
            continue
        count = None if unsized else len(made["modules"])
        known = [_standing(each, release, kind, cards, count) for each in like]
        # Of several models with these figures the one that most is known of.
        status, because = min(
            known or [(PLANNED, "No model of the catalogue is like it.")], key=lambda said: KNOWN_MOST.index(said[0])
        )
        words = [because, *([f"With max_model_len {length}."] if length is not None else [])]
        words += ["How many cards it takes is not known."] if unsized else []
        words += [] if _classes(entry, config) else [NO_CLASS]
        # All releases answer; no warning need advise another.
        return Answer(release.name, kind, status, count, " ".join([*words, *map(_unadvised, made["warnings"])]))
    return Answer(release.name, kind, REFUSED, None, _unadvised(str(first)))


def _shorter(request: Mapping[str, object], entry: ModelEntry | None) -> list[int]:
    """The lengths to try where a release's own does not do, none above the model's."""
    config = request.get("model_config")
    longest = facts("", entry, config if isinstance(config, Mapping) else None, {}).positions.longest
    return list(dict.fromkeys(length if longest is None else min(length, longest) for length in LENGTHS))


def _classes(entry: ModelEntry | None, config: object) -> Sequence[str]:
    """The classes that a model names; a given config.json counts before the catalogue."""
    if isinstance(config, Mapping):
        return code_of(config).architectures
    return entry.architectures if entry is not None else ()


def _planned(
    request: Mapping[str, object],
    release: ReleaseEntry,
    entry: ModelEntry | None,
    cards: Mapping[str, CardType],
    node: Node,
) -> tuple[dict[str, Any], bool]:
    """The plan, and whether the cards it takes are not known: a node of eight stands in for them."""
    try:
        return plan(request, release, entry, cards, node), False
    except Refusal as refusal:
        if request.get("tensor_parallel_size") != AUTO or refusal.id not in (FIXED_CARDS, "auto_without_size"):
            raise
        whole = {**request, "tensor_parallel_size": WHOLE_NODE}
        return plan(whole, release, entry, cards, node), refusal.id != FIXED_CARDS


def _standing(
    entry: ModelEntry, release: ReleaseEntry, kind: str, cards: Mapping[str, CardType], count: int | None
) -> tuple[str, str]:
    """What is known of a model on a release and cards, and where from."""
    said, known = entry.validated, cards.get(kind)
    generation = known.generation if known is not None else None
    if said is not None and release.name in said.releases and generation in said.generations:
        sizes = (
            ""
            if count is None or count in said.tensor_parallel_size
            else (f", with {', '.join(map(str, said.tensor_parallel_size))} cards")
        )
        return VALIDATED, f"{family_of(release).validated_models} of the release names {entry.title}{sizes}."
    if release.name in entry.releases:
        return REPORTED, f"{entry.title} is known to be served with it (catalog/models/{entry.name}.yml)."
    return PLANNED, f"Nobody is known to have tried {entry.title} with it."


def alike(config: Mapping[str, object], entries: Iterable[ModelEntry]) -> list[ModelEntry]:
    """The models of the catalogue with the class, the figures and the quantisation of a config.json."""
    models = []
    found, classes = facts("", None, config, {}), set(code_of(config).architectures)
    for entry in entries:
        if entry.architecture is None or (classes and classes.isdisjoint(entry.architectures)):
            continue
        known = facts("", entry, None, {})
        same = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
        if all(getattr(found.shape, key) == getattr(known.shape, key) for key in same) and (
            _stored(found) == _stored(known)
        ):
            models.append(entry)
    return models


def _stored(model: ModelFacts) -> str | None:
    """How the weights are stored, as far as catalogue files tell one from another: FP8 is FP8 by any method."""
    floats = all(scheme.kind == "float" and scheme.weight_bits == FP8_BITS for scheme in model.schemes)
    return "fp8" if model.stored_fp8 and floats else model.quant_method


def as_text(answers: Sequence[Answer]) -> list[str]:
    """The answers as lines for people, a block for each kind of cards."""
    lines: list[str] = []
    for kind in dict.fromkeys(answer.cards_of for answer in answers):
        lines.append(f"{kind}:")
        for answer in answers:
            if answer.cards_of == kind:
                count = f", {answer.cards} card{'s' if answer.cards != 1 else ''}" if answer.cards else ""
                lines.append(f"  {answer.release}: {answer.status}{count}. {answer.because}")
    return lines


def as_documents(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The answers for programs."""
    return [dict(vars(answer)) for answer in answers]
