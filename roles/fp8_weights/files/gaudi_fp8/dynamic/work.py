"""A dynamic conversion from beginning to end."""

from __future__ import annotations

import sys
from typing import Any

from ..checkpoint import Source, manifest_hash
from ..files import PROVENANCE, STATE_FOLDER, fsync_folder, human, remove_unfinished, write_json
from ..finished import EVERY_BYTE, already_there, look_after, recheck
from ..progress import Progress
from ..shards import SUM
from ..staging import LOCKS, check_places, nothing_half, only_one, untouched
from ..tasks import tasks_for
from .conversion import Crew, Wish, carry, request_of
from .journal import Journal, open_journal


def convert(wish: Wish) -> str:
    """Do what the wish says; returns the closing sentence."""
    check_places(wish)
    made = already_there(wish)
    if made:
        return look_after(wish, made)
    with only_one(wish), untouched(wish):
        journal = open_journal(wish)
        remove_unfinished(wish.staging)
        if wish.verify:
            recheck(wish, journal.source, journal.done)
            journal.save()
        missing = [name for name in journal.source.shards if name not in journal.done]
        if missing and len(missing) < len(journal.source.shards):
            print(f"continuing: {len(journal.done)} of {len(journal.source.shards)} are done", file=sys.stderr)
        compared = run(wish, journal, missing)
        carried = carry(wish, journal.source, wish.staging)
        write_json(wish.staging / STATE_FOLDER / PROVENANCE, provenance(wish, journal, carried))
        # Until the rename the journal is there: a run killed before it continues, one killed after it is done.
        wish.staging.rename(wish.target)
        fsync_folder(wish.target.parent)
        for name in (Journal.path(wish).name, *LOCKS):
            (wish.target / STATE_FOLDER / name).unlink()
    size = sum(shard["bytes"] for shard in journal.done.values())
    return f"{wish.target}: {len(journal.done)} shards, {human(size)}, {compared} tensors compared."


def run(wish: Wish, journal: Journal, missing: list[str]) -> int:
    """Convert and check the missing shards; returns the number of tensors compared."""
    compared = 0
    progress = Progress(wish.progress)
    # A weight is read twice: for its scales, then for its codes.
    progress.begin("convert", sum(work_of(journal.source, name) for name in missing))

    def finished(name: str, result: dict[str, Any]) -> None:
        nonlocal compared
        compared += result["compared"]
        journal.done[name] = result
        journal.save()

    with nothing_half(wish.staging, journal.save), Crew(max(1, min(wish.jobs, len(missing)))) as crew:
        tasks = tasks_for(wish, journal.source, missing, wish.staging, convert=True)
        crew.run(tasks, progress.advance, finished)
    progress.end()
    return compared


def work_of(source: Source, shard: str) -> int:
    """Bytes read to convert a shard: about twice its size, as nearly all of it are projections."""
    return 2 * source.shards[shard].size


def provenance(wish: Wish, journal: Journal, carried: dict[str, Any]) -> dict[str, Any]:
    """What was made, from what, by what; written last, so that its presence means the result is whole."""
    return {
        "schema": 1,
        "tool": "fp8_dynamic",
        **request_of(wish),
        "validated_on_hardware": False,
        # On Gaudi2 the server scales FP8 weights once more unless it is told not to.
        "environment": {"VLLM_HPU_CONVERT_TO_FP8UZ": "false"},
        "source": str(wish.source),
        "source_fingerprint": journal.source.fingerprint,
        "source_manifest_sha256": manifest_hash(wish.source),
        "source_times": journal.source.times,
        "verified": EVERY_BYTE if all(done.get("whole") for done in journal.done.values()) else "a sample",
        "shards": {name: {key: done[key] for key in SUM} for name, done in sorted(journal.done.items())},
        "carried": carried,
    }
