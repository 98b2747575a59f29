"""Say what is in the images of nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base.checks import mapping
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.base.reported import UNREADABLE
from ansible.module_utils.gaudi.engine.reported_images import images_of
from ansible.module_utils.gaudi.image.comparison import difference
from ansible.module_utils.gaudi.image.table import chosen, describe, readable, table
from ansible.utils.display import Display

Nodes = Mapping[str, Mapping[str, Any]]


def node_images(result: Mapping[str, object]) -> dict[str, Any]:
    """Return the images and instances of a node from the result of node_report; warn of plans that are damaged."""
    try:
        found: dict[str, Any] = images_of(mapping(result.get("report"), "The node's report"))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None
    for unknown in found.pop("unknown"):
        Display().warning(printable(unknown))
    return found


def image_document(nodes: Nodes) -> dict[str, Mapping[str, Any]]:
    """All of it by node, without what Ansible adds to a result."""
    return _valid(nodes)


def image_table(nodes: Nodes) -> list[str]:
    """Lines: which instance has which image, and what is in each image."""
    return list(table(nodes))


def image_description(nodes: Nodes, name: str) -> list[str]:
    """Lines: all that is in one image."""
    nodes = _valid(nodes)
    try:
        image = chosen(nodes, name)
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None
    places = [node for node, said in nodes.items() if image["id"] in [each["id"] for each in said["images"]]]
    return list(describe(image, places, every=True))


def image_reference(nodes: Nodes, name: str) -> str:
    """The reference of an image; without a name, of the only one there is."""
    nodes = _valid(nodes)
    there = {image["reference"] for node in nodes.values() for image in node["images"] if image["present"]}
    try:
        return str(chosen(nodes, name or ("".join(there) if len(there) == 1 else ""))["reference"])
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def image_difference(nodes: Nodes, name: str, against: str) -> list[str]:
    """Lines: what one image has otherwise than another, whichever nodes they are on."""
    nodes = _valid(nodes)
    try:
        return list(difference(chosen(nodes, name), chosen(nodes, against)))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def _valid(nodes: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the nodes whose reports can be read; each other one is left out with a warning."""
    found: dict[str, Mapping[str, Any]] = readable(nodes)
    for name in nodes.keys() - found:
        Display().warning(printable(f"{name} {UNREADABLE}, so it is left out."))
    return found


class FilterModule:
    """What Ansible finds here."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {
            "node_images": node_images,
            "image_document": image_document,
            "image_table": image_table,
            "image_description": image_description,
            "image_difference": image_difference,
            "image_reference": image_reference,
        }
