"""On which releases a model runs, on how many cards, and with which options: the answer of every release."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from .elsewhere import FIGURES, of_same_model, unadvised, with_weights
from .planner import AUTO
from .refusals import about_record, any_of
from .remedies import HELPED, HOST_NICS, PlanningInputs, RemedyPlan, first_way, with_remedy

# Of models whose config.json names no class.
NO_CLASS = "It names no architectures: whether the release has a class for it is not known."
FP8_BITS = 8

KNOWN_MOST = VALIDATED, REPORTED, PLANNED, REFUSED = "validated", "reported", "planned only", "not supported"
UNLIKE = PLANNED, "no model of the catalogue is like it"


@dataclass(frozen=True)
class ReleaseSupport:
    """Whether a release serves a model on one node: ``status``, and the cards it takes, None if that is not known.

    because: why (not), in one sentence. options: what must be set so that it does. notes: what else the plan warns of.
    refused_id: the id of the refusal, "" without one. least: the fewest cards that hold it, where ``cards`` is the
    number that the status is known of, and larger.
    """

    release: str
    cards_of: str
    status: str
    cards: int | None
    because: str
    options: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    refused_id: str = ""
    least: int | None = None


def every_release(
    request: Mapping[str, object],
    releases: Iterable[ReleaseEntry],
    entries: Mapping[str, ModelEntry],
    cards: Mapping[str, CardType],
    node: Node,
) -> list[ReleaseSupport]:
    """What each release says of a request on one node; the fewest cards where the request names no number.

    ``entries``: the whole catalogue. A given config.json that is of one of its models has that model's record.
    """
    name = request.get("model")
    entry = entries.get(name) if isinstance(name, str) else None
    asked, decided = {"tensor_parallel_size": AUTO, **request}, frozenset(request)
    config = request.get("model_config")
    like = [] if entry is None else [entry]
    others = [] if entry is None else of_same_model(entry, entries.values())
    if entry is None and isinstance(config, Mapping):
        like = alike(config, entries.values())
        size = loaded_bytes(config)
        if size is not None and node.read_weights is None:
            files = Weights(bytes=size, code=code_of(config))
            node = replace(node, read_weights=lambda _path: files)
    return [_answer(asked, PlanningInputs(release, entry, cards, node), like, others, decided) for release in releases]


def _answer(
    request: Mapping[str, object],
    site: PlanningInputs,
    like: Sequence[ModelEntry],
    others: Sequence[ModelEntry],
    decided: Collection[str],
) -> ReleaseSupport:
    """``like``: models whose record counts; ``others``: other weights of the model."""
    kind, release = card_name(site.node.topology), site.release
    try:
        fewest = first_way(request, site, decided)
    except Refusal as refusal:
        # Of an own number of cards, others may help; else all that may help was tried.
        said = with_remedy(refusal, request, site) if "tensor_parallel_size" in decided else refusal
        because = str(said) if said.id not in HELPED or said is not refusal else said.cause
        because = with_weights(because, request, release, others, site.cards, site.node)
        return ReleaseSupport(release.name, kind, REFUSED, None, unadvised(because), refused_id=said.id)
    found = [_standing(each, site, request, fewest, decided) for each in like]
    if site.entry is None:
        found = [(status, f"like {each.title}: {why}", way) for each, (status, why, way) in zip(like, found)]
    # Of several models with these figures the one that most is known of.
    status, because, way = min(found, key=lambda said: KNOWN_MOST.index(said[0]), default=(*UNLIKE, fewest))
    notes = [] if _classes(site.entry, request.get("model_config")) else [NO_CLASS]
    # All releases answer: no warning need advise another, or repeat what is known of the model.
    record = about_record(site.entry) if site.entry is not None else None
    notes += [unadvised(said) for said in way.made["warnings"] if record is None or not said.startswith(record)]
    return ReleaseSupport(
        release.name,
        kind,
        status,
        way.cards if way.known else None,
        because,
        way.options,
        tuple(notes),
        least=fewest.cards if way.cards > fewest.cards else None,
    )


def _classes(entry: ModelEntry | None, config: object) -> Sequence[str]:
    """The classes that a model names; a given config.json counts before the catalogue."""
    if isinstance(config, Mapping):
        return code_of(config).architectures
    return entry.architectures if entry is not None else ()


@dataclass(frozen=True)
class SupportStatus:
    """What is known of a model on a release and cards: ``status``, and where from.

    sizes: the numbers of cards that it is known of; none where no number is named.
    """

    status: str
    because: str
    sizes: tuple[int, ...] = ()


def _record(entry: ModelEntry, site: PlanningInputs, request: Mapping[str, object]) -> SupportStatus:
    """What is known of a model on a release and the cards of a node."""
    said, release, card_type = entry.validated, site.release, site.cards.get(card_name(site.node.topology))
    if said is not None and release.name in said.releases:
        file = family_of(release).validated_models
        if card_type is None or card_type.generation not in said.generations:
            return SupportStatus(PLANNED, f"{file} names it on {' and '.join(said.generations)} alone")
        asked = request.get("dtype") or entry.defaults.get("dtype", entry.dtype)
        dtype = "fp8" if entry.dtype.startswith("float8") else asked
        if dtype not in said.dtype:
            return SupportStatus(PLANNED, f"{file} names it in {' and '.join(said.dtype)} alone")
        return SupportStatus(VALIDATED, f"named by {file} of the release", said.tensor_parallel_size)
    listed = release.listed_cards.get(entry.name, ())
    if release.name in entry.releases:
        own = {**entry.defaults, **entry.release_defaults.get(release.name, {})}.get("tensor_parallel_size")
        return SupportStatus(
            REPORTED, "known to be served with it", (*((own,) if isinstance(own, int) else ()), *listed)
        )
    if listed:
        return SupportStatus(REPORTED, "listed by the README of the release", listed)
    return SupportStatus(PLANNED, "nobody is known to have tried it")


def _standing(
    entry: ModelEntry, site: PlanningInputs, request: Mapping[str, object], fewest: RemedyPlan, decided: Collection[str]
) -> tuple[str, str, RemedyPlan]:
    """What is known of a model on a release and cards, where from, and the plan with a number of cards it is known of.

    A number that the request decides stays, and so does the fewest where each known number needs host NICs for it.
    """
    record = _record(entry, site, request)
    if not record.sizes or fewest.cards in record.sizes:
        return record.status, record.because, fewest
    numbers = f"{record.because} with {any_of(record.sizes)} cards"
    if not fewest.known:
        return record.status, numbers, fewest
    sizes = () if "tensor_parallel_size" in decided else record.sizes
    for size in sorted({*sizes}, key=lambda size: (size < fewest.cards, size)):
        try:
            way = first_way({**request, "tensor_parallel_size": size}, site, decided)
        except Refusal:
            continue
        if HOST_NICS in fewest.options or HOST_NICS not in way.options:
            return record.status, record.because, way
    return PLANNED, f"{numbers} alone", fewest


def alike(config: Mapping[str, object], entries: Iterable[ModelEntry]) -> list[ModelEntry]:
    """The models of the catalogue with the class, the figures and the quantisation of a config.json."""
    models = []
    found, classes = facts("", None, config, {}), set(code_of(config).architectures)
    for entry in entries:
        if entry.architecture is None or (classes and classes.isdisjoint(entry.architectures)):
            continue
        known = facts("", entry, None, {})
        same = all(getattr(found.shape, key) == getattr(known.shape, key) for key in FIGURES)
        if same and _stored(found) == _stored(known):
            models.append(entry)
    return models


def _stored(model: ModelFacts) -> str | None:
    """How the weights are stored, as far as catalogue files tell one from another: FP8 is FP8 by any method."""
    floats = all(scheme.kind == "float" and scheme.weight_bits == FP8_BITS for scheme in model.schemes)
    return "fp8" if model.stored_fp8 and floats else model.quant_method


# How a page calls what all machines say alike.
ANY = "any"
# Stands for the name of a node's cards in a sentence, which several may share.
CARD = "\0"


def as_text(answers: Sequence[ReleaseSupport]) -> list[str]:
    """The answers as a table for people, with what it has no room for in numbered notes below it."""
    kinds = list(dict.fromkeys(answer.cards_of for answer in answers))
    notes = _Notes(kinds)
    rows: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for release in dict.fromkeys(answer.release for answer in answers):
        said = tuple(_rows([answer for answer in answers if answer.release == release], kinds, notes))
        rows.setdefault(said, []).append(release)
    table = [("release", "answer", "cards", "reason")]
    for said, names in rows.items():
        shown = (", ".join(names), *("" for _ in said[1:]))
        table += [(name, *row) for name, row in zip(shown, said)]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip() for row in table]
    return [f"Cards: {', '.join(kinds)}", *lines, *notes.lines()]


class _Notes:
    """Sentences with their numbers; the same sentence of several releases, or about several cards, has one."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = kinds
        self._said: dict[str, list[str]] = {}

    def number(self, sentence: str, answer: ReleaseSupport) -> int:
        """Return the number of a sentence of an answer."""
        about = re.sub(rf"\b([Rr]elease) {re.escape(answer.release)}(?![\w-]|\.\w)", _this, sentence)
        about = re.sub(rf"(?<![\w-]){re.escape(answer.cards_of)}(?![\w-])", CARD, about)
        kinds = self._said.setdefault(about, [])
        if answer.cards_of not in kinds:
            kinds.append(answer.cards_of)
        return list(self._said).index(about) + 1

    def lines(self) -> Iterator[str]:
        """Yield a line for each sentence, with the cards it is of unless it is of all, or has their names."""
        for number, (sentence, named) in enumerate(self._said.items(), 1):
            kinds = [kind for kind in self._kinds if kind in named]
            about = "" if kinds == self._kinds or CARD in sentence else f"{', '.join(kinds)}: "
            yield f"[{number}] {about}{sentence.replace(CARD, any_of(kinds))}"


