"""The journal of a block conversion: what was decided, and what is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gaudi.base.refusal import Refusal
from gaudi.node import beneath
from gaudi.node.files import write_json

from ..checkpoint import Identity, SourceCheckpoint
from ..files import STATE_FOLDER, read_json
from ..journal import DECIDED, JOURNAL, decisions, source_in
from ..shards import SUM
from ..staging import LOCKS, check_room
from .conversion import BlockConversion


class BlockJournal:
    """What was decided and what is done, kept beside the work so that the next run continues with the next shard.

    The decisions are megabytes for a large model, and written once. What is done is small, and written after every
    shard.
    """

    def __init__(self, folder: Path, source: SourceCheckpoint, in_place_space: bool) -> None:
        self.folder = folder
        self.path = folder / STATE_FOLDER / JOURNAL
        self.done_path = folder / STATE_FOLDER / "done.json"
        self.source = source
        self.in_place_space = in_place_space
        self.done: dict[str, dict[str, Any]] = {}

    @classmethod
    def load(cls, content: dict[str, Any], conversion: BlockConversion) -> BlockJournal:
        """Continue a journal. Its decisions stay valid: the source they were made from may be given up in part."""
        journal = cls(conversion.staging, source_in(content, conversion), content["in_place_space"])
        if journal.done_path.exists():
            journal.done = read_json(journal.done_path, {str: {**SUM, "whole": bool}}, conversion.start_over)
        return journal

    def begin(self, conversion: BlockConversion) -> None:
        """Write the decisions durably."""
        beneath.make_folders(self.path.parent, self.folder)
        decided = decisions(self.source, conversion.options())
        write_json(self.path, {**decided, "in_place_space": self.in_place_space}, place=self.folder)

    def record(self, name: str, result: dict[str, Any]) -> None:
        """Note durably that a shard is done."""
        self.done[name] = result
        self.save()

    def save(self) -> None:
        """Write durably what is done."""
        write_json(self.done_path, self.done, place=self.folder)

    def give_up(self, conversion: BlockConversion, name: str) -> None:
        """Delete a source shard, if that was asked for and every byte of its recorded twin was verified."""
        if conversion.in_place_space and self.done[name]["whole"]:
            source = conversion.source.resolve()
            beneath.remove(source / name, source)

    def remove_from(self, folder: Path) -> None:
        """Remove what is no longer needed; files that a killed run leaves there do no harm."""
        for name in (self.done_path.name, self.path.name, *LOCKS):
            beneath.remove(folder / STATE_FOLDER / name, folder)


def open_journal(conversion: BlockConversion) -> BlockJournal:
    """Continue the work in the staging folder, or examine the source and begin."""
    path = conversion.staging / STATE_FOLDER / JOURNAL
    if path.exists():
        content = read_json(path, {**DECIDED, "in_place_space": bool}, conversion.start_over)
        if content["request"] != conversion.options():
            begun = json.dumps(content["request"], sort_keys=True)
            raise Refusal(
                "begun_with_other_options",
                f"{conversion.staging} was begun with other options ({begun}); use the same, or remove it to start "
                "over",
            )
        journal = BlockJournal.load(content, conversion)
        if conversion.in_place_space and not journal.in_place_space:  # what the message about a full disk advises
            journal.in_place_space = True
            journal.begin(conversion)
        check_room(conversion, journal.source, [name for name in journal.source.shards if name not in journal.done])
        return journal
    source = conversion.examine()
    check_room(conversion, source, list(source.shards))
    journal = BlockJournal(conversion.staging, source, conversion.in_place_space)
    journal.begin(conversion)
    return journal


def check_done(conversion: BlockConversion, journal: BlockJournal) -> None:
    """Remove from the journal what is not as it was recorded; refuse a source that changed."""
    for name, identity in journal.source.shards.items():
        source, target = conversion.source / name, conversion.staging / name
        if name in journal.done and (not target.exists() or target.stat().st_size != journal.done[name]["bytes"]):
            del journal.done[name]
        if source.exists():
            if Identity.of(source) != identity:
                raise Refusal(
                    "source_changed",
                    f"{source} changed since the conversion began; remove {conversion.staging} to start over",
                )
        elif name not in journal.done:
            raise Refusal(
                "source_gone",
                f"{source} is gone and its conversion is not finished; fetch it again, then run this again",
            )
