"""The same request on other releases, or with other weights of its model: which of them are served."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..base.refusal import Refusal
from ..catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ..request.node import Node
from .planner import plan
from .refusals import any_of

# The advice of a refusal that is about its release.
ADVICE = re.compile(r"(?P<before>,? or |; |\. |^)(?P<use>[Uu]se) (?:another release|a release that knows the model)\.")
# The advice of a refusal that is about how the weights are stored.
WEIGHTS = re.compile(r"\b(?P<serve>[Ss]erve) other weights\b")
# Two sets of weights are of one model if these figures are equal. The format in which they are stored may differ.
FIGURES = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")


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


def of_same_model(entry: ModelEntry, entries: Iterable[ModelEntry]) -> list[ModelEntry]:
    """Other weights of a model: its figures are the same, and one name begins with the other."""
    own = entry.architecture
    return [
        other
        for other in entries
        if f"{other.name}-".startswith(f"{entry.name}-") is not f"{entry.name}-".startswith(f"{other.name}-")
        and all(getattr(own, name, None) == getattr(other.architecture, name, None) for name in FIGURES)
    ]


def with_weights(
    sentence: str,
    request: Mapping[str, object],
    release: ReleaseEntry,
    entries: Iterable[ModelEntry],
    cards: Mapping[str, CardType],
    node: Node,
) -> str:
    """The sentence with the models that the release serves in the place of "other weights", where there are any.

    ``entries``: other weights of the request's model.
    """
    if WEIGHTS.search(sentence) is None:
        return sentence
    names = [
        other.name for other in entries if serving({**request, "model": other.name}, [release], other, cards, node)
    ]
    return WEIGHTS.sub(lambda found: f"{found['serve']} {any_of(names)}", sentence) if names else sentence


def _subject(warning: str, release: str) -> str:
    """What a warning is about, whichever release has it."""
    return warning.partition(":")[0].replace(f"release {release}", "release")


def _subjects(warnings: Sequence[str], release: str) -> set[str]:
    return {_subject(warning, release) for warning in warnings}


def _named(sentence: str, names: Sequence[str]) -> str:
    """The sentence with these releases in the place of "another release"; without the advice if there are none."""
    if not names:
        return unadvised(sentence)
    return ADVICE.sub(lambda found: f"{found['before']}{found['use']} release {any_of(names)}.", sentence)


def unadvised(sentence: str) -> str:
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
