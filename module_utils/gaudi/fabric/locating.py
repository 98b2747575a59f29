"""Choose which cards to run next until the slow card or bad link of a group is identified.

Pure and stateless: all results so far go in, the next runs or the answer come out. Only sets of the same size are
compared, because figures are published for whole groups only. A set is bad if its run failed, or if it is below 90 % of
the best set of its size.
Halves come first. One bad half contains the fault and is halved again, down to a pair, whose cards then each run with
another card. If both halves are good, the fault is a link between them: combinations of their halves are run, down to a
pair. A pattern that fits neither (several faults) is resolved by running all pairs. In a group of 8, one bad card is
found after at most 6 further runs, one bad link after 10, anything else after 28 more; in a group of 4 after 4, 6, and
6 more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .classes import SLOW_BELOW, modules_text
from .pairs import eliminate

Modules = tuple[int, ...]


@dataclass(frozen=True)
class CardsRun:
    """A run over some cards: its NW Bandwidth in GB/s, None if it failed."""

    modules: Modules
    nw_gb_s: float | None


@dataclass(frozen=True)
class FaultyPart:
    """The faulty part: kind is card (one module), link (two modules) or group (no single part stands out)."""

    kind: str
    modules: Modules
    sentence: str


@dataclass(frozen=True)
class LocatingStep:
    """next: sets of module ids to run, in order; located: the answer, once next is empty."""

    next: tuple[Modules, ...] = ()
    located: tuple[FaultyPart, ...] = ()


def next_step(group: Sequence[int], tried: Sequence[CardsRun]) -> LocatingStep:
    """Return the next runs over a group that was below its floor, or the faulty part.

    tried: the runs so far over fewer cards than the group; runs over the whole group add nothing.
    """
    cards = tuple(sorted(group))
    results = {tuple(sorted(each.modules)): each.nw_gb_s for each in tried}
    if len(cards) < 3:
        return LocatingStep(
            located=(_group(cards, "Two cards have nobody else to meet: either may be at fault, or their link."),)
        )
    if len(cards) & (len(cards) - 1):
        return _all_pairs(cards, results)
    return _within(cards, cards, results)


def _within(bad: Modules, group: Modules, results: dict[Modules, float | None]) -> LocatingStep:
    """Continue in a bad set: the fault is one of its cards, or a link between two of them."""
    if len(bad) == 2:
        return _of_a_pair(bad, group, results)
    half = len(bad) // 2
    halves = (bad[:half], bad[half:])
    missing = _missing(halves, results)
    if missing:
        return LocatingStep(next=missing)
    slow = [each for each in halves if _is_bad(each, results)]
    if len(slow) == 1:
        return _within(slow[0], group, results)
    return _all_pairs(group, results) if slow else _between(halves[0], halves[1], group, results)


def _of_a_pair(pair: Modules, group: Modules, results: dict[Modules, float | None]) -> LocatingStep:
    """Test the cards of a bad pair separately: each runs with another card of the group."""
    others = [card for card in group if card not in pair][:2]
    meetings = tuple(_sorted((card, other)) for card, other in zip(pair, others))
    missing = _missing(meetings, results)
    if missing:
        return LocatingStep(next=missing)
    slow = [card for card, meeting in zip(pair, meetings) if _is_bad(meeting, results)]
    if len(slow) == 1:
        return LocatingStep(located=(_card(slow[0]),))
    return _all_pairs(group, results) if slow else LocatingStep(located=(_link(pair),))


def _between(one: Modules, other: Modules, group: Modules, results: dict[Modules, float | None]) -> LocatingStep:
    """Continue between two good sets: the fault is a link from one to the other."""
    if len(one) == 1:
        return LocatingStep(located=(_link(one + other),))
    half = len(one) // 2
    parts = [
        (one[:half], other[:half]),
        (one[half:], other[half:]),
        (one[:half], other[half:]),
        (one[half:], other[:half]),
    ]
    sets = tuple(_sorted(left + right) for left, right in parts)
    missing = _missing(sets, results)
    if missing:
        return LocatingStep(next=missing)
    slow = [part for part, made in zip(parts, sets) if _is_bad(made, results)]
    if len(slow) == 1:
        return _between(*slow[0], group, results)
    if slow or len(one + other) < len(group):
        return _all_pairs(group, results)
    why = (
        "Every half of them, and every crossing of halves, is alike: unless three cards or more are at fault, it is "
        "what they have in common, such as driver, firmware, power or the host's settings."
    )
    return LocatingStep(located=(_group(group, why),))


def _all_pairs(group: Modules, results: dict[Modules, float | None]) -> LocatingStep:
    """Run every pair, and conclude from the table of results."""
    pairs = tuple((one, other) for place, one in enumerate(group) for other in group[place + 1 :])
    missing = _missing(pairs, results)
    if missing:
        return LocatingStep(next=missing)
    guilt = eliminate((one, other, not _is_bad((one, other), results)) for one, other in pairs)
    located = [_card(card) for card in guilt.members] + [_link(link) for link in guilt.links]
    if guilt.suspects:
        located.append(_group(guilt.suspects, "No run over two of them was good."))
    return LocatingStep(located=tuple(located) or (_group(group, "All pairs are alike: no card or link stands out."),))


def _is_bad(modules: Modules, results: dict[Modules, float | None]) -> bool:
    value = results[modules]
    best = (
        max(each for made, each in results.items() if len(made) == len(modules) and each is not None) if value else 0.0
    )
    return value is None or value < SLOW_BELOW * best


def _missing(sets: Sequence[Modules], results: dict[Modules, float | None]) -> tuple[Modules, ...]:
    return tuple(each for each in sets if each not in results)


def _sorted(modules: Sequence[int]) -> Modules:
    return tuple(sorted(modules))


def _card(module: int) -> FaultyPart:
    said = f"Module {module} is at fault: sets of cards with it are slow or fail, sets without it are not."
    return FaultyPart("card", (module,), f"{said} Reset it, then have the card checked.")


def _link(pair: Sequence[int]) -> FaultyPart:
    one, other = pair
    said = f"The link between modules {one} and {other} is at fault: each is good with other cards."
    return FaultyPart("link", (one, other), f"{said} Look at hl-smi -n stats of both, then have the board checked.")


def _group(modules: Modules, why: str) -> FaultyPart:
    return FaultyPart("group", modules, f"Modules {modules_text(modules)} are slow or fail together. {why}")
