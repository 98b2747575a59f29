"""The journal of a dynamic conversion: what was decided, and what is done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..checkpoint import Identity, Source
from ..conversion import start_over
from ..files import STATE_FOLDER, human, read_json, write_json
from ..journal import DECIDED
from ..refusals import Refusal
from ..shards import SUM
from .conversion import Wish, request_of
from .source import examine


class Journal:
    """What was decided and what is done, kept beside the work so that the next run continues with the next shard."""

    def __init__(self, wish: Wish, source: Source, done: dict[str, dict[str, Any]]) -> None:
        self.wish = wish
        self.source = source
        self.done = done

    @staticmethod
    def path(wish: Wish) -> Path:
        """Where the journal of a wish lies."""
        return wish.staging / STATE_FOLDER / "journal.json"

    @classmethod
    def load(cls, wish: Wish) -> Journal:
        """Continue a journal; Refusal when it was begun with other options."""
        form = {**DECIDED, "done": {str: {**SUM, "whole?": bool}}}
        # Whose journal it is comes first: another program's has another form.
        content = read_json(cls.path(wish), {"request": dict}, start_over(wish))
        if content["request"] != request_of(wish):
            raise Refusal(
                f"{wish.staging} was begun with other options or by another program "
                f"({json.dumps(content['request'], sort_keys=True)}); use the same, or remove it to start over"
            )
        read_json(cls.path(wish), form, start_over(wish))
        shards = {name: Identity(*values) for name, values in content["source"].items()}
        source = Source(wish.source, shards, content["actions"], content["result_bytes"], content["carried"])
        return cls(wish, source, content["done"])

    def save(self) -> None:
        """Write it durably; called after every shard."""
        write_json(
            self.path(self.wish),
            {
                "source": {n: [i.size, i.mtime_ns, i.inode] for n, i in self.source.shards.items()},
                "actions": self.source.actions,
                "result_bytes": self.source.result_bytes,
                "carried": self.source.carried,
                "request": request_of(self.wish),
                "done": self.done,
            },
        )

    def check(self) -> None:
        """Forget results that are not as they were recorded; refuse a source that changed or is gone."""
        for name, identity in self.source.shards.items():
            source, target = self.wish.source / name, self.wish.staging / name
            if not source.exists() or Identity.of(source) != identity:
                raise Refusal(f"{source} changed since the conversion began; remove {self.wish.staging} to start over")
            if name in self.done and (not target.exists() or target.stat().st_size != self.done[name]["bytes"]):
                del self.done[name]


def open_journal(wish: Wish) -> Journal:
    """Continue the work in the staging folder, or examine the source and begin."""
    if Journal.path(wish).exists():
        journal = Journal.load(wish)
        journal.check()
    else:
        journal = Journal(wish, examine(wish.source, wish.keep), {})
    check_room(wish, journal.source, [name for name in journal.source.shards if name not in journal.done])
    journal.save()
    return journal


def check_room(wish: Wish, source: Source, missing: list[str]) -> None:
    """Refuse before the first byte when the result does not fit."""
    needed = sum(source.result_bytes[name] for name in missing)
    needed += sum((source.folder / name).stat().st_size for name in source.carried)
    folder = wish.target.parent
    while not folder.exists():
        folder = folder.parent
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        raise Refusal(
            f"converting {len(missing)} shards needs {human(needed)} on the file system of {wish.target}, "
            f"{human(free)} are free: {human(needed - free)} are missing. Free some room or choose another "
            "target"
        )
