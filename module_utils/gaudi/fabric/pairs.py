"""Runs over pairs of nodes: N/2 pairs a round; the bad node or link is identified by elimination.

Of N nodes, one bad node is identified after 2 rounds if N is even and at least 4, after 3 if N is odd and at least 5: N
runs, or 3(N-1)/2. Two nodes form one pair, which cannot tell them apart; three form three pairs, which can. Every pair
has run after N-1 rounds (N if N is odd). tests/unit/fabric/test_pairs.py checks that for every N up to 64.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from io import StringIO
from typing import Any, Generic, TypeVar

from ..base.printable import printable
from ..base.refusal import Refusal
from .classes import SLOW_BELOW

MOST_NODES = 64

T = TypeVar("T", int, str)


@dataclass(frozen=True)
class PairRun:
    """A run over two nodes: NW Bandwidth in GB/s, None if it failed; sentence says how."""

    round: int
    nodes: tuple[str, str]
    nw_gb_s: float | None
    sentence: str = ""


@dataclass(frozen=True)
class Elimination(Generic[T]):
    """Conclusions from a table of good and bad pairs: bad members, bad links, and members that remain suspect."""

    members: tuple[T, ...] = ()
    links: tuple[tuple[T, T], ...] = ()
    suspects: tuple[T, ...] = ()


@dataclass(frozen=True)
class PairConclusions:
    """Conclusions about the nodes.

    bad_nodes and bad_links are at fault; suspects need another round. left: pairs that have not run. floor_gb_s: the NW
    Bandwidth in GB/s that a pair needed, None if no run gave one. sentences: all of it for people.
    """

    bad_nodes: tuple[str, ...]
    bad_links: tuple[tuple[str, str], ...]
    suspects: tuple[str, ...]
    left: int
    floor_gb_s: float | None
    sentences: tuple[str, ...] = field(default=())


def rounds(nodes: Sequence[str]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return rounds in which every pair runs once, each node at most once a round (the circle method).

    Raises Refusal for less than 2 nodes, more than 64, or a repeated name.
    """
    if not 2 <= len(nodes) <= MOST_NODES:
        raise Refusal(
            "number_of_nodes",
            f"Pairs are made of 2 to {MOST_NODES} nodes, not of {len(nodes)}. Name others with --limit.",
        )
    twice = sorted({node for node in nodes if list(nodes).count(node) > 1})
    if twice:
        raise Refusal("node_twice", f"{twice[0]} is among the nodes twice. Name each once.")
    ring: list[str | None] = [*nodes, *[None] * (len(nodes) % 2)]
    made = []
    for _ in range(len(ring) - 1):
        facing = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]))
        made.append(tuple((one, other) for one, other in facing if one is not None and other is not None))
        ring[1:] = [ring[-1], *ring[1:-1]]
    return tuple(made)


def eliminate(pairs: Iterable[tuple[T, T, bool]]) -> Elimination[T]:
    """Return who is at fault; each pair is two members and whether its run was good.

    A member is bad if at least two of its pairs are bad, and more are bad than good. The worst is named first, its
    pairs are removed, and the rest is judged again. A bad pair whose members are good with others is a bad link. All
    other bad pairs need more runs; without any good pair, everyone stays suspect.
    """
    table = list(pairs)
    if table and not any(pair[2] for pair in table):
        return Elimination(suspects=tuple(sorted({member for pair in table for member in pair[:2]})))
    named: list[T] = []
    while True:
        bad, good = _counted(table, wanted=False), _counted(table, wanted=True)
        guilty = [member for member, count in bad.items() if count >= 2 and count > good.get(member, 0)]
        if not guilty:
            break
        worst = min(guilty, key=lambda member: (good.get(member, 0) - bad[member], member))
        named.append(worst)
        table = [pair for pair in table if worst not in pair[:2]]
    links = [pair[:2] for pair in table if not pair[2] and all(good.get(member) for member in pair[:2])]
    suspects = {member for pair in table if not pair[2] and pair[:2] not in links for member in pair[:2]}
    return Elimination(
        tuple(sorted(named)), tuple(sorted(links)), tuple(sorted(each for each in suspects if not good.get(each)))
    )


