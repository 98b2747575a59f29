"""A finished conversion: whether it exists, whether it is right, and how it is repaired."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from gaudi.base.refusal import Refusal
from gaudi.node import beneath
from gaudi.node.files import sync_folder, write_json
from gaudi.node.folders import size_of

from .checkpoint import SourceCheckpoint, manifest_hash
from .conversion import Conversion
from .files import PROVENANCE, STATE_FOLDER, read_json, remove_unfinished
from .shards import SUM
from .staging import LOCKS, check_places, check_room, only_one
from .tasks import convert_shards, found_wrong, sums_for, tasks_for

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


def already_there(conversion: Conversion) -> dict[str, Any] | None:
    """Provenance of the target when it is the finished conversion of this source, None when there is no target.

    Raises Refusal for anything else at the target, and for another source than the one it was made from. Without a
    source the record is all there is to compare with. "wrong" in the record names files that a verification found
    wrong, or that are missing or of another size now: they can be made again, as long as the source is there.
    """
    made = recorded(conversion)
    if made is None:
        return None
    options = conversion.options()
    if {key: made.get(key) for key in options} != options:
        raise Refusal(
            "other_options", f"{conversion.target} was converted with other options; name another target or remove it"
        )
    changed = wrong_sizes(conversion, made)
    if changed:
        note = made.get("wrong") or {"files": [], "seen": now(), "others": made["verified"]}
        made = {**made, "wrong": {**note, "files": sorted({*note["files"], *changed})}}
    if "wrong" in made or not source_given_up(conversion, made):
        check_same_source(conversion, made)
    return made


def recorded(conversion: Conversion) -> dict[str, Any] | None:
    """Provenance of the target as it stands there, None when there is no target. Raises Refusal for anything else."""
    target = conversion.target
    if not target.exists():
        return None
    made = read_json(conversion.record, dict, move_away(conversion)) if conversion.record.exists() else {}
    if made.get("tool") != conversion.tool:
        raise Refusal(
            "target_not_ours",
            f"{target} exists and is not a conversion of this program; it is not touched, name another target",
        )
    read_json(conversion.record, RECORDED, move_away(conversion))
    return made


def written(made: dict[str, Any]) -> dict[str, Any]:
    """Size and checksum of every file that the record names."""
    return {**made["shards"], **made.get("carried", {})}


def wrong_sizes(conversion: Conversion, made: dict[str, Any]) -> dict[str, Refusal]:
    """Files that are missing or have another size than was written, with a sentence each."""
    return {
        name: Refusal("target_changed", f"{conversion.target / name} is not as it was written")
        for name, seen in written(made).items()
        if size_of(conversion.target / name, conversion.target) != seen["bytes"]
    }


def now() -> str:
    """Now, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def note_wrong(conversion: Conversion, made: dict[str, Any], wrong: dict[str, Refusal], others: str) -> str:
    """Note in the record what was found wrong, and return it as the beginning of a sentence."""
    note = {"files": sorted(wrong), "seen": now(), "others": others}
    rewrite(conversion, {**made, "verified": FOUND_WRONG, "wrong": note})
    also = f" ({len(wrong)} of {len(written(made))} files are wrong, see {conversion.record})" if len(wrong) > 1 else ""
    return f"{wrong[min(wrong)]}{also}"


def reread(conversion: Conversion) -> str:
    """Read every byte of a finished conversion again, against the checksums in its record; nothing is converted."""
    made, target = recorded(conversion), conversion.target
    if made is None:
        return f"{target} is not there: there is nothing to read."
    others = made["wrong"]["others"] if "wrong" in made else made["verified"]
    files, wrong = written(made), wrong_sizes(conversion, made)
    tasks = sums_for(target, {name: seen for name, seen in files.items() if name not in wrong})
    wrong.update(found_wrong(conversion, tasks) if tasks else {})
    if wrong:
        raise Refusal(
            "found_wrong",
            f"{note_wrong(conversion, made, wrong, others)}. Convert it again (playbooks/convert_weights.yml): "
            f"what is wrong in {target} is made again",
        )
    if "wrong" in made:
        good = {key: value for key, value in made.items() if key != "wrong"}
        rewrite(conversion, {**good, "verified": others})
    return f"{target}: {len(files)} files are to the byte what was written (held against the checksums in its record)."


def check_same_source(conversion: Conversion, made: dict[str, Any]) -> None:
    """Refuse another source than the one the target was made from, and wrong files whose source is gone."""
    source, target, wrong = conversion.source, conversion.target, made.get("wrong")
    if wrong and not all((source / name).exists() for name in made["shards"]):
        raise Refusal(
            "source_gone",
            f"{target} was found wrong at {wrong['seen']} ({', '.join(wrong['files'])}), and {source}, "
            "which it was made from, is gone. Fetch that again, then run this again: what is wrong is made again",
        )
    manifest = manifest_hash(source)
    other_content = manifest is not None and made.get("source_manifest_sha256") not in (None, manifest)
    if conversion.examine().fingerprint != made["source_fingerprint"] or other_content:
        raise Refusal(
            "other_source", f"{target} was converted from another input than {source}; name another target or remove it"
        )


def move_away(conversion: Conversion) -> str:
    """Advice about a record that is damaged."""
    return f"move {conversion.target} away and run this again"


def source_given_up(conversion: Conversion, made: dict[str, Any]) -> bool:
    """Whether only the result is left: --in-place-space deleted the shards, or somebody the folder."""
    return bool(made.get("in_place_space")) or not conversion.source.is_dir()


def touched(conversion: Conversion, made: dict[str, Any]) -> bool:
    """Whether source shards without a downloader's record were written since: only reading tells if they changed."""
    if source_given_up(conversion, made) or manifest_hash(conversion.source) is not None:
        return False
    times = made.get("source_times", {})
    return any((conversion.source / name).stat().st_mtime_ns != written for name, written in times.items())


