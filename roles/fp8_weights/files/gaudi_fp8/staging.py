"""The staging folder of a conversion: paths, free space, locks, and what an interruption leaves."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gaudi.base.refusal import Refusal
from gaudi.base.units import human_bytes
from gaudi.node import beneath
from gaudi.node.folders import revalidate_directory

from .checkpoint import SourceCheckpoint
from .conversion import Conversion
from .files import PROVENANCE, STATE_FOLDER, remove_unfinished
from .journal import JOURNAL

LOCKS = ("lock", "workers")  # in the state folder during the work: the program's, and that of its workers


def check_places(conversion: Conversion) -> None:
    """Refuse a source and a target inside one another, and a staging folder that is not ours."""
    staging = conversion.staging
    for folder in (conversion.source, conversion.target):  # another node that shares them may have changed them
        revalidate_directory(folder.parent, folder, folder / STATE_FOLDER)
    if not conversion.source.is_dir() and not (conversion.target / STATE_FOLDER / PROVENANCE).exists():
        raise Refusal("not_a_folder", f"{conversion.source} is not a folder; name the folder that holds the checkpoint")
    beneath.refuse_writers(conversion.target.parent)
    source, target = conversion.source.resolve(), conversion.target.resolve()
    if source == target or source in target.parents or target in source.parents:
        raise Refusal(
            "nested_folders",
            f"{conversion.target} and {conversion.source} are one inside the other; name a target beside the source",
        )
    if conversion.target.is_symlink() and not conversion.target.exists():
        there = conversion.target.readlink()
        raise Refusal("dangling_link", f"{conversion.target} is a link to {there}, which is not there; remove the link")
    ours = (staging / STATE_FOLDER / JOURNAL).exists()
    if staging.exists() and not ours and any(entry.name != STATE_FOLDER for entry in staging.iterdir()):
        raise Refusal(
            "staging_not_ours", f"{staging} exists and was not made by this program; remove it or name another target"
        )


def check_room(conversion: Conversion, source: SourceCheckpoint, missing: list[str], replaced: bool = False) -> None:
    """Refuse before the first byte when the result does not fit.

    replaced: every shard replaces an older one, so only shards in work exist twice.
    """
    sizes = [source.result_bytes[name] for name in missing]
    needed = sum(sorted(sizes)[-conversion.jobs :]) if replaced or conversion.in_place_space else sum(sizes)
    needed += sum((source.folder / name).stat().st_size for name in source.carried)
    folder = conversion.target.parent
    while not folder.exists():
        folder = folder.parent
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        advice = "" if replaced else conversion.elsewhere
        raise Refusal(
            "no_room",
            f"converting {len(missing)} shards needs {human_bytes(needed)} on the file system of {conversion.target}, "
            f"{human_bytes(free)} are free: {human_bytes(needed - free)} are missing. Free some room{advice}",
        )


@contextlib.contextmanager
def only_one(conversion: Conversion, place: Path | None = None) -> Iterator[None]:
    """Hold the locks of this target, in place (else in the staging folder). Refuses a second conversion into it.

    The program holds the first lock. The workers inherit the second, which is free only when all of them have ended.
    If it is not free, it is workers of a killed run that hold it: this waits for them, because they would still
    rename their shards into the result.
    """
    place = place or conversion.staging
    folder = place / STATE_FOLDER
    beneath.make_folders(folder, place)
    own, shared = (partial(beneath.open_lock, folder / name, place) for name in LOCKS)
    with no_empty_folder(folder), own() as lock, shared() as workers:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refusal(
                "conversion_running",
                f"another conversion into {conversion.target} is running; wait for it or stop it first",
            ) from error
        try:
            fcntl.flock(workers, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waits for the workers of a run that was killed; they end by themselves", file=sys.stderr)
            fcntl.flock(workers, fcntl.LOCK_EX)
        os.set_inheritable(workers.fileno(), True)
        yield


@contextlib.contextmanager
def no_empty_folder(state: Path) -> Iterator[None]:
    """Remove at the end the folders that untouched could not: NFS keeps an open file that was removed, renamed."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            beneath.remove_folder(state, state.parent)
            beneath.remove_folder(state.parent, state.parent)


@contextlib.contextmanager
def untouched(conversion: Conversion) -> Iterator[None]:
    """Remove the staging folder when the work fails before there is a journal."""
    try:
        yield
    except BaseException:
        if not (conversion.staging / STATE_FOLDER / JOURNAL).exists():
            with contextlib.suppress(OSError):
                beneath.remove_tree(conversion.staging, conversion.staging)
        raise


@contextlib.contextmanager
def nothing_half(folder: Path, save: Callable[[], None] = lambda: None) -> Iterator[None]:
    """When the work ends early, remove unfinished shards, then record what is finished.

    In this order: on a full disk there is room for the record only when the unfinished shards are gone.
    """
    try:
        yield
    except BaseException:
        remove_unfinished(folder)
        save()
        raise
