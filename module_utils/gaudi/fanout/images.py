"""Choose which node gives an image, and which nodes take it with the same mechanism as weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import reported


def image_shares(
    nodes: Mapping[str, Mapping[str, Any]], build_host: str = "", build_site: str = ""
) -> dict[str, dict[str, Any]]:
    """Return for each image that nodes of a site lack: the nodes that give it, and the seed of each node that takes it.

    nodes: for each node, in play order, its site, the images it wants, and those of them that it lacks. build_host: the
    host that the inventory names, empty without one; build_site: its site.

    All nodes of a site run what its seed gives. So the inventory alone decides which node that is, and never a node's
    report that it has or wants the image. The seed is the build host on its own site; elsewhere, and without a build
    host, the first node of the site. A seed that lacks the image builds it. If the seed does not want the image, no
    node of its site gives it.
    """
    wants = {name: reported.images(node["wants"]) for name, node in nodes.items()}
    lacks = {name: reported.images(node["lacks"]) for name, node in nodes.items()}
    shares: dict[str, dict[str, Any]] = {}
    for reference in dict.fromkeys(image for images in lacks.values() for image in images):
        for site in dict.fromkeys(node["site"] for node in nodes.values()):
            here = [name for name in nodes if nodes[name]["site"] == site]
            seed = build_host if build_host and site == build_site else here[0]
            if seed not in here or reference not in wants[seed]:
                continue
            take = {
                name: seed for name in here if name != seed and reference in wants[name] and reference in lacks[name]
            }
            if take:
                share = shares.setdefault(reference, {"give": [], "take": {}})
                share["give"].append(seed)
                share["take"].update(take)
    return shares
