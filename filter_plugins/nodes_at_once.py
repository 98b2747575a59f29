"""How many nodes are brought up at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

WISH = "gaudi_nodes_at_once"
AUTO = "auto"
ALL = "100%"


def nodes_at_once(nodes: Mapping[str, Mapping[str, Any]]) -> int | str:
    """Return the value of a play's serial: the site's wish, else one where any node gets a driver, else all of them.

    nodes: the variables of each host, after the preflight; one that is not in this run has not been looked at. Where
    hosts wish otherwise than others, the first one that says something is followed.
    """
    found = [nodes[name] for name in nodes]
    wish = next((node[WISH] for node in found if node.get(WISH, AUTO) != AUTO), AUTO)
    if wish != AUTO:
        return str(wish) if str(wish).endswith("%") else int(wish)
    return 1 if any((node.get("preflight_node") or {}).get("driver_first") for node in found) else ALL


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., int | str]]:
        """Name the filter."""
        return {"nodes_at_once": nodes_at_once}
