"""A dynamic conversion from beginning to end."""

from __future__ import annotations

import sys

from gaudi.base.units import human_bytes

from ..files import remove_unfinished
from ..finished import already_there, look_after, provenance, publish, recheck
from ..staging import check_places, only_one, untouched
from ..tasks import convert_shards
from .conversion import DynamicConversion
from .journal import DynamicJournal, open_journal

# On Gaudi2 the server scales FP8 weights again unless it is told not to.
ENVIRONMENT = {"VLLM_HPU_CONVERT_TO_FP8UZ": "false"}


def convert(conversion: DynamicConversion) -> str:
    """Do what was asked for; returns the closing sentence."""
    check_places(conversion)
    made = already_there(conversion)
    if made:
        return look_after(conversion, made)
    with only_one(conversion), untouched(conversion):
        journal = open_journal(conversion)
        remove_unfinished(conversion.staging)
        compared = convert_missing(conversion, journal)
        carried = conversion.carry(journal.source, conversion.staging)
        made = provenance(conversion, journal.source, journal.done, carried)
        publish(conversion, {**made, "environment": ENVIRONMENT})
        journal.remove_from(conversion.target)
    size = sum(shard["bytes"] for shard in journal.done.values())
    return f"{conversion.target}: {len(journal.done)} shards, {human_bytes(size)}, {compared} tensors compared."


def convert_missing(conversion: DynamicConversion, journal: DynamicJournal) -> int:
    """Convert what the journal does not have, check it; returns the number of tensors compared."""
    source = journal.source
    if conversion.verify:
        recheck(conversion, source, journal.done)
        journal.save()
    missing = [name for name in source.shards if name not in journal.done]
    if missing and len(missing) < len(source.shards):
        print(f"continuing: {len(journal.done)} of {len(source.shards)} are done", file=sys.stderr)
    # Nearly all of a shard are projections, and a projection is read twice: for its scales, then for its codes.
    total = sum(2 * source.shards[name].size for name in missing)
    return convert_shards(conversion, source, missing, conversion.staging, total, journal.record, journal.save)
