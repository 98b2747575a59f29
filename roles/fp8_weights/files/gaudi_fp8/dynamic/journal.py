"""The journal of a dynamic conversion: what was decided, and what is done."""

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
from .conversion import DynamicConversion


class DynamicJournal:
    """What was decided and what is done, kept beside the work so that the next run continues with the next shard."""

    def __init__(
        self, conversion: DynamicConversion, source: SourceCheckpoint, done: dict[str, dict[str, Any]]
    ) -> None:
        self.conversion = conversion
        self.source = source
        self.done = done

    @staticmethod
    def path(conversion: DynamicConversion) -> Path:
        """Where the journal of a conversion is."""
        return conversion.staging / STATE_FOLDER / JOURNAL

    @classmethod
    def load(cls, conversion: DynamicConversion) -> DynamicJournal:
        """Continue a journal; Refusal when it was begun with other options."""
        path = cls.path(conversion)
        # The options come first: the journal of another program has another form.
        content = read_json(path, {"request": dict}, conversion.start_over)
        if content["request"] != conversion.options():
            raise Refusal(
                "begun_with_other_options",
                f"{conversion.staging} was begun with other options or by another program "
                f"({json.dumps(content['request'], sort_keys=True)}); use the same, or remove it to start over",
            )
        read_json(path, {**DECIDED, "done": {str: {**SUM, "whole?": bool}}}, conversion.start_over)
        return cls(conversion, source_in(content, conversion), content["done"])

    def record(self, name: str, result: dict[str, Any]) -> None:
        """Note durably that a shard is done."""
        self.done[name] = result
        self.save()

    def save(self) -> None:
        """Write it durably."""
        decided = decisions(self.source, self.conversion.options())
        write_json(self.path(self.conversion), {**decided, "done": self.done}, place=self.conversion.staging)

    def check(self) -> None:
        """Forget results that are not as they were recorded; refuse a source that changed or is gone."""
        staging = self.conversion.staging
        for name, identity in self.source.shards.items():
            source, target = self.conversion.source / name, staging / name
            if not source.exists() or Identity.of(source) != identity:
                raise Refusal(
                    "source_changed", f"{source} changed since the conversion began; remove {staging} to start over"
                )
            if name in self.done and (not target.exists() or target.stat().st_size != self.done[name]["bytes"]):
                del self.done[name]

    def remove_from(self, folder: Path) -> None:
        """Remove what is no longer needed; files that a killed run leaves there do no harm."""
        for name in (JOURNAL, *LOCKS):
            beneath.remove(folder / STATE_FOLDER / name, folder)


def open_journal(conversion: DynamicConversion) -> DynamicJournal:
    """Continue the work in the staging folder, or examine the source and begin."""
    if DynamicJournal.path(conversion).exists():
        journal = DynamicJournal.load(conversion)
        journal.check()
    else:
        journal = DynamicJournal(conversion, conversion.examine(), {})
    check_room(conversion, journal.source, [name for name in journal.source.shards if name not in journal.done])
    journal.save()
    return journal
