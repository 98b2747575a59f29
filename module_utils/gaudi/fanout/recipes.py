"""Choose which node gives compiled recipes, and which nodes take them with the same mechanism as weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..base import reported

# A host pattern that matches nobody; an empty list would match every host.
NOBODY = "all:!all"


def recipe_shares(
    nodes: Mapping[str, Mapping[str, Any]], among: Iterable[str] | None = None
) -> dict[str, dict[str, dict[str, str]]]:
    """Return for each key that a node lacks and another node of its site has: giver and takers, each with its instance.

    nodes: each host's variables after the preflight; hosts outside this run have no recipes in them. among: the hosts
    that may give and take, by default all.

    >>> one = {"preflight_node": {"recipes": {"has": {"key": "chat"}, "lacks": {}}}}
    >>> two = {"preflight_node": {"recipes": {"has": {}, "lacks": {"key": "talk"}}}}
    >>> recipe_shares({"one": one, "two": two})
    {'key': {'give': {'one': 'chat'}, 'take': {'two': 'talk'}}}
    """
    names = list(nodes if among is None else among)
    said = {name: _reported(nodes[name]) for name in names}
    sites = {name: str(nodes[name].get("gaudi_weights_site", "one")) for name in names}
    shares: dict[str, dict[str, dict[str, str]]] = {}
    for key in dict.fromkeys(key for name in names for key in said[name].get("lacks", {})):
        for site in dict.fromkeys(sites.values()):
            here = [name for name in names if sites[name] == site]
            has = {name: str(said[name]["has"][key]) for name in here if key in said[name].get("has", {})}
            lacking = [name for name in here if name not in has and key in said[name].get("lacks", {})]
            lacks = {name: str(said[name]["lacks"][key]) for name in lacking}
            if has and lacks:
                share = shares.setdefault(str(key), {"give": {}, "take": {}})
                seed = next(iter(has))
                share["give"][seed] = has[seed]
                share["take"].update(lacks)
    return shares


def _reported(node: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    return reported.recipes((node.get("preflight_node") or {}).get("recipes"))


def recipes_in_turn(nodes: Mapping[str, Mapping[str, Any]], node: str, at_once: int | str) -> dict[str, dict[str, str]]:
    """Return for each key that this node lacks and its site must compile: the nodes that lack it, with the instance.

    Empty if no other node lacks the key, if a node has it already, or if nodes do not change one at a time: nodes that
    start together compile at the same time.
    """
    if at_once != 1:
        return {}
    site = nodes[node].get("gaudi_weights_site", "one")
    said = {
        name: _reported(found)
        for name, found in ((name, nodes[name]) for name in nodes)
        if found.get("gaudi_weights_site", "one") == site
    }
    turns: dict[str, dict[str, str]] = {}
    for key in said[node].get("lacks", {}):
        lacks = {name: str(own["lacks"][key]) for name, own in said.items() if key in own.get("lacks", {})}
        if len(lacks) > 1 and not any(key in own.get("has", {}) for own in said.values()):
            turns[str(key)] = lacks
    return turns


def nodes_carrying_recipes(nodes: Mapping[str, Mapping[str, Any]], at_once: int | str) -> list[str] | str:
    """Return the hosts that carry recipes now or may do so later in this play; a pattern for nobody without any.

    at_once: how many nodes change at once.
    """
    shares = recipe_shares(nodes).values()
    carrying = {name for share in shares for name in (*share["give"], *share["take"])}
    return [name for name in nodes if name in carrying or recipes_in_turn(nodes, name, at_once)] or NOBODY
