"""Check what a node reports before another node, or the controller's disk, receives it.

A node that an attacker controls can report anything. What is done is decided on the controller, from the inventory
and the catalogue; a report says what the node has and lacks, and concerns this node alone. Where another node needs a
value of it, the value is checked here first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .checks import matching

# The most entries of a list or mapping that are read. An honest node stays far below.
MOST_ENTRIES = 1024

_ID = re.compile(r"sha256:[0-9a-f]{64}")
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")


def image_id(value: object) -> str:
    """The id of the image that a node gives to others: a checksum of all that is in the image."""
    return matching(value, "The id of an image", _ID, "sha256: and 64 hexadecimal digits")


def images(value: object) -> list[str]:
    """The images that a node uses or lacks; what is no reference is left out."""
    listed = value[:MOST_ENTRIES] if isinstance(value, list) else []
    return [str(each) for each in listed if isinstance(each, str) and _REFERENCE.fullmatch(each)]


# By the name that the filter `reported` takes.
CHECKS: Mapping[str, Callable[[object], Any]] = {"image_id": image_id}
