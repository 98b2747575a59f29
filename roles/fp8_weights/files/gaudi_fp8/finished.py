"""A finished conversion: whether it is there, whether it is right, and mending it."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from .checkpoint import Source, manifest_hash
from .conversion import Wish, start_over
from .files import STATE_FOLDER, read_json, remove_unfinished, write_json
from .progress import Progress
from .refusals import Refusal
from .shards import SUM
from .staging import LOCKS, check_places, check_room, nothing_half, only_one
from .tasks import found_wrong, sums_for, tasks_for

EVERY_BYTE = "every byte"  # the provenance's word for a whole verification
FOUND_WRONG = "found wrong"  # and for one that failed; its key "wrong" says which files, and when
RECORDED = {
    "source_fingerprint": str,
    "verified": str,
    "source_times?": {str: int},
    "shards": {str: SUM},
    "carried?": {str: SUM},
    "wrong?": {"files": [str], "seen": str, "others": str},
}


def already_there(wish: Wish) -> dict[str, Any] | None:
    """Provenance of the target when it is the finished conversion of this source, None when there is no target.

    Raises Refusal for anything else in its place, and for a source that is not the one it was made from; without a
    source, the record is what there is. Files that a verification found wrong are named under "wrong": they can be made
    anew from the source, which has to be there.
    """
    if not wish.target.exists():
        return None
    made = read_json(wish.record, dict, move_away(wish)) if wish.record.exists() else {}
    if made.get("tool") != wish.tool:
        raise Refusal(
            f"{wish.target} exists and is not a conversion of this program; it is not touched, name another target"
        )
    read_json(wish.record, RECORDED, move_away(wish))
    check_sizes(wish, made)
    if {key: made.get(key) for key in wish.request()} != wish.request():
        raise Refusal(f"{wish.target} was converted with other options; name another target or remove it")
    if "wrong" in made or not source_given_up(wish, made):
        check_same_source(wish, made)
    return made


def check_sizes(wish: Wish, made: dict[str, Any]) -> None:
    """Refuse a target that lacks a file, or has one of another size; files known to be wrong are left out."""
    known = made["wrong"]["files"] if "wrong" in made else []
    for name, written in {**made["shards"], **made.get("carried", {})}.items():
        path = wish.target / name
        if name not in known and (not path.is_file() or path.stat().st_size != written["bytes"]):
            raise Refusal(f"{path} is not as it was written; remove {wish.target} and convert again")


def check_same_source(wish: Wish, made: dict[str, Any]) -> None:
    """Refuse a source that is not the one the target was made from, or is gone though wrong files need it."""
    wrong = made.get("wrong")
    if wrong and not all((wish.source / name).exists() for name in made["shards"]):
        raise Refusal(
            f"{wish.target} was found wrong at {wrong['seen']} ({', '.join(wrong['files'])}), and {wish.source}, "
            "which it was made from, is gone. Fetch that again, then run this again: what is wrong is made anew"
        )
    manifest = manifest_hash(wish.source)
    other_content = manifest is not None and made.get("source_manifest_sha256") not in (None, manifest)
    if wish.examine().fingerprint != made["source_fingerprint"] or other_content:
        raise Refusal(
            f"{wish.target} was converted from another input than {wish.source}; name another target or remove it"
        )


def move_away(wish: Wish) -> str:
    """Advice about a record that is damaged."""
    return f"move {wish.target} away and run this again"


def source_given_up(wish: Wish, made: dict[str, Any]) -> bool:
    """Whether only the result is there: its shards were deleted one by one, or the folder since."""
    return bool(made.get("in_place_space")) or not wish.source.is_dir()


def touched(wish: Wish, made: dict[str, Any]) -> bool:
    """Whether shards that no downloader keeps a record of were written since: only reading them tells what became."""
    if source_given_up(wish, made) or manifest_hash(wish.source) is not None:
        return False
    times = made.get("source_times", {})
    return any((wish.source / name).stat().st_mtime_ns != written for name, written in times.items())


def is_done(wish: Wish) -> bool:
    """Whether converting would do nothing. Refuses where converting would, as far as that can be seen by looking."""
    check_places(wish)
    made = already_there(wish)
    if made is None or "wrong" in made or touched(wish, made):
        return False
    return not wish.verify or made["verified"] == EVERY_BYTE


def look_after(wish: Wish, made: dict[str, Any]) -> str:
    """Mend or verify a finished conversion, where that is needed or asked for; returns the closing sentence."""
    wrong = made.get("wrong")
    if wrong:
        made = mend(wish, made)
    if wish.verify or touched(wish, made):
        return check_result(wish, made)
    if wrong:
        return f"{wish.target}: converted anew what was found wrong ({', '.join(wrong['files'])})."
    return f"{wish.target} is already the conversion of {wish.source}; nothing to do."


def check_result(wish: Wish, made: dict[str, Any]) -> str:
    """Re-read every byte of a finished conversion and note in its provenance what was found.

    Shards are held against their source, or against the record where the source is gone; other files always against it.
    """
    alone = source_given_up(wish, made)
    carried = made.get("carried", {})
    if alone:
        tasks = sums_for(wish.target, {**made["shards"], **carried})
    else:
        source = wish.examine()
        tasks = tasks_for(replace(wish, verify=True), source, list(source.shards), wish.target, convert=False)
        tasks += sums_for(wish.target, carried)
    wrong = found_wrong(wish, tasks)
    if wrong:
        seen = datetime.now(timezone.utc).isoformat(timespec="seconds")
        others = made["verified"] if alone else EVERY_BYTE
        note = {"files": sorted(wrong), "seen": seen, "others": others}
        write_json(wish.record, {**made, "verified": FOUND_WRONG, "wrong": note})
        also = f" ({len(wrong)} of {len(tasks)} files are wrong, see {wish.record})" if len(wrong) > 1 else ""
        raise Refusal(
            f"{wrong[min(wrong)]}{also}. {f'Fetch {wish.source} again, then run' if alone else 'Run'} the same command "
            f"again: what is wrong in {wish.target} is converted anew"
        )
    if alone:
        return (
            f"{wish.target}: {len(tasks)} files are to the byte what was written (held against the checksums in its "
            f"record; {wish.source}, which it was made from, was given up)."
        )
    write_json(wish.record, {**made, "verified": EVERY_BYTE, "source_times": source.times})
    return f"{wish.target} is the conversion of {wish.source}, every byte of it."


def mend(wish: Wish, made: dict[str, Any]) -> dict[str, Any]:
    """Convert anew, in place, what a verification found wrong; returns the provenance, good again."""
    note = made["wrong"]
    with only_one(wish, wish.target):
        source = wish.examine()
        remove_unfinished(wish.target)
        done: dict[str, Any] = {}
        names = [name for name in source.shards if name in note["files"]]
        check_room(wish, source, names, replaced=True)
        progress = Progress(wish.progress)
        progress.begin("convert", sum(source.shards[name].size for name in names))
        tasks = tasks_for(replace(wish, verify=True), source, names, wish.target, convert=True)
        with nothing_half(wish.target), wish.crew(max(1, min(wish.jobs, len(names)))) as crew:
            crew.run(tasks, progress.advance, done.__setitem__)
        progress.end()
        shards = {name: {key: result[key] for key in SUM} for name, result in done.items()}
        carried = wish.carry(source, wish.target)
        made = {key: value for key, value in made.items() if key != "wrong"}
        times = {**made.get("source_times", {}), **{name: source.times[name] for name in names}}
        made.update(verified=note["others"], source_times=times, shards={**made["shards"], **shards}, carried=carried)
        write_json(wish.record, made)
        for name in LOCKS:
            (wish.target / STATE_FOLDER / name).unlink()
    return made


def recheck(wish: Wish, source: Source, done: dict[str, dict[str, Any]]) -> None:
    """Compare what earlier runs finished with its source; what is wrong is forgotten, and so converted anew."""
    here = [name for name in done if (wish.source / name).exists()]
    given_up = {name: done[name] for name in done if name not in here}
    tasks = tasks_for(wish, source, here, wish.staging, convert=False) + sums_for(wish.staging, given_up)
    for name, why in found_wrong(wish, tasks).items() if tasks else ():
        if name in given_up:
            raise Refusal(f"{why}, and its source was given up. Fetch {wish.source} again; {start_over(wish)}")
        print(f"{why}; it is converted anew", file=sys.stderr)
        del done[name]
    for result in done.values():
        result["whole"] = True
