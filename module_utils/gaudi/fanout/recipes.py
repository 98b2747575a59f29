"""Decide which node gives compiled recipes, and which take them from there as they take weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# An empty list would mean every host.
NOBODY = "all:!all"


def recipe_shares(
    nodes: Mapping[str, Mapping[str, Any]], among: Iterable[str] | None = None
) -> dict[str, dict[str, dict[str, str]]]:
    """For each key that a node lacks and another one of its site has: who gives it and who takes it, with the instance.

    nodes: the variables of each host, after the preflight; one that is not in this run has not been looked at. among:
    the hosts that may give and take; all of them without it.

    >>> one = {"preflight_node": {"recipes": {"has": {"key": "chat"}, "lacks": {}}}}
    >>> two = {"preflight_node": {"recipes": {"has": {}, "lacks": {"key": "talk"}}}}
    >>> recipe_shares({"one": one, "two": two})
    {'key': {'give': {'one': 'chat'}, 'take': {'two': 'talk'}}}
    """
    names = list(nodes if among is None else among)
    said = {name: (nodes[name].get("preflight_node") or {}).get("recipes") or {} for name in names}
    sites = {name: str(nodes[name].get("gaudi_weights_site", "one")) for name in names}
    shares: dict[str, dict[str, dict[str, str]]] = {}
    for key in dict.fromkeys(key for name in names for key in said[name].get("lacks", {})):
        for site in dict.fromkeys(sites.values()):
            here = [name for name in names if sites[name] == site]
            has = {name: str(said[name]["has"][key]) for name in here if key in said[name].get("has", {})}
            lacks = {name: str(said[name]["lacks"][key]) for name in here if key in said[name].get("lacks", {})}
            if has and lacks:
                share = shares.setdefault(str(key), {"give": {}, "take": {}})
                seed = next(iter(has))
                share["give"][seed] = has[seed]
                share["take"].update(lacks)
    return shares


def recipes_in_turn(nodes: Mapping[str, Mapping[str, Any]], node: str, at_once: int | str) -> dict[str, dict[str, str]]:
    """For each key that a node lacks, and one of its site has to compile: the nodes that lack it, with the instance.

    Nothing where no other one lacks it, where a node has it already, and where nodes do not change one by one: those
    that start together compile together.
    """
    if at_once != 1:
        return {}
    site = nodes[node].get("gaudi_weights_site", "one")
    said = {
        name: (found.get("preflight_node") or {}).get("recipes") or {}
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
    """Return the hosts of the play that carries compiled recipes, or makes ready to; a pattern of nobody without any.

    at_once: how many nodes change at once.
    """
    shares = recipe_shares(nodes).values()
    carrying = {name for share in shares for name in (*share["give"], *share["take"])}
    return [name for name in nodes if name in carrying or recipes_in_turn(nodes, name, at_once)] or NOBODY
