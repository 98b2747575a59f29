"""What the journals of both programs have in common: where they are, and the decisions in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .checkpoint import Identity, Source

JOURNAL = "journal.json"  # in the state folder
DECIDED = {
    "request": dict,
    "source": {str: (int, int, int)},
    "actions": {str: {str: str}},
    "result_bytes": {str: int},
    "carried": [str],
}


def decisions(source: Source, options: dict[str, Any]) -> dict[str, Any]:
    """What a journal says of its source; has the form DECIDED."""
    return {
        "source": {name: [seen.size, seen.mtime_ns, seen.inode] for name, seen in source.shards.items()},
        "actions": source.actions,
        "result_bytes": source.result_bytes,
        "carried": source.carried,
        "request": options,
    }


def source_in(content: dict[str, Any], folder: Path) -> Source:
    """The source as a journal has it. Its decisions stay valid, even when shards are gone by now."""
    shards = {name: Identity(*values) for name, values in content["source"].items()}
    return Source(folder, shards, content["actions"], content["result_bytes"], content["carried"])
