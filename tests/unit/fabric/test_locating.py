"""The search for a bad card or link: every place of one fault, its bound, several faults, and none that stands out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from ansible.module_utils.gaudi.fabric.locating import CardsRun, FaultyPart, next_step
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fabric.made import most_runs

FOUR, EIGHT = tuple(range(4)), tuple(range(8))
GROUPS = (FOUR, (4, 5, 6, 7), EIGHT)
Measure = Callable[[tuple[int, ...]], "float | None"]


def faulty(cards: tuple[int, ...] = (), links: tuple[tuple[int, int], ...] = (), slow: float | None = 60.0) -> Measure:
    """A node on which sets that hold one of these are slow (or fail, for None); others depend on their size alone."""

    def measure(modules: tuple[int, ...]) -> float | None:
        hit = set(cards) & set(modules) or any(set(link) <= set(modules) for link in links)
        return (slow if slow is None else slow * len(modules) / 8) if hit else 100.0 * len(modules) / 8

    return measure


def found(group: tuple[int, ...], measure: Measure) -> tuple[list[tuple[str, tuple[int, ...]]], int]:
    """What is named at the end, and after how many runs."""
    tried: list[CardsRun] = []
    while True:
        step = next_step(group, tried)
        assert bool(step.next) is not bool(step.located)
        if step.located:
            assert all(each.sentence.endswith(".") for each in step.located)
            return [(each.kind, each.modules) for each in step.located], len(tried)
        assert not {each.modules for each in tried} & set(step.next)
        tried += [CardsRun(modules, measure(modules)) for modules in step.next]


@pytest.mark.parametrize("slow", [60.0, 89.0, None])
@pytest.mark.parametrize("group", GROUPS, ids=len)
def test_one_bad_card_is_named_within_the_bound(group: tuple[int, ...], slow: float | None) -> None:
    for card in group:
        named, runs = found(group, faulty(cards=(card,), slow=slow))
        assert named == [("card", (card,))]
        assert runs <= most_runs(len(group))["card"] <= 6


@pytest.mark.parametrize("slow", [60.0, None])
@pytest.mark.parametrize("group", GROUPS, ids=len)
def test_one_bad_link_is_named_within_the_bound(group: tuple[int, ...], slow: float | None) -> None:
    counts = []
    for link in combinations(group, 2):
        named, runs = found(group, faulty(links=(link,), slow=slow))
        assert named == [("link", link)]
        counts.append(runs)
    assert max(counts) == most_runs(len(group))["link"]


def test_the_bounds_are_those_that_are_stated() -> None:
    assert most_runs(8) == {"card": 6, "link": 10, "anything": 38}
    assert most_runs(4) == {"card": 4, "link": 6, "anything": 12}


@pytest.mark.parametrize("slow", [60.0, None])
def test_two_bad_cards_are_both_named(slow: float | None) -> None:
    for cards in combinations(EIGHT, 2):
        named, runs = found(EIGHT, faulty(cards=cards, slow=slow))
        assert named == [("card", (card,)) for card in cards]
        assert runs <= most_runs(8)["anything"]


def test_two_bad_links_between_the_halves_are_both_named() -> None:
    links = ((0, 4), (1, 6))
    assert found(EIGHT, faulty(links=links))[0] == [("link", link) for link in links]


def test_what_shows_over_four_cards_and_not_over_two_is_no_single_link() -> None:
    """The crossings say that 0 and 4 do not go together, their pair says that they do."""

    def measure(modules: tuple[int, ...]) -> float | None:
        return None if len(modules) == 4 and {0, 4} <= set(modules) else 100.0

    named, runs = found(EIGHT, measure)
    assert (named, runs) == ([("group", EIGHT)], 2 + 4 + 28)


def test_a_bad_card_and_a_bad_link_elsewhere_are_both_named() -> None:
    named, runs = found(EIGHT, faulty(cards=(1,), links=((5, 6),)))
    assert named == [("card", (1,)), ("link", (5, 6))]
    assert runs <= most_runs(8)["anything"]


@given(st.sets(st.integers(0, 7), max_size=8), st.sets(st.sampled_from(list(combinations(EIGHT, 2))), max_size=6))
def test_whatever_is_at_fault_the_search_ends_within_the_bound(cards: set[int], links: set[tuple[int, int]]) -> None:
    named, runs = found(EIGHT, faulty(cards=tuple(cards), links=tuple(links), slow=None))
    assert named
    assert runs <= most_runs(8)["anything"]


def test_what_is_alike_slow_names_nobody() -> None:
    named, runs = found(EIGHT, faulty())
    assert (named, runs) == ([("group", EIGHT)], 6)


def test_a_group_that_fails_in_every_set_names_the_group() -> None:
    named, runs = found(EIGHT, lambda _modules: None)
    assert named == [("group", EIGHT)]
    assert runs <= most_runs(8)["anything"]


def test_two_cards_have_nobody_else_to_meet() -> None:
    step = next_step((2, 3), ())
    assert [(each.kind, each.modules) for each in step.located] == [("group", (2, 3))]


def test_a_number_that_cannot_be_halved_is_told_by_its_pairs() -> None:
    named, runs = found((0, 1, 2, 4, 5, 6, 7), faulty(cards=(5,)))
    assert (named, runs) == ([("card", (5,))], 21)
    assert found((4, 6, 7), faulty(links=((4, 7),)))[0] == [("link", (4, 7))]


def test_small_differences_between_runs_accuse_nobody() -> None:
    def noisy(modules: tuple[int, ...]) -> float:
        return 100.0 - sum(modules) % 9

    assert found(EIGHT, noisy)[0] == [("group", EIGHT)]


def test_a_sentence_says_what_to_do() -> None:
    located = next_step(FOUR, [CardsRun(pair, 9.0 if 2 in pair else 12.0) for pair in combinations(FOUR, 2)]).located
    assert located == (
        FaultyPart(
            "card",
            (2,),
            "Module 2 is at fault: sets of cards with it are slow or fail, sets without it are not. Reset it, then "
            "have the card checked.",
        ),
    )