def _counted(table: Iterable[tuple[T, T, bool]], *, wanted: bool) -> dict[T, int]:
    """Count each member's good pairs, or its bad ones."""
    counts: dict[T, int] = {}
    for one, other, good in table:
        for member in (one, other) if good is wanted else ():
            counts[member] = counts.get(member, 0) + 1
    return counts


def pair_floor(met: Sequence[PairRun], floor_gb_s: float | None) -> float | None:
    """Return the floor of a pair in GB/s: the site's, else 90 % of the best pair; None if every run failed."""
    best = max((each.nw_gb_s for each in met if each.nw_gb_s is not None), default=None)
    return floor_gb_s if floor_gb_s is not None or best is None else SLOW_BELOW * best


def judge_pairs(nodes: Sequence[str], met: Sequence[PairRun], floor_gb_s: float | None = None) -> PairConclusions:
    """Identify the bad nodes and links of the pairs so far; floor_gb_s: the site's own floor.

    No figure is published for more than one node. Without a site's floor, pairs are compared with the best pair, so
    that nodes that are all equally slow are not found.
    """
    floor = pair_floor(met, floor_gb_s)
    guilt = eliminate((*each.nodes, _good(each, floor)) for each in met)
    wanted = {frozenset(pair) for made in rounds(nodes) for pair in made}
    left = len(wanted - {frozenset(each.nodes) for each in met})
    sentences = [_about(node, met, floor) for node in guilt.members]
    sentences += [
        f"The way between {one} and {other} is at fault: both are good with other nodes. Look at cables and switch."
        for one, other in guilt.links
    ]
    if met and not any(_good(each, floor) for each in met):
        sentences.append("No run over two nodes was good: look at what they share, such as switch, image and settings.")
    elif guilt.suspects:
        sentences.append(f"Not told apart yet: {', '.join(guilt.suspects)}. They have to meet nodes that are good.")
    if met and not sentences:
        words = "the site's own floor" if floor_gb_s is not None else "90 % of the best pair; no figure is published"
        sentences.append(f"Every pair that has met is good: {floor:.1f} GB/s or more ({words}).")
    if left:
        sentences.append(f"{left} of {len(wanted)} pairs have not met.")
    return PairConclusions(guilt.members, guilt.links, guilt.suspects, left, floor, tuple(map(printable, sentences)))


def _good(met: PairRun, floor: float | None) -> bool:
    return met.nw_gb_s is not None and floor is not None and met.nw_gb_s >= floor


def _about(node: str, met: Sequence[PairRun], floor: float | None) -> str:
    own = [each for each in met if node in each.nodes]
    bad = sum(not _good(each, floor) for each in own)
    return f"{node} is at fault: {bad} of its {len(own)} pairs were bad. Measure its own cards."


def pair_rows(met: Sequence[PairRun], floor_gb_s: float | None) -> list[dict[str, Any]]:
    """Return the results as rows: round, the two nodes, NW Bandwidth in GB/s, good or bad, and the sentence."""
    floor = pair_floor(met, floor_gb_s)
    return [
        {
            "round": each.round,
            "node": each.nodes[0],
            "other": each.nodes[1],
            "nw_gb_s": each.nw_gb_s,
            "class": "good" if _good(each, floor) else "bad",
            "sentence": printable(each.sentence),
        }
        for each in met
    ]


def as_csv(met: Sequence[PairRun], floor_gb_s: float | None = None) -> str:
    """Return the results as CSV with a header, lines ended as RFC 4180 has it.

    A spreadsheet runs a cell that begins like a formula; a node reports the sentences.
    """
    out = StringIO()
    writer = csv.DictWriter(out, ["round", "node", "other", "nw_gb_s", "class", "sentence"])
    writer.writeheader()
    for row in pair_rows(met, floor_gb_s):
        writer.writerow({name: _no_formula(cell) for name, cell in row.items()})
    return out.getvalue()


def _no_formula(cell: object) -> object:
    """Return a cell with a text marked as one where a spreadsheet would read a formula (OWASP, CSV Injection)."""
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip()[:1] in tuple("=+-@") else cell


def as_json(nodes: Sequence[str], met: Sequence[PairRun], floor_gb_s: float | None = None) -> dict[str, Any]:
    """Return results and outcome as plain data; the report takes it."""
    outcome = asdict(judge_pairs(nodes, met, floor_gb_s))
    return {"nodes": list(nodes), "pairs": pair_rows(met, floor_gb_s), **_plain(outcome)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value
