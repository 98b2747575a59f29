"""A block conversion from beginning to end."""

from __future__ import annotations

import sys
from typing import Any

from ..checkpoint import manifest_hash
from ..conversion import Wish, carry, request_of
from ..files import PROVENANCE, STATE_FOLDER, fsync_folder, human, remove_unfinished, write_json
from ..finished import EVERY_BYTE, already_there, look_after, recheck
from ..progress import Progress
from ..shards import SUM
from ..staging import check_places, nothing_half, only_one, untouched
from ..tasks import tasks_for
from ..workers import Crew
from .journal import Journal, check_done, open_journal
from .tables import GAUDI2


def convert(wish: Wish) -> str:
    """Do what the wish says; returns the closing sentence."""
    check_places(wish)
    made = already_there(wish)
    if made:
        return look_after(wish, made)
    with only_one(wish), untouched(wish):
        journal = open_journal(wish)
        check_done(wish, journal)
        compared = work(wish, journal)
        carried = carry(wish, journal.source, wish.staging)
        write_json(wish.staging / STATE_FOLDER / PROVENANCE, provenance(wish, journal, carried))
        # Until the rename the journal is there: a run killed before it continues, one killed after it is done.
        wish.staging.rename(wish.target)
        fsync_folder(wish.target.parent)
        journal.remove_from(wish.target)
    size = sum(shard["bytes"] for shard in journal.done.values())
    return f"{wish.target}: {len(journal.done)} shards, {human(size)}, {compared} tensors compared with their source."


def work(wish: Wish, journal: Journal) -> int:
    """Convert what the journal does not have, check it; returns the number of tensors compared."""
    if wish.verify and journal.done:
        recheck(wish, journal.source, journal.done)
        journal.save()
    missing = [name for name in journal.source.shards if name not in journal.done]
    if missing and len(missing) < len(journal.source.shards):
        print(
            f"continuing: {len(journal.done)} of {len(journal.source.shards)} shards are done",
            file=sys.stderr,
        )
    remove_unfinished(wish.staging)
    for name in journal.done:
        journal.give_up(wish, name)
    progress = Progress(wish.progress)
    progress.begin("convert", sum(journal.source.shards[name].size for name in missing))
    compared = 0

    def finished(name: str, result: dict[str, Any]) -> None:
        nonlocal compared
        compared += result["compared"]
        journal.record(name, result)
        journal.give_up(wish, name)

    with nothing_half(wish.staging, journal.save), Crew(max(1, min(wish.jobs, len(missing)))) as crew:
        crew.run(tasks_for(wish, journal.source, missing, wish.staging, convert=True), progress.advance, finished)
    progress.end()
    return compared


def provenance(wish: Wish, journal: Journal, carried: dict[str, Any]) -> dict[str, Any]:
    """What was made, from what, by what; written last, so that its presence means the result is whole."""
    return {
        "schema": 1,
        "tool": "fp8_convert",
        **request_of(wish),
        "validated_on_hardware": False,
        "usable_with_published_measurements": wish.factor == GAUDI2,
        "source": str(wish.source),
        "source_fingerprint": journal.source.fingerprint,
        "source_manifest_sha256": manifest_hash(wish.source),
        "source_times": journal.source.times,
        "in_place_space": journal.in_place_space,
        "verified": EVERY_BYTE if all(done["whole"] for done in journal.done.values()) else "a sample",
        "shards": {name: {key: done[key] for key in SUM} for name, done in sorted(journal.done.items())},
        "carried": carried,
    }
