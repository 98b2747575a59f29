"""What node_report answers of folders of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FOLDER: dict[str, Any] = {
    **dict.fromkeys(("directory", "status", "source", "repository", "revision", "fetched", "verified"), ""),
    "bytes": 0,
    "wrong": [],
    "used_by": [],
}
"""A folder of which nothing is known."""


def reporting(folders: Sequence[Mapping[str, Any]], /, **more: Any) -> dict[str, Any]:
    """The result of node_report; folders: what is known of each. more: of the part."""
    part = {
        "folders": [{**FOLDER, **folder} for folder in folders],
        "damaged_plans": [],
        "storage": {"fstype": "ext4", "source": "/dev/sda1"},
        "giving": False,
        "rsync": True,
    }
    return {"report": {"weight_folders": {**part, **more}}}
