"""Plan one attempt of the fan-out: which node fetches a folder of weights from outside, and each receiver's peer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.places import SHARED_TYPES

# A site gives up after this many of its nodes failed to fetch from outside. One may have a fault of its own; if the hub
# is down, each further node would only wait.
TRIES_OUTSIDE = 2


@dataclass(frozen=True)
class WeightsNode:
    """A node of the play, with its state for one folder of weights.

    site: nodes of one site reach each other. storage: the storage of its weights root, equal for nodes that share it.
    has: it has the whole folder. needs: it wants the folder. gives: others can take the folder from it. refused: it
    failed to fetch it from outside. verified: it has read every byte of its copy in this run.
    """

    name: str
    site: str
    storage: str
    has: bool
    needs: bool
    gives: bool
    refused: bool = False
    verified: bool = False


def storage(name: str, said: Mapping[str, Any]) -> str:
    """Return an identifier of a node's weights storage; ``shared`` is the inventory's setting, None if unset."""
    if said["shared"]:
        return f"site {said['site']}"
    if said["shared"] is None and said["fstype"] in SHARED_TYPES:
        return f"{said['fstype']} {said['source']}"
    return f"node {name}"


def node(name: str, said: Mapping[str, Any]) -> WeightsNode:
    """Return a node from its own facts."""
    flags = {key: bool(said[key]) for key in ("has", "needs", "gives", "refused", "verified")}
    return WeightsNode(name, str(said["site"]), storage(name, said), **flags)


def writers(nodes: Iterable[WeightsNode]) -> list[WeightsNode]:
    """Return the nodes that write: for each storage that needs the folder and lacks it, the first node by name."""
    nodes = sorted(nodes, key=lambda node: node.name)
    full = {node.storage for node in nodes if node.has}
    chosen: dict[str, WeightsNode] = {}
    for node in nodes:
        if node.needs and node.storage not in full:
            chosen.setdefault(node.storage, node)
    return list(chosen.values())


def seeds(nodes: Iterable[WeightsNode], site: str) -> list[str]:
    """Return a site's seeds, one for each storage, as two nodes that read the same disk are no faster than one.

    If this run verified a copy, only verified copies are given.
    """
    able = [node for node in nodes if node.site == site and node.has and node.gives]
    verified = {node.storage for node in able if node.verified}
    chosen: dict[str, str] = {}
    for node in sorted(able, key=lambda node: node.name):
        if node.storage in verified or not verified:
            chosen.setdefault(node.storage, node.name)
    return sorted(chosen.values())


def fetchers(nodes: Iterable[WeightsNode]) -> list[str]:
    """Return the nodes that fetch from outside: for each site without a seed its first writer."""
    nodes = list(nodes)
    chosen: dict[str, str] = {}
    for node in writers(node for node in nodes if not node.refused):
        tried = sum(other.refused for other in nodes if other.site == node.site)
        if tried < TRIES_OUTSIDE and not seeds(nodes, node.site):
            chosen.setdefault(node.site, node.name)
    return sorted(chosen.values())


def alone(nodes: list[WeightsNode], fetching: Iterable[str]) -> list[str]:
    """Return those fetching nodes that alone in their site need the folder, so that no other can try instead."""
    sites = [node.site for node in nodes if node.needs and not node.has]
    return [node.name for node in nodes if node.name in fetching and sites.count(node.site) == 1]


def moved(names: list[str], attempt: int) -> list[str]:
    """Rotate names by the attempt's number."""
    first = attempt % len(names) if names else 0
    return names[first:] + names[:first]


def chains(nodes: Iterable[WeightsNode], attempt: int) -> list[list[str]]:
    """Return chains of nodes: the first has the folder, each other node takes it from the one before it.

    A node passes on each file as soon as it is checked. So a chain takes little longer than one transfer, and every
    link carries the folder once. A node that cannot give is the last of its chain. Every attempt rotates seeds and
    receivers by one: no node takes from a faulty peer twice in a row, or waits behind it again.
    """
    nodes = list(nodes)
    made: list[list[str]] = []
    for site in sorted({node.site for node in nodes}):
        here = [[name] for name in moved(seeds(nodes, site), attempt)]
        taking = [node for node in writers(nodes) if node.site == site]
        passing = moved([node.name for node in taking if node.gives], attempt)
        for number, name in enumerate(passing if here else []):
            here[number % len(here)].append(name)
        for chain, name in zip(here, moved([node.name for node in taking if not node.gives], attempt)):
            chain.append(name)
        made += [chain for chain in here if len(chain) > 1]
    return made


def receivers(nodes: Iterable[WeightsNode]) -> list[str]:
    """Return nodes that may become receivers later: the writers of sites with more than one storage."""
    nodes = list(nodes)
    storages = {site: {node.storage for node in nodes if node.site == site} for site in {node.site for node in nodes}}
    return [node.name for node in writers(nodes) if len(storages[node.site]) > 1]


def weights_round(said: Mapping[str, Mapping[str, Any]], attempt: int) -> dict[str, Any]:
    """Return one attempt: its number, and the nodes that fetch (and which of them alone), take, give, or may take.

    Input of each node: site, shared (true, false or none), fstype, source, has, needs, gives, refused and verified.
    Each receiver gets its peer, the node before it, and its seed, the first node of its chain.
    """
    nodes = [node(name, words) for name, words in said.items()]
    made = chains(nodes, attempt)
    fetching = fetchers(nodes)
    return {
        "attempt": attempt,
        "fetch": fetching,
        "alone": alone(nodes, fetching),
        "take": {
            receiver: {"peer": peer, "seed": chain[0]} for chain in made for peer, receiver in zip(chain, chain[1:])
        },
        "give": [peer for chain in made for peer in chain[:-1]],
        "receivers": receivers(nodes),
    }


def weights_storage(said: Mapping[str, Any], name: str) -> str:
    """Return an identifier of the storage of a node's weights root: nodes with the same one share it."""
    return storage(name, said)


def weights_writer(said: Mapping[str, Mapping[str, Any] | None], name: str) -> str:
    """Return the node that works on ``target`` for its storage: the first by name. None: the node wants nothing."""

    def place(other: str) -> tuple[str, str] | None:
        words = said[other]
        return (storage(other, words), str(words["target"])) if words else None

    return min(other for other in said if place(other) == place(name))
