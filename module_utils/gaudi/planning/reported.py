"""Plan with what a node reports (module node_report): check it, and ask again for what a plan needs beyond it.

A node can report anything. So each value has a type and bounds, which are checked here, and only paths that were asked
for are looked up. What a report holds decides about cards and sizes, never about where weights or images are from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..base import reported
from ..base.checks import Reader, integer, mapping, matching, sequence
from ..base.documents import LONGEST_FILE
from ..base.refusal import Refusal
from ..cards.given import LAST_MODULE, reported_topology
from ..cards.reservations import Reservations
from ..catalogue.entries import ModelEntry, ReleaseEntry
from ..model.headers import Weights
from ..model.weights_document import weights_in
from ..serving.last_start import DIGEST, MOST_BLOCKS, LastStart
from .elsewhere import asks_for_another
from .many import Catalogue

# How often a node is asked for one task.
MOST_CALLS = 3
# Parts of a report that every plan needs; the others are asked for by path.
PARTS = ("cards", "last_starts", "reservations")

Found = TypeVar("Found")
Plans = list[dict[str, Any]]


@dataclass(frozen=True)
class Questions:
    """What a node is asked: parts of its report, and paths of weights and of files of text."""

    parts: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to ask."""
        return bool(self.parts or self.weights or self.files)

    def as_options(self) -> dict[str, list[str]]:
        """Return the options of the module node_report."""
        asked = {name: [*paths] for name, paths in (("weights", self.weights), ("files", self.files)) if paths}
        return {"parts": [*self.parts, *asked], **asked}


def first_questions(requests: Sequence[Mapping[str, object]], models: Mapping[str, ModelEntry], root: str) -> Questions:
    """Return what plans of these requests need of a node, as far as it can be told before its cards are known."""
    weights, files = [], []
    for request in requests:
        name, speculative = request.get("model"), request.get("speculative_config")
        entry = models.get(name) if isinstance(name, str) else None
        if request.get("weights") is not None:
            weights.append(request["weights"])
        elif entry is not None:
            directories = [entry.directory, *([entry.conversion.from_directory] if entry.conversion else [])]
            weights += [f"{root.rstrip('/')}/{directory}" for directory in directories]
        weights.append(speculative.get("model") if isinstance(speculative, Mapping) else None)
        files.append(request.get("bucketing_file"))
    return Questions(PARTS, _paths(weights), _paths(files))


def _paths(named: Sequence[object]) -> tuple[str, ...]:
    """Return the absolute paths among what requests name, each once; the planner refuses the others."""
    return tuple(dict.fromkeys(path for path in named if isinstance(path, str) and path.startswith("/")))


class ReportedNode:
    """What a node has reported so far. A path that was not asked for yet is noted, and its request refused."""

    def __init__(self) -> None:
        self.topology: dict[str, Any] = {}
        self.reservations: Reservations = {}
        self.last_starts: dict[str, LastStart] = {}
        # Why the reservations were made up from the plans; "" where they were not.
        self.damage = ""
        self._weights: dict[str, Weights | Refusal | None] = {}
        self._files: dict[str, str | Refusal | None] = {}
        self._open: dict[tuple[str, str], None] = {}

    def add(self, answer: object, asked: Questions) -> None:
        """Take in the answer to questions. Raises Refusal: a part could not be read, or has another form."""
        report = mapping(answer, "What the node reports")
        if "cards" in asked.parts:
            self.topology = reported_topology(reported.part(report, "cards"))
        if "reservations" in asked.parts:
            held = reported.part(report, "reservations")
            self.reservations, self.damage = _reservations(held), reported.sentence(held.get("damage"))
        if "last_starts" in asked.parts:
            self.last_starts = _last_starts(reported.part(report, "last_starts"))
        for path in asked.weights:
            self._weights[path] = _entry(report, "weights", path, weights_in)
        for path in asked.files:
            self._files[path] = _entry(report, "files", path, _text)

    def read_weights(self, path: str) -> Weights | None:
        """Return what is in a directory. Raises Refusal: it could not be read, or the node was not asked for it yet."""
        return self._known("weights", self._weights, path)

    def read_file(self, path: str) -> str | None:
        """Return the text of a file. Raises Refusal as ``read_weights`` does."""
        return self._known("files", self._files, path)

    def _known(self, kind: str, answers: Mapping[str, Found | Refusal | None], path: str) -> Found | None:
        if path not in answers:
            self._open[kind, path] = None
            raise Refusal("node_not_asked", f"The plan needs {path}, which the node was not asked for. Plan again.")
        answer = answers[path]
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def open_questions(self) -> Questions:
        """Return what plans have asked for since the last call of this method, and the node has not reported."""
        noted, self._open = self._open, {}
        return Questions(
            weights=tuple(path for kind, path in noted if kind == "weights"),
            files=tuple(path for kind, path in noted if kind == "files"),
        )


