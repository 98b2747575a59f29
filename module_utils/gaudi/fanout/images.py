"""Choose which node gives an image, and which nodes take it with the same mechanism as weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def image_shares(said: Mapping[str, Mapping[str, Any]], build_host: str = "") -> dict[str, dict[str, list[str]]]:
    """Return for each image that nodes of a site lack: the nodes that give it and the nodes that take it.

    said: for each node, in play order, its site, the images it wants, and those of them that it lacks. A node that has
    the image gives it. If none has it, the build host gives it, else the first node that wants it.
    """
    shares: dict[str, dict[str, list[str]]] = {}
    for reference in dict.fromkeys(image for words in said.values() for image in words["lacks"]):
        for site in dict.fromkeys(words["site"] for words in said.values()):
            wanting = [name for name, words in said.items() if words["site"] == site and reference in words["wants"]]
            lacking = [name for name in wanting if reference in said[name]["lacks"]]
            having = [name for name in wanting if name not in lacking]
            seed = ([*having, *(name for name in wanting if name == build_host), *wanting] or [""])[0]
            taking = [name for name in lacking if name != seed]
            if taking:
                share = shares.setdefault(str(reference), {"give": [], "take": []})
                share["give"].append(seed)
                share["take"] += taking
    return shares