def is_done(conversion: Conversion) -> bool:
    """Whether converting would do nothing. Refuses what converting would refuse, as far as looking can tell."""
    check_places(conversion)
    made = already_there(conversion)
    if made is None or "wrong" in made or touched(conversion, made):
        return False
    return not conversion.verify or made["verified"] == EVERY_BYTE


def look_after(conversion: Conversion, made: dict[str, Any]) -> str:
    """Repair or verify a finished conversion if needed or requested; returns the closing sentence."""
    wrong = made.get("wrong")
    if wrong:
        made = repair(conversion, made)
    if conversion.verify or touched(conversion, made):
        return check_result(conversion, made)
    if wrong:
        return f"{conversion.target}: converted again what was found wrong ({', '.join(wrong['files'])})."
    return f"{conversion.target} is already the conversion of {conversion.source}; nothing to do."


def check_result(conversion: Conversion, made: dict[str, Any]) -> str:
    """Re-read every byte of a finished conversion and note in its provenance what was found.

    Shards are compared with their source, or with their recorded checksum where the source is gone. The other files
    are always compared with their recorded checksum.
    """
    target = conversion.target
    alone = source_given_up(conversion, made)
    carried = made.get("carried", {})
    if alone:
        tasks = sums_for(target, {**made["shards"], **carried})
    else:
        source = conversion.examine()
        tasks = tasks_for(replace(conversion, verify=True), source, list(source.shards), target, convert=False)
        tasks += sums_for(target, carried)
    wrong = found_wrong(conversion, tasks)
    if wrong:
        said = note_wrong(conversion, made, wrong, made["verified"] if alone else EVERY_BYTE)
        first = f"Fetch {conversion.source} again, then run" if alone else "Run"
        raise Refusal(
            "found_wrong", f"{said}. {first} the same command again: what is wrong in {target} is converted again"
        )
    if alone:
        return (
            f"{target}: {len(tasks)} files are to the byte what was written (held against the checksums in its record; "
            f"{conversion.source}, which it was made from, was given up)."
        )
    rewrite(conversion, {**made, "verified": EVERY_BYTE, "source_times": source.times})
    return f"{target} is the conversion of {conversion.source}, every byte of it."


def repair(conversion: Conversion, made: dict[str, Any]) -> dict[str, Any]:
    """Convert again, in place, what a verification found wrong; returns the provenance, good again."""
    note = made["wrong"]
    # An administrator may have put the result elsewhere, and a link in its place.
    target = conversion.target.resolve()
    with only_one(conversion, target):
        source = conversion.examine()
        remove_unfinished(target)
        done: dict[str, Any] = {}
        names = [name for name in source.shards if name in note["files"]]
        check_room(conversion, source, names, replaced=True)
        total = sum(source.shards[name].size for name in names)
        whole = replace(conversion, verify=True)
        convert_shards(whole, source, names, target, total, done.__setitem__)
        shards = {name: {key: result[key] for key in SUM} for name, result in done.items()}
        carried = conversion.carry(source, target)
        made = {key: value for key, value in made.items() if key != "wrong"}
        times = {**made.get("source_times", {}), **{name: source.times[name] for name in names}}
        made.update(verified=note["others"], source_times=times, shards={**made["shards"], **shards}, carried=carried)
        rewrite(conversion, made)
        for name in LOCKS:
            beneath.remove(conversion.record.with_name(name), conversion.record.parent)
    return made


def rewrite(conversion: Conversion, made: dict[str, Any]) -> None:
    """Replace the provenance of a finished conversion."""
    write_json(conversion.record, made, place=conversion.record.parent)


def recheck(conversion: Conversion, source: SourceCheckpoint, done: dict[str, dict[str, Any]]) -> None:
    """Compare what earlier runs finished with its source. What is wrong leaves done, and so is converted again."""
    staging = conversion.staging
    here = [name for name in done if (conversion.source / name).exists()]
    given_up = {name: done[name] for name in done if name not in here}
    tasks = tasks_for(conversion, source, here, staging, convert=False) + sums_for(staging, given_up)
    for name, why in found_wrong(conversion, tasks).items() if tasks else ():
        if name in given_up:
            raise Refusal(
                "source_given_up",
                f"{why}, and its source was given up. Fetch {conversion.source} again; {conversion.start_over}",
            )
        print(f"{why}; it is converted again", file=sys.stderr)
        del done[name]
    for result in done.values():
        result["whole"] = True


def provenance(
    conversion: Conversion, source: SourceCheckpoint, done: dict[str, dict[str, Any]], carried: dict[str, Any]
) -> dict[str, Any]:
    """What was made, from what, by what; written last, so that its presence means the result is whole."""
    return {
        "schema": 1,
        "tool": conversion.tool,
        **conversion.options(),
        "validated_on_hardware": False,
        "source": str(conversion.source),
        "source_fingerprint": source.fingerprint,
        "source_manifest_sha256": manifest_hash(conversion.source),
        "source_times": source.times,
        "verified": EVERY_BYTE if all(result.get("whole") for result in done.values()) else "a sample",
        "shards": {name: {key: result[key] for key in SUM} for name, result in sorted(done.items())},
        "carried": carried,
    }


def publish(conversion: Conversion, made: dict[str, Any]) -> None:
    """Write the provenance, and give the result its name.

    The journal stays until after the rename: killed before it, the next run continues; killed after it, all is done.
    """
    staging = conversion.staging
    write_json(staging / STATE_FOLDER / PROVENANCE, made, place=staging)
    beneath.rename(staging, staging, conversion.target, conversion.target)
    sync_folder(conversion.target.parent)
