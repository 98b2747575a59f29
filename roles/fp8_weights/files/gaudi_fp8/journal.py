"""What the journals of both converters (block/, dynamic/) have in common: their places, and the decisions in them."""

from __future__ import annotations

from typing import Any

from gaudi.base.refusal import Refusal

from .checkpoint import Identity, SourceCheckpoint
from .conversion import Conversion
from .files import STATE_FOLDER

JOURNAL = "journal.json"  # in the state folder
DECIDED = {
    "request": dict,
    "source": {str: [int]},
    "actions": {str: {str: str}},
    "result_bytes": {str: int},
    "carried": [str],
}


def decisions(source: SourceCheckpoint, options: dict[str, Any]) -> dict[str, Any]:
    """What a journal says of its source; has the form DECIDED."""
    return {
        "source": {name: [seen.size, seen.mtime_ns, seen.inode] for name, seen in source.shards.items()},
        "actions": source.actions,
        "result_bytes": source.result_bytes,
        "carried": source.carried,
        "request": options,
    }


def source_in(content: dict[str, Any], conversion: Conversion) -> SourceCheckpoint:
    """The source as a journal has it. Its decisions stay valid, even when shards are gone by now.

    Raises Refusal where a shard has more or fewer than the three numbers of its identity.
    """
    try:
        shards = {name: Identity(*numbers) for name, numbers in content["source"].items()}
    except TypeError as error:
        path = conversion.staging / STATE_FOLDER / JOURNAL
        raise Refusal(
            "record_damaged", f"{path} is damaged: it names a shard without its three numbers; {conversion.start_over}"
        ) from error
    return SourceCheckpoint(conversion.source, shards, content["actions"], content["result_bytes"], content["carried"])
