"""Show the weights of a node as lines."""

from __future__ import annotations

from typing import Any

from ..base.reported import sentence
from ..base.units import human_bytes


def table(folders: list[dict[str, Any]]) -> list[str]:
    """Return a line for each folder of weights, as reported_folders.py has them."""
    lines = []
    for folder in folders:
        used = ", ".join(folder["used_by"]) or "nobody"
        size = human_bytes(folder["bytes"])
        lines.append(f"{folder['directory']}  {size}  {folder['status']}  used by {used}")
        if folder["revision"]:
            seen = folder["verified"] or "when fetched"
            lines.append(
                f"    {folder['repository']} at {folder['revision'][:12]} from {folder['source']}, "
                f"fetched {folder['fetched']}, every byte verified {seen}"
            )
        if folder["wrong"]:
            lines.append(f"    missing or cut short: {', '.join(folder['wrong'])}")
    return [*map(sentence, lines)] or ["no weights"]
