"""Where the work is until it is whole: places, room, locks, and what an early end leaves."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from .checkpoint import Source
from .conversion import Wish
from .files import PROVENANCE, STATE_FOLDER, ask_anew, human, remove_unfinished
from .refusals import Refusal

LOCKS = ("lock", "workers")  # in the state folder while work is done: of the program, of its worker processes

# What else can be done where there is no room.
ELSEWHERE = (
    ", choose another target, or use --in-place-space, which gives up each source shard once its twin is verified"
)


def check_places(wish: Wish) -> None:
    """Source and target must be two folders, neither inside the other, and the staging folder ours."""
    for folder in (wish.source, wish.target):  # a node that shares them may have been at work
        ask_anew(folder.parent, folder, folder / STATE_FOLDER)
    if not wish.source.is_dir() and not (wish.target / STATE_FOLDER / PROVENANCE).exists():
        raise Refusal(f"{wish.source} is not a folder; name the folder that holds the checkpoint")
    source, target = wish.source.resolve(), wish.target.resolve()
    if source == target or source in target.parents or target in source.parents:
        raise Refusal(f"{wish.target} and {wish.source} are one inside the other; name a target beside the source")
    if wish.target.is_symlink() and not wish.target.exists():
        raise Refusal(f"{wish.target} is a link to {wish.target.readlink()}, which is not there; remove the link")
    ours = wish.staging / STATE_FOLDER / "journal.json"
    if wish.staging.exists() and not ours.exists() and any(e.name != STATE_FOLDER for e in wish.staging.iterdir()):
        raise Refusal(f"{wish.staging} exists and was not made by this program; remove it or name another target")


def check_room(wish: Wish, source: Source, missing: list[str], replaced: bool = False) -> None:
    """Refuse before the first byte when the result does not fit; three numbers, all in bytes.

    replaced: every shard takes the place of another one, so that only those under work are there twice.
    """
    sizes = [source.result_bytes[name] for name in missing]
    needed = sum(sorted(sizes)[-wish.jobs :]) if replaced or wish.in_place_space else sum(sizes)
    needed += sum((source.folder / name).stat().st_size for name in source.carried)
    folder = wish.target.parent
    while not folder.exists():
        folder = folder.parent
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        raise Refusal(
            f"converting {len(missing)} shards needs {human(needed)} on the file system of {wish.target}, "
            f"{human(free)} are free: {human(needed - free)} are missing. Free some room{'' if replaced else ELSEWHERE}"
        )


@contextlib.contextmanager
def only_one(wish: Wish, place: Path | None = None) -> Iterator[None]:
    """Hold the locks of this target, in place (else where the work is); a second conversion into it is refused.

    The second lock is inherited by the workers and free only when all have ended. Who holds the first can wait for
    it: only workers of a killed run can have it, and they would rename what they were writing into our result.
    """
    folder = (place or wish.staging) / STATE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    own, shared = (folder / name for name in LOCKS)
    with no_empty_folder(folder), own.open("a") as lock, shared.open("a") as workers:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refusal(f"another conversion into {wish.target} is running; wait for it or stop it first") from error
        try:
            fcntl.flock(workers, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waits for the workers of a run that was killed; they end by themselves", file=sys.stderr)
            fcntl.flock(workers, fcntl.LOCK_EX)
        os.set_inheritable(workers.fileno(), True)
        yield


@contextlib.contextmanager
def no_empty_folder(state: Path) -> Iterator[None]:
    """Remove in the end what untouched could not: NFS keeps a removed file that is open, under another name."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            state.rmdir()
            state.parent.rmdir()


@contextlib.contextmanager
def untouched(wish: Wish) -> Iterator[None]:
    """Leave no trace of an attempt that fails before anything was begun."""
    try:
        yield
    except BaseException:
        if wish.staging.exists() and not (wish.staging / STATE_FOLDER / "journal.json").exists():
            shutil.rmtree(wish.staging, ignore_errors=True)
        raise


@contextlib.contextmanager
def nothing_half(folder: Path, save: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Whatever ends the work early: half shards do not stay, and what is finished is on record.

    On a full disk there was no room for that record, as long as others wrote on.
    """
    try:
        yield
    except BaseException:
        remove_unfinished(folder)
        save()
        raise