def plan_reported(
    plan: Callable[[ReportedNode], Plans], ask: Callable[[Questions], object], questions: Questions
) -> tuple[Plans, ReportedNode]:
    """Return the plans, and the node that they are for, which is asked until nothing is open.

    plan: makes the plans. ask: returns the node's report. A request that still needs something after the last call
    is refused. Raises Refusal for a report that no plan can be made with.
    """
    node = ReportedNode()
    plans: Plans = []
    for _ in range(MOST_CALLS):
        node.add(ask(questions), questions)
        plans = plan(node)
        questions = node.open_questions()
        if not questions:
            break
    return plans, node


def with_others(
    plan: Callable[[Catalogue], Plans], catalogue: Catalogue, others: Callable[[], Sequence[ReleaseEntry]]
) -> Plans:
    """Return the plans. Where one advises another release, all others are read, and it names those that serve."""
    plans = plan(catalogue)
    told = [sentence for made in plans for sentence in (made.get("refused", ""), *made.get("warnings", ()))]
    return plan(replace(catalogue, others=others())) if any(map(asks_for_another, told)) else plans


def _entry(
    report: Mapping[str, object], kind: str, path: str, read: Callable[[object], Found | None]
) -> Found | Refusal | None:
    """Return an entry of a part, or why there is none: other requests can be planned without it."""
    try:
        return read(reported.part(reported.part(report, kind), path))
    except Refusal as refusal:
        return refusal


def _text(document: object) -> str | None:
    values = Reader(document, "What the node reports of a file", ("text",))
    content = values.raw("text") if values.has("text") else None
    if content is not None and not (isinstance(content, str) and len(content) <= LONGEST_FILE):
        raise Refusal("file_unreadable", f"The node reports no text of at most {LONGEST_FILE} characters.")
    return content


def _reservations(document: Mapping[str, object]) -> Reservations:
    """Return which instance has which cards."""
    held = mapping(document.get("reservations"), "What the node reports of reservations")
    return {name: _reservation(reservation) for name, reservation in _by_instance(held)}


def _reservation(document: object) -> dict[str, Any]:
    values = Reader(document, "A reservation on the node", ("cards", "since"))
    cards = sequence(values.raw("cards"), "The cards of a reservation", LAST_MODULE + 1)
    return {"cards": [_card(card) for card in cards], "since": values.text("since", "")}


def _card(document: object) -> dict[str, Any]:
    values = Reader(document, "A reserved card", ("module_id", "serial"))
    serial = values.text("serial", "") if values.has("serial") else None
    return {"module_id": values.integer("module_id", 0, LAST_MODULE), "serial": serial}


def _last_starts(document: Mapping[str, object]) -> dict[str, LastStart]:
    return {name: _last_start(start) for name, start in _by_instance(document)}


def _last_start(document: object) -> LastStart:
    values = Reader(document, "The last start of an instance", ("sized_by", "kv_blocks"))
    return LastStart(
        matching(values.raw("sized_by"), "What a start was sized by", DIGEST, "hexadecimal digits"),
        integer(values.raw("kv_blocks"), "The KV blocks of a start", 1, MOST_BLOCKS),
    )


def _by_instance(document: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return the entries of a mapping by instance."""
    sequence([*document], "What the node reports of instances", reported.MOST_ENTRIES)
    return [(reported.instance(name), value) for name, value in document.items()]
