"""What the controller asks for: one image, as the recipe has it, and where this node gets things from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi.base.documents import Damaged
from gaudi.base.refusal import Refusal
from gaudi.node.documents import read_json

_FORM = {
    "reference": str,
    "release": str,
    "base": str,
    "base_name": str,
    "base_digest": str,
    "accept_moved_base": bool,
    "versions": {str: str},
    "dockerfile": str,
    "constraints": str,
    "lock": str,
    "titles": [str],
    "secrets": {str: str},
    "hosts": {str: str},
    "network": str,
    "proxies": {str: str},
    "room_bytes": int,
    "push": bool,
    "docker_config": str,
}


@dataclass(frozen=True)
class ImageRequest:
    """One image to build. ``room_bytes`` must be free below Docker's directory before anything begins.

    ``base_name`` is the base image without a registry; ``base_digest`` is the one that is pinned, empty for any;
    ``versions`` are those of the vendor's distributions in a base of the ``release``, empty for any; ``secrets`` are
    files by id, ``hosts`` those in them and in ``proxies``, which are variables, with the options that name them;
    ``network`` is the engine's ("default") or the node's ("host").
    """

    reference: str
    release: str
    base: str
    base_name: str
    base_digest: str
    accept_moved_base: bool
    versions: dict[str, str]
    dockerfile: str
    constraints: str
    lock: str
    titles: tuple[str, ...]
    secrets: dict[str, str]
    hosts: dict[str, str]
    network: str
    proxies: dict[str, str]
    room_bytes: int
    push: bool
    docker_config: str


def load(path: Path) -> ImageRequest:
    """Read a request. Raises Refusal for a file that is not one."""
    try:
        content: dict[str, Any] | None = read_json(path, _FORM)
    except Damaged as damage:
        raise Refusal("request_unreadable", f"{damage}. Run the playbook again, which replaces it.") from damage
    if content is None:
        raise Refusal("request_unreadable", f"{path} is not there. Run the playbook again, which writes it.")
    values = {key: content[key] for key in _FORM}
    return ImageRequest(**{**values, "titles": tuple(values["titles"])})