def _this(found: re.Match[str]) -> str:
    return "This release" if found[1][0] == "R" else "this release"


def _rows(answers: Sequence[ReleaseSupport], kinds: Sequence[str], notes: _Notes) -> Iterator[tuple[str, str, str]]:
    """Yield answer, cards and reason of a release: machines that say the same in one row."""
    found: dict[tuple[str, str], list[ReleaseSupport]] = {}
    for answer in answers:
        reason = f"{answer.refused_id.replace('_', ' ')}" if answer.refused_id else answer.because
        needed = " and ".join(f"{name}: {_word(value)}" for name, value in answer.options.items())
        found.setdefault((answer.status, f"{reason}; needs {needed}" if needed else reason), []).append(answer)
    for (status, reason), alike_ in found.items():
        numbers = dict.fromkeys(
            notes.number(sentence, answer)
            for answer in alike_
            for sentence in ((answer.because,) if answer.refused_id else answer.notes)
        )
        marks = f" [{', '.join(map(str, sorted(numbers)))}]" if numbers else ""
        yield status, _cards(alike_, kinds), f"{reason}{marks}"


def _cards(answers: Sequence[ReleaseSupport], kinds: Sequence[str]) -> str:
    """Which cards answers are for, and how many of them."""
    counts: dict[tuple[int | None, int | None], list[str]] = {}
    for answer in answers:
        counts.setdefault((answer.cards, answer.least), []).append(answer.cards_of)
    if answers[0].status == REFUSED:
        (names,) = counts.values()
        return "-" if names == kinds else "/".join(names)
    return ", ".join(
        f"{count or '?'} {ANY if names == kinds else '/'.join(names)}{f' (at least {least})' if least else ''}"
        for (count, least), names in counts.items()
    )


def _word(value: object) -> str:
    """A value as a request writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_documents(answers: Sequence[ReleaseSupport]) -> list[dict[str, Any]]:
    """The answers for programs."""
    return [{**vars(answer), "options": dict(answer.options), "notes": [*answer.notes]} for answer in answers]
