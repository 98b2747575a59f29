"""Which nodes get a driver, how many are brought up at once, and when a node waits for those before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

OPTION = "gaudi_nodes_at_once"
AUTO = "auto"
ALL = "100%"
# An empty list would mean every host.
NOBODY = "all:!all"


def nodes_at_once(nodes: Mapping[str, Mapping[str, Any]]) -> int | str:
    """Return the value of a play's serial: the site's, else one where a node could stop serving, else all nodes.

    A node could stop serving if it gets a driver, or if one of its running instances has to change.

    nodes: the variables of each host, after the preflight; one that is not in this run has not been looked at. Where
    hosts have different values, the first one that says something is followed.
    """
    found = [nodes[name] for name in nodes]
    value = next((node[OPTION] for node in found if node.get(OPTION, AUTO) != AUTO), AUTO)
    if value != AUTO:
        return str(value) if str(value).endswith("%") else int(value)
    return 1 if any(gets_driver(node) or restarts(node) for node in found) else ALL


def gets_driver(node: Mapping[str, Any]) -> bool:
    """Whether the preflight said of a node that its driver comes first."""
    return bool((node.get("preflight_node") or {}).get("driver_first"))


def restarts(node: Mapping[str, Any]) -> bool:
    """Whether the preflight said of a node that an instance that runs is to change."""
    return bool((node.get("preflight_node") or {}).get("restarts"))


def changed_before(nodes: Mapping[str, Mapping[str, Any]], batch: Sequence[str], everyone: Sequence[str]) -> bool:
    """Return whether a node of an earlier batch was one to change.

    batch: the hosts whose turn it is; everyone: all hosts of the play. Both are in the play's order.
    """
    earlier = list(everyone)[: list(everyone).index(batch[0])]
    return any(gets_driver(nodes[name]) or restarts(nodes[name]) for name in earlier)


def nodes_without_driver(nodes: Mapping[str, Mapping[str, Any]]) -> list[str] | str:
    """Return the hosts of the play that fetches a driver; a pattern without hosts where no node needs one."""
    return [name for name in nodes if gets_driver(nodes[name])] or NOBODY


def refuses(node: Mapping[str, Any]) -> bool:
    """Whether an image cannot serve an instance of a node, as the role serving_image left it."""
    return bool(node.get("serving_image_refused"))


def nodes_refusing(nodes: Mapping[str, Mapping[str, Any]]) -> list[str] | str:
    """Return the hosts of the play that fails for refused instances; a pattern without hosts where there are none."""
    return [name for name in nodes if refuses(nodes[name])] or NOBODY


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., int | str | bool | list[str]]]:
        """Name the filters."""
        return {
            "nodes_at_once": nodes_at_once,
            "nodes_without_driver": nodes_without_driver,
            "nodes_refusing": nodes_refusing,
            "changed_before": changed_before,
        }
