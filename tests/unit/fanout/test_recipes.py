"""Which node gives compiled recipes to which others, and whose play that is."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.fanout.recipes import nodes_carrying_recipes, recipe_shares, recipes_in_turn
from hypothesis import given, settings
from hypothesis import strategies as st

KEY, OTHER = "qwen3-8b-bfloat16-hl225-tp1-0123456789ab", "qwen3-8b-bfloat16-hl225-tp2-ba9876543210"


def node(has: dict[str, str] | None = None, lacks: dict[str, str] | None = None, **own: Any) -> dict[str, Any]:
    return {"preflight_node": {"recipes": {"has": has or {}, "lacks": lacks or {}}}, **own}


def test_who_has_recipes_of_the_key_gives_them_to_who_lacks_them() -> None:
    nodes = {"a": node(lacks={KEY: "chat"}), "b": node({KEY: "talk"}), "c": node(lacks={KEY: "more"})}
    assert recipe_shares(nodes) == {KEY: {"give": {"b": "talk"}, "take": {"a": "chat", "c": "more"}}}
    assert nodes_carrying_recipes(nodes, 1) == ["a", "b", "c"]


def test_only_the_first_that_has_them_gives_them() -> None:
    nodes = {"a": node({KEY: "a"}), "b": node({KEY: "b"}), "c": node(lacks={KEY: "chat"})}
    assert recipe_shares(nodes)[KEY]["give"] == {"a": "a"}
    assert nodes_carrying_recipes(nodes, 1) == ["a", "c"]


def test_recipes_of_another_key_are_of_no_use() -> None:
    assert recipe_shares({"a": node({OTHER: "chat"}), "b": node(lacks={KEY: "chat"})}) == {}


def test_nothing_is_carried_where_nobody_has_them_or_nobody_lacks_them() -> None:
    # An empty list would mean every host.
    for nodes in ({"a": node(lacks={KEY: "a"}), "b": node(lacks={KEY: "b"})}, {"a": node({KEY: "a"}), "b": node()}, {}):
        assert (recipe_shares(nodes), nodes_carrying_recipes(nodes, "100%")) == ({}, "all:!all")


def test_nodes_of_another_site_are_not_reached() -> None:
    far = node({KEY: "chat"}, gaudi_weights_site="far")
    assert recipe_shares({"a": far, "b": node(lacks={KEY: "chat"})}) == {}
    nodes = {"a": far, "b": node(lacks={KEY: "chat"}), "c": node(lacks={KEY: "chat"}, gaudi_weights_site="far")}
    assert recipe_shares(nodes) == {KEY: {"give": {"a": "chat"}, "take": {"c": "chat"}}}


def test_a_node_that_is_not_in_this_run_has_not_been_looked_at() -> None:
    assert recipe_shares({"a": {}, "b": node(lacks={KEY: "chat"})}) == {}


def test_a_node_that_was_lost_meanwhile_gives_nothing() -> None:
    nodes = {"a": node({KEY: "a"}), "b": node(lacks={KEY: "chat"}), "c": node({KEY: "c"})}
    assert recipe_shares(nodes, ["b", "c"]) == {KEY: {"give": {"c": "c"}, "take": {"b": "chat"}}}
    assert recipe_shares(nodes, ["b"]) == {}


def test_what_nobody_has_the_first_to_change_compiles_for_the_others() -> None:
    nodes = {"a": node(lacks={KEY: "chat"}), "b": node({OTHER: "talk"}), "c": node(lacks={KEY: "more", OTHER: "talk"})}
    assert recipes_in_turn(nodes, "c", 1) == {KEY: {"a": "chat", "c": "more"}}
    assert recipes_in_turn(nodes, "a", 1) == recipes_in_turn(nodes, "c", 1)
    assert recipes_in_turn(nodes, "b", 1) == {}
    # b gives OTHER before the first node changes; then a is first.
    assert nodes_carrying_recipes(nodes, 1) == ["a", "b", "c"]


@pytest.mark.parametrize("at_once", [2, "50%", "100%"])
def test_nodes_that_change_together_compile_together(at_once: int | str) -> None:
    nodes = {"a": node(lacks={KEY: "chat"}), "b": node(lacks={KEY: "chat"})}
    assert recipes_in_turn(nodes, "b", at_once) == {}
    assert nodes_carrying_recipes(nodes, at_once) == "all:!all"


def test_a_node_compiles_for_those_of_its_own_site() -> None:
    far = node(lacks={KEY: "chat"}, gaudi_weights_site="far")
    nodes = {"a": far, "b": node(lacks={KEY: "chat"}), "not in this run": {}}
    assert [recipes_in_turn(nodes, name, 1) for name in ("a", "b")] == [{}, {}]
    assert nodes_carrying_recipes(nodes, 1) == "all:!all"
    nodes["c"] = node(lacks={KEY: "chat"}, gaudi_weights_site="far")
    assert recipes_in_turn(nodes, "c", 1) == {KEY: {"a": "chat", "c": "chat"}}
    assert nodes_carrying_recipes(nodes, 1) == ["a", "c"]


def test_a_node_that_has_recipes_does_not_take_them_from_itself() -> None:
    """An honest node does not report both."""
    both = node(has={KEY: "chat"}, lacks={KEY: "chat"})
    assert recipe_shares({"m": both}) == {}
    assert recipe_shares({"m": both, "n": node(lacks={KEY: "talk"})})[KEY]["take"] == {"n": "talk"}


TEXTS = st.sampled_from([KEY, "../../etc", "a/b", "a\0b", "-e", "{{ 1 }}", "chat"]) | st.text(max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60)
@given(JSON, JSON, st.sampled_from(["m", "z"]))
def test_whatever_a_node_reports_others_get_no_other_key_and_their_own_instance(
    has: Any, lacks: Any, name: str
) -> None:
    """It stands before the others in the play, or behind them."""
    hostile = {"preflight_node": {"recipes": {"has": has, "lacks": lacks}}}
    honest = {"n": node(lacks={KEY: "chat"}), "o": node(lacks={KEY: "talk"})}
    nodes = dict(sorted({**honest, name: hostile}.items()))
    for key, share in recipe_shares(nodes).items():
        assert key == KEY, "no key that the others do not have"
        assert {host: share["take"][host] for host in honest} == {"n": "chat", "o": "talk"}
    for host in honest:
        turns = recipes_in_turn(nodes, host, 1)
        assert set(turns) <= {KEY}
        assert turns.get(KEY, {}).get(host) in (None, nodes[host]["preflight_node"]["recipes"]["lacks"][KEY])
    assert nodes_carrying_recipes({"m": {"preflight_node": {"recipes": has}}}, 1) == "all:!all"
