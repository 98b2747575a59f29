"""The address at which other nodes take weights from a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..base import values
from ..base.checks import switch
from ..base.refusal import Refusal
from .supply import weights_to_bring


def without_address(nodes: Mapping[str, Mapping[str, Any]], name: str, among: Iterable[str]) -> str:
    """Say that a node needs gaudi_weights_address; "" if it has an address, or if no weights go from node to node.

    nodes: each host's variables after the preflight. among: the hosts of this run.

    >>> route, none = {"node": {"address": "10.0.0.1"}}, {"node": {"address": ""}}
    >>> without_address({"one": {"preflight_node": route}, "two": {"preflight_node": none}}, "two", ["one", "two"])
    ''
    """
    own, read = nodes[name], _read(nodes[name])
    site = [other for other in among if _site(nodes[other]) == _site(own) and _read(nodes[other])]
    lacking = any(source["fetch"] for other in site for source in weights_to_bring(nodes[other]))
    if not lacking or len(site) < 2 or "gaudi_weights_address" in own or _shared(own, read):
        return ""
    try:
        values.routed(read.get("address", ""), "gaudi_weights_address")
    except Refusal as refusal:
        return refusal.message_with_id
    return ""


def _site(variables: Mapping[str, Any]) -> str:
    return str(variables.get("gaudi_weights_site", "one"))


def _read(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the preflight found on a node; nothing for a node that it could not read."""
    found = variables.get("preflight_node") or {}
    read = found.get("node")
    return read if isinstance(read, Mapping) else {}


def _shared(variables: Mapping[str, Any], read: Mapping[str, Any]) -> bool:
    """Whether other nodes have the node's weights on the same storage, as the inventory says or as it was found."""
    said = variables.get("gaudi_weights_shared")
    return bool(read.get("weights_shared")) if said is None else switch(said, "gaudi_weights_shared")
