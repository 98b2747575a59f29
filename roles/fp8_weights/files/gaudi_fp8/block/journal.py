"""The journal of a block conversion: what was decided, and what is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..checkpoint import Identity, Source
from ..conversion import Wish, request_of, start_over
from ..files import STATE_FOLDER, read_json, write_json
from ..journal import DECIDED
from ..refusals import Refusal
from ..shards import SUM
from ..staging import LOCKS, check_room
from .source import examine


class Journal:
    """What was decided and what is done, kept beside the work so that the next run continues with the next shard.

    The decisions are megabytes for a large model and written once; what is done is small and written after every shard.
    """

    def __init__(self, folder: Path, source: Source, in_place_space: bool) -> None:
        self.path = folder / STATE_FOLDER / "journal.json"
        self.done_path = folder / STATE_FOLDER / "done.json"
        self.source = source
        self.in_place_space = in_place_space
        self.done: dict[str, dict[str, Any]] = {}

    @classmethod
    def load(cls, content: dict[str, Any], wish: Wish) -> Journal:
        """Continue a journal; the decisions of the first run stand (its source may be gone, shard by shard)."""
        source = Source(
            wish.source,
            {name: Identity(*values) for name, values in content["source"].items()},
            content["actions"],
            content["result_bytes"],
            content["carried"],
        )
        journal = cls(wish.staging, source, content["in_place_space"])
        if journal.done_path.exists():
            journal.done = read_json(journal.done_path, {str: {**SUM, "whole": bool}}, start_over(wish))
        return journal

    def begin(self, wish: Wish) -> None:
        """Write the decisions durably."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(
            self.path,
            {
                "source": {n: [i.size, i.mtime_ns, i.inode] for n, i in self.source.shards.items()},
                "actions": self.source.actions,
                "result_bytes": self.source.result_bytes,
                "carried": self.source.carried,
                "in_place_space": self.in_place_space,
                "request": request_of(wish),
            },
        )

    def record(self, name: str, result: dict[str, Any]) -> None:
        """Note durably that a shard is done."""
        self.done[name] = result
        self.save()

    def save(self) -> None:
        """Write durably what is done."""
        write_json(self.done_path, self.done)

    def give_up(self, wish: Wish, name: str) -> None:
        """Delete a source shard, if that is wished and every byte of its recorded twin was verified."""
        if wish.in_place_space and self.done[name]["whole"]:
            (wish.source / name).unlink(missing_ok=True)

    def remove_from(self, folder: Path) -> None:
        """Everything is done and said in the provenance; a run that was killed here leaves them, and nobody minds."""
        for name in (self.done_path.name, self.path.name, *LOCKS):
            (folder / STATE_FOLDER / name).unlink()


def open_journal(wish: Wish) -> Journal:
    """Continue the work in the staging folder, or examine the source and begin."""
    path = wish.staging / STATE_FOLDER / "journal.json"
    if path.exists():
        content = read_json(path, {**DECIDED, "in_place_space": bool}, start_over(wish))
        if content["request"] != request_of(wish):
            raise Refusal(
                f"{wish.staging} was begun with other options ({json.dumps(content['request'], sort_keys=True)}); "
                "use the same, or remove it to start over"
            )
        journal = Journal.load(content, wish)
        if wish.in_place_space and not journal.in_place_space:  # as the sentence about a full disk advises
            journal.in_place_space = True
            journal.begin(wish)
        check_room(wish, journal.source, [name for name in journal.source.shards if name not in journal.done])
        return journal
    source = examine(wish.source, wish.vendor_compatible, wish.assume_unconverted, wish.factor)
    check_room(wish, source, list(source.shards))
    journal = Journal(wish.staging, source, wish.in_place_space)
    journal.begin(wish)
    return journal


def check_done(wish: Wish, journal: Journal) -> None:
    """Drop from the journal what is no longer as it was recorded; refuse a source that changed."""
    for name, identity in journal.source.shards.items():
        source, target = wish.source / name, wish.staging / name
        if name in journal.done and (not target.exists() or target.stat().st_size != journal.done[name]["bytes"]):
            del journal.done[name]
        if source.exists():
            if Identity.of(source) != identity:
                raise Refusal(f"{source} changed since the conversion began; remove {wish.staging} to start over")
        elif name not in journal.done:
            raise Refusal(f"{source} is gone and its conversion is not finished; fetch it again, then run this again")
