"""Say who fetches a folder of weights from outside, and who takes it from whom: N nodes cost one round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

# Types of file systems that nodes share, as the kernel names them.
SHARED_TYPES = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "fuse.ceph", "gpfs", "beegfs", "glusterfs", "fuse.glusterfs")
)
# Nodes of a site that are refused from outside before the site gives up: one may have a fault of its own, and a hub
# that is away makes each of them wait.
TRIES_OUTSIDE = 2


@dataclass(frozen=True)
class Node:
    """A node of the play, and one folder of weights.

    site: nodes of one reach each other; storage: what its weights root is on, the same for nodes that share it; has:
    the folder is whole there; needs: it is asked for there; gives: others can take it there; refused: it tried to
    fetch it from outside, in vain; verified: it has read every byte of its copy in this run.
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
    """Tell the storage of a node's weights root from others'; ``shared`` is the inventory's word, None without one."""
    if said["shared"]:
        return f"site {said['site']}"
    if said["shared"] is None and said["fstype"] in SHARED_TYPES:
        return f"{said['fstype']} {said['source']}"
    return f"node {name}"


def node(name: str, said: Mapping[str, Any]) -> Node:
    """A node from what it said of itself."""
    flags = {key: bool(said[key]) for key in ("has", "needs", "gives", "refused", "verified")}
    return Node(name, str(said["site"]), storage(name, said), **flags)


def writers(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that would write: of each storage that needs the folder and lacks it, the first by name."""
    nodes = sorted(nodes, key=lambda node: node.name)
    full = {node.storage for node in nodes if node.has}
    chosen: dict[str, Node] = {}
    for node in nodes:
        if node.needs and node.storage not in full:
            chosen.setdefault(node.storage, node)
    return list(chosen.values())


def givers(nodes: Iterable[Node], site: str) -> list[str]:
    """Who gives at a site: one of each storage, since two that read the same disk give no more than one.

    Where a copy was verified in this run, nobody gives another one.
    """
    able = [node for node in nodes if node.site == site and node.has and node.gives]
    verified = {node.storage for node in able if node.verified}
    chosen: dict[str, str] = {}
    for node in sorted(able, key=lambda node: node.name):
        if node.storage in verified or not verified:
            chosen.setdefault(node.storage, node.name)
    return sorted(chosen.values())


def fetchers(nodes: Iterable[Node]) -> list[str]:
    """Who fetches from outside: the first writer of each site where nobody gives the folder."""
    nodes = list(nodes)
    chosen: dict[str, str] = {}
    for node in writers(node for node in nodes if not node.refused):
        tried = sum(other.refused for other in nodes if other.site == node.site)
        if tried < TRIES_OUTSIDE and not givers(nodes, node.site):
            chosen.setdefault(node.site, node.name)
    return sorted(chosen.values())


def alone(nodes: list[Node], fetching: Iterable[str]) -> list[str]:
    """Those who fetch where no other node of the site needs it: nobody could try in their place, or waits for why."""
    sites = [node.site for node in nodes if node.needs and not node.has]
    return [node.name for node in nodes if node.name in fetching and sites.count(node.site) == 1]


def moved(names: list[str], turn: int) -> list[str]:
    """Begin further on with every turn."""
    first = turn % len(names) if names else 0
    return names[first:] + names[:first]


def chains(nodes: Iterable[Node], turn: int) -> list[list[str]]:
    """Who takes from whom: every node of a chain from the one before it, the first has the folder.

    Each passes on file by file what it has checked, so that a chain takes little longer than one node does, and every
    link sends the folder once. A node that cannot give ends its chain. With every turn givers and takers move on by
    one, so that nobody asks a broken node twice in a row, nor waits behind it again.
    """
    nodes = list(nodes)
    made: list[list[str]] = []
    for site in sorted({node.site for node in nodes}):
        here = [[name] for name in moved(givers(nodes, site), turn)]
        taking = [node for node in writers(nodes) if node.site == site]
        passing = moved([node.name for node in taking if node.gives], turn)
        for number, name in enumerate(passing if here else []):
            here[number % len(here)].append(name)
        for chain, name in zip(here, moved([node.name for node in taking if not node.gives], turn), strict=False):
            chain.append(name)
        made += [chain for chain in here if len(chain) > 1]
    return made


def takers(nodes: Iterable[Node]) -> list[str]:
    """Who may come to take it from another node: the writers of sites that have more than one storage."""
    nodes = list(nodes)
    storages = {site: {node.storage for node in nodes if node.site == site} for site in {node.site for node in nodes}}
    return [node.name for node in writers(nodes) if len(storages[node.site]) > 1]


def weights_round(said: Mapping[str, Mapping[str, Any]], turn: int) -> dict[str, Any]:
    """One round from what each node said: its number, who fetches (alone or not), takes, gives, and who may yet take.

    A node says site, shared (true, false or none), fstype, source, has, needs, gives, refused and verified. Of a taker
    is said who gives (giver), and who has the folder at the head of its chain (head).
    """
    nodes = [node(name, words) for name, words in said.items()]
    made = chains(nodes, turn)
    fetching = fetchers(nodes)
    return {
        "turn": turn,
        "fetch": fetching,
        "alone": alone(nodes, fetching),
        "take": {taker: {"giver": giver, "head": chain[0]} for chain in made for giver, taker in pairwise(chain)},
        "give": [giver for chain in made for giver in chain[:-1]],
        "takers": takers(nodes),
    }


def weights_storage(said: Mapping[str, Any], name: str) -> str:
    """What tells the storage of a node's weights root from others': nodes with the same one share it."""
    return storage(name, said)


def weights_writer(said: Mapping[str, Mapping[str, Any] | None], name: str) -> str:
    """The node that works on ``target`` for all of one storage: the first by name; None is a node without a wish."""

    def place(other: str) -> tuple[str, str] | None:
        words = said[other]
        return (storage(other, words), str(words["target"])) if words else None

    return min(other for other in said if place(other) == place(name))
