"""Pairs of nodes: the schedule, the bound after which one bad node is named, links, several faults, and the tables."""

from __future__ import annotations

import csv
import json
from io import StringIO
from itertools import combinations

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.fabric.pairs import PairRun, as_csv, as_json, judge_pairs, rounds
from hypothesis import given
from hypothesis import strategies as st


def names(number: int) -> list[str]:
    return [f"gaudi-{place:02}" for place in range(1, number + 1)]


def run(
    nodes: list[str], first: int, bad: set[str], links: tuple[frozenset[str], ...] = (), slow: float | None = 40.0
) -> list[PairRun]:
    """The results of the first rounds where these nodes and links are bad."""
    return [
        PairRun(number, pair, slow if bad & set(pair) or frozenset(pair) in links else 70.0)
        for number, made in enumerate(rounds(nodes)[:first], 1)
        for pair in made
    ]


def test_every_pair_meets_once_and_every_node_at_most_once_a_round(subtests: pytest.Subtests) -> None:
    for number in range(2, 65):
        with subtests.test(number=number):
            nodes = names(number)
            made = rounds(nodes)
            assert len(made) == (number - 1 if number % 2 == 0 else number)
            assert sorted(tuple(sorted(pair)) for each in made for pair in each) == list(combinations(nodes, 2))
            assert {len(each) for each in made} == {number // 2}
            assert all(len({node for pair in each for node in pair}) == 2 * len(each) for each in made)


def names_the_bad_node(number: int, place: int) -> None:
    nodes, even = names(number), number % 2 == 0
    bad = nodes[place]
    met = run(nodes, 2 if even else 3, {bad}, slow=None if number < 12 else 40.0)
    outcome = judge_pairs(nodes, met)
    assert (outcome.bad_nodes, outcome.bad_links, outcome.suspects) == ((bad,), (), ())
    assert len(met) == (number if even else 3 * (number - 1) // 2)


@pytest.mark.parametrize("number", [4, 5, 6, 7, 63, 64])
def test_one_bad_node_is_named_after_two_rounds_or_three(number: int) -> None:
    for place in range(number):
        names_the_bad_node(number, place)


@given(st.integers(8, 62).flatmap(lambda number: st.tuples(st.just(number), st.integers(0, number - 1))))
def test_one_bad_node_of_any_number_is_named(drawn: tuple[int, int]) -> None:
    names_the_bad_node(*drawn)


def test_of_three_nodes_one_is_named_by_all_pairs_and_of_two_none() -> None:
    for bad in names(3):
        assert judge_pairs(names(3), run(names(3), 3, {bad})).bad_nodes == (bad,)
    two = judge_pairs(names(2), run(names(2), 1, {"gaudi-01"}, slow=None))
    assert (two.bad_nodes, two.suspects) == ((), ("gaudi-01", "gaudi-02"))


@pytest.mark.parametrize("number", [4, 5, 8, 16])
def test_one_bad_link_is_named_once_every_pair_has_met(number: int) -> None:
    nodes = names(number)
    for link in combinations(nodes, 2):
        outcome = judge_pairs(nodes, run(nodes, number, set(), (frozenset(link),)))
        assert (outcome.bad_nodes, tuple(tuple(sorted(each)) for each in outcome.bad_links)) == ((), (link,))
        assert outcome.left == 0


def test_a_node_with_two_bad_links_among_many_good_ones_is_not_bad_itself() -> None:
    nodes = names(6)
    links = (frozenset(("gaudi-01", "gaudi-02")), frozenset(("gaudi-01", "gaudi-03")))
    outcome = judge_pairs(nodes, run(nodes, 5, set(), links))
    assert (outcome.bad_nodes, len(outcome.bad_links)) == ((), 2)


def test_the_worst_node_is_named_first_so_that_nobody_else_is_accused_for_it() -> None:
    nodes = names(4)
    outcome = judge_pairs(nodes, run(nodes, 3, {"gaudi-04"}, (frozenset(("gaudi-01", "gaudi-02")),)))
    assert outcome.bad_nodes == ("gaudi-04",)
    assert [set(link) for link in outcome.bad_links] == [{"gaudi-01", "gaudi-02"}]


@pytest.mark.parametrize("number", [5, 6, 9, 16])
def test_two_bad_nodes_are_both_named(number: int) -> None:
    nodes = names(number)
    for bad in combinations(nodes, 2):
        assert judge_pairs(nodes, run(nodes, number, set(bad))).bad_nodes == bad


def test_where_no_pair_is_good_nobody_is_accused() -> None:
    outcome = judge_pairs(names(6), run(names(6), 5, set(names(6)), slow=None))
    assert (outcome.bad_nodes, outcome.suspects, outcome.floor_gb_s) == ((), tuple(names(6)), None)


def test_after_one_round_a_bad_pair_is_not_told_apart() -> None:
    nodes = names(4)
    outcome = judge_pairs(nodes, run(nodes, 1, {"gaudi-01"}))
    assert (outcome.bad_nodes, outcome.suspects) == ((), ("gaudi-01", "gaudi-04"))
    assert outcome.left == 4
    assert outcome.sentences[-1] == "4 of 6 pairs have not met."


def test_four_nodes_with_one_bad_pair_name_the_way_between_them() -> None:
    nodes = names(4)
    outcome = judge_pairs(nodes, run(nodes, 3, set(), (frozenset(("gaudi-02", "gaudi-03")),), slow=None))
    assert outcome.bad_links == (("gaudi-02", "gaudi-03"),)
    assert "between gaudi-02 and gaudi-03" in outcome.sentences[0]


def test_nodes_that_are_alike_are_good_and_it_is_said_what_they_were_compared_with() -> None:
    nodes = names(4)
    outcome = judge_pairs(nodes, run(nodes, 3, set()))
    assert outcome.sentences == (
        "Every pair that has met is good: 63.0 GB/s or more (90 % of the best pair; no figure is published).",
    )
    assert judge_pairs(nodes, run(nodes, 3, set()), 65.0).floor_gb_s == 65.0
    assert judge_pairs(nodes, run(nodes, 3, set()), 75.0).sentences[0].startswith("No run over two nodes")


@given(st.integers(2, 12), st.data())
def test_whatever_happened_each_accused_node_has_bad_pairs(number: int, data: st.DataObject) -> None:
    nodes = names(number)
    values = st.one_of(st.none(), st.floats(1, 100))
    met = [PairRun(place, pair, data.draw(values)) for place, made in enumerate(rounds(nodes), 1) for pair in made]
    outcome = judge_pairs(nodes, met)
    for node in outcome.bad_nodes:
        own = [each.nw_gb_s for each in met if node in each.nodes]
        assert sum(value is None or value < (outcome.floor_gb_s or 0) for value in own) >= 2
    assert not set(outcome.bad_nodes) & set(outcome.suspects)


@pytest.mark.parametrize(
    ("nodes", "id_"), [(names(1), "number_of_nodes"), (names(65), "number_of_nodes"), (["a", "a"], "node_twice")]
)
def test_what_makes_no_pairs_is_refused(nodes: list[str], id_: str) -> None:
    with pytest.raises(Refusal) as refused:
        rounds(nodes)
    assert refused.value.id == id_


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", " =", "\t="])
def test_no_sentence_of_a_node_is_a_formula_of_a_spreadsheet(begin: str) -> None:
    text = as_csv([PairRun(1, ("gaudi-01", "gaudi-02"), None, f"{begin}HYPERLINK(1)")])
    (row,) = csv.DictReader(StringIO(text))
    assert row["sentence"].startswith("'")
    assert row["sentence"].endswith("HYPERLINK(1)")


def test_results_are_a_table_and_a_document() -> None:
    nodes = names(4)
    met = [*run(nodes, 1, {"gaudi-01"}), PairRun(2, ("gaudi-01", "gaudi-03"), None, "Rank 3\nended, badly\x1b[31m")]
    rows = list(csv.DictReader(StringIO(as_csv(met))))
    assert [row["class"] for row in rows] == ["bad", "good", "bad"]
    assert (rows[2]["nw_gb_s"], rows[2]["sentence"]) == ("", "Rank 3 ended, badly")
    document = json.loads(json.dumps(as_json(nodes, met)))
    assert document["bad_nodes"] == ["gaudi-01"]
    assert document["pairs"][0] == {
        "round": 1,
        "node": "gaudi-01",
        "other": "gaudi-04",
        "nw_gb_s": 40.0,
        "class": "bad",
        "sentence": "",
    }
