"""A block conversion from beginning to end."""

from __future__ import annotations

import sys
from typing import Any

from gaudi.base.units import human_bytes

from ..files import remove_unfinished
from ..finished import already_there, look_after, provenance, publish, recheck
from ..staging import check_places, only_one, untouched
from ..tasks import convert_shards
from .conversion import BlockConversion
from .journal import BlockJournal, check_done, open_journal
from .tables import GAUDI2


def convert(conversion: BlockConversion) -> str:
    """Do what was asked for; returns the closing sentence."""
    check_places(conversion)
    made = already_there(conversion)
    if made:
        return look_after(conversion, made)
    with only_one(conversion), untouched(conversion):
        journal = open_journal(conversion)
        check_done(conversion, journal)
        compared = convert_missing(conversion, journal)
        carried = conversion.carry(journal.source, conversion.staging)
        made = {
            **provenance(conversion, journal.source, journal.done, carried),
            "usable_with_published_measurements": conversion.factor == GAUDI2,
            "in_place_space": journal.in_place_space,
        }
        publish(conversion, made)
        journal.remove_from(conversion.target)
    size = sum(shard["bytes"] for shard in journal.done.values())
    shards = f"{len(journal.done)} shards, {human_bytes(size)}"
    return f"{conversion.target}: {shards}, {compared} tensors compared with their source."


def convert_missing(conversion: BlockConversion, journal: BlockJournal) -> int:
    """Convert what the journal does not have, check it; returns the number of tensors compared."""
    source = journal.source
    if conversion.verify and journal.done:
        recheck(conversion, source, journal.done)
        journal.save()
    missing = [name for name in source.shards if name not in journal.done]
    if missing and len(missing) < len(source.shards):
        print(f"continuing: {len(journal.done)} of {len(source.shards)} shards are done", file=sys.stderr)
    remove_unfinished(conversion.staging)
    for name in journal.done:
        journal.give_up(conversion, name)

    def finished(name: str, result: dict[str, Any]) -> None:
        journal.record(name, result)
        journal.give_up(conversion, name)

    total = sum(source.shards[name].size for name in missing)
    return convert_shards(conversion, source, missing, conversion.staging, total, finished, journal.save)
