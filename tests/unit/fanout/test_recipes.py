"""Which node gives compiled recipes to which others, and whose play that is."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.gaudi.fanout.recipes import nodes_carrying_recipes, recipe_shares

KEY, OTHER = "qwen3-8b-bfloat16-hl225-tp1-0123456789ab", "qwen3-8b-bfloat16-hl225-tp2-ba9876543210"


def node(has: dict[str, str] | None = None, lacks: dict[str, str] | None = None, **own: Any) -> dict[str, Any]:
    return {"preflight_node": {"recipes": {"has": has or {}, "lacks": lacks or {}}}, **own}


def test_who_has_recipes_of_the_key_gives_them_to_who_lacks_them() -> None:
    nodes = {"a": node(lacks={KEY: "chat"}), "b": node({KEY: "talk"}), "c": node(lacks={KEY: "more"})}
    assert recipe_shares(nodes) == {KEY: {"give": {"b": "talk"}, "take": {"a": "chat", "c": "more"}}}
    assert nodes_carrying_recipes(nodes) == ["a", "b", "c"]


def test_only_the_first_that_has_them_gives_them() -> None:
    nodes = {"a": node({KEY: "a"}), "b": node({KEY: "b"}), "c": node(lacks={KEY: "chat"})}
    assert recipe_shares(nodes)[KEY]["give"] == {"a": "a"}
    assert nodes_carrying_recipes(nodes) == ["a", "c"]


def test_recipes_of_another_key_are_of_no_use() -> None:
    assert recipe_shares({"a": node({OTHER: "chat"}), "b": node(lacks={KEY: "chat"})}) == {}


def test_nothing_is_carried_where_nobody_has_them_or_nobody_lacks_them() -> None:
    # An empty list would mean every host.
    for nodes in ({"a": node(lacks={KEY: "a"}), "b": node(lacks={KEY: "b"})}, {"a": node({KEY: "a"}), "b": node()}, {}):
        assert (recipe_shares(nodes), nodes_carrying_recipes(nodes)) == ({}, "all:!all")


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
