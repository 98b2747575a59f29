"""The folder beside the target: one writer, room for what is missing, and the rename that publishes it.

Python 3.9 and its standard library: nodes that take weights from other nodes have nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from gaudi.base.refusal import Refusal
from gaudi.base.units import human_bytes
from gaudi.node import beneath, files, folders, storage
from gaudi.weights import record
from gaudi.weights.record import Manifest
from gaudi.weights.storage import LOCAL_LOCKS, no_locks, too_large

from . import manifest
from .request import WeightsRequest


def already_whole(request: WeightsRequest) -> Manifest | None:
    """The finished model at the target, None when there is nothing yet.

    Raises Refusal for a folder without our record, another revision, and a file system that is not mounted.
    """
    target = request.target
    folders.revalidate_directory(target.parent)  # a node that shares it may have published it just now
    if request.mounted_on is not None and not request.mounted_on.is_mount():
        raise Refusal(
            "not_mounted",
            f"{request.mounted_on} is not mounted, and the weights would land on the disk below it. Mount it",
        )
    beneath.refuse_writers(target.parent)
    if target.is_symlink() or target.is_mount():
        raise Refusal(
            "not_a_plain_folder",
            f"{target} is a symbolic link or a mount point; name a plain folder on the weights' file system",
        )
    done = manifest.load(target)
    if done is None and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise Refusal(
            "not_ours",
            f"{target} exists and has no record of this program, so it is somebody's own and is not touched. Move it "
            "away, or serve it as it is",
        )
    if done is not None and done.revision not in wanted_revisions(request, done):
        raise Refusal(
            "other_revision",
            f"{target} holds revision {done.revision} of {done.repository}, and another one is asked for. Remove it "
            f"first: playbooks/weights.yml -e remove={target.name}",
        )
    return done


def wanted_revisions(request: WeightsRequest, done: Manifest) -> set[str]:
    """Commits that are accepted; with a branch any commit is, since none was asked for.

    The source it came from decides, if it is still one: others call the same content by other commits.
    """
    same = [source for source in request.sources if source.name == done.source] or list(request.sources)
    return {source.revision if source.pinned else done.revision for source in same}


@contextlib.contextmanager
def only_one(request: WeightsRequest) -> Iterator[None]:
    """Hold the lock of this model; a second fetch of it is refused. Where nothing came, no staging folder is left."""
    lock = request.staging / record.LOCK
    refused = storage.unwritable(request.staging)
    if refused is not None:
        raise refused
    beneath.make_folders(lock.parent, request.staging)
    with no_empty_folder(request.staging), beneath.open_lock(lock, request.staging) as handle:
        if not holds(lock, handle.fileno()):
            raise Refusal(
                "fetch_in_progress", f"{request.target} is being fetched already, here or on a node that shares it"
            )
        try:
            try_out(request)
            yield
        finally:
            with contextlib.suppress(OSError):  # what is left does no harm
                beneath.remove_tree(request.staging / record.SCRATCH, request.staging)
            if all(path == lock or folder for path, folder in beneath.all_in(request.staging)):
                beneath.remove(lock, request.staging)


def holds(lock: Path, descriptor: int) -> bool:
    """Take an open lock if it is free; whether it could be had, and is still the file under its name."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # CIFS answers a lock of another process with the second one
        return False
    except OSError as error:
        beneath.remove(lock, lock.parents[1])
        raise no_locks(str(lock), storage.file_system(lock), error.strerror or "") from error
    # Who held it until now may have published the folder, and this lock with it.
    folders.revalidate_directory(lock.parents[2])
    seen = beneath.look(lock, lock.parents[1])
    return seen is not None and os.path.samestat(seen, os.fstat(descriptor))


def try_out(request: WeightsRequest) -> None:
    """Do in small what ends a fetch: replace a file, rename a folder, have both on the disk. Raises Refusal."""
    folder, on = request.staging / record.SCRATCH / "try", storage.file_system(request.staging)
    if on.options.intersection(LOCAL_LOCKS):
        print(f"{on} keeps its locks on this node: do not fetch {request.target.name} on two nodes at once", flush=True)
    doing = "created"
    try:
        beneath.make_folders(folder, request.staging)
        doing = "replaced in one step"
        for content in (b"a", b"b"):
            with beneath.replacing(folder / "file", request.staging, durable=False) as out:
                out.write(content)
        doing = "written to the disk (fsync)"
        with beneath.open_file(folder / "file", request.staging, "ab") as out:
            os.fsync(out.fileno())
        files.sync_folder(folder)
        doing = "renamed"
        beneath.rename(folder, request.staging, folder.with_name("tried"))
        beneath.remove_tree(folder.with_name("tried"), request.staging)
    except OSError as error:
        known = storage.explained(error, request.target.parent, doing)
        if known is None:
            raise
        raise known from error


def check_names(request: WeightsRequest, wanted: Iterable[tuple[str, int]]) -> None:
    """Refuse files (name, bytes) that the file system cannot hold, before the first byte."""
    refused = too_large(wanted, storage.file_system(request.staging), os.pathconf(request.staging, "PC_NAME_MAX"))
    if refused is not None:
        raise refused


@contextlib.contextmanager
def no_empty_folder(staging: Path) -> Iterator[None]:
    """At the end, remove a staging folder that holds only empty folders and no lock: no other run has begun in it.

    This context encloses that of the lock, which has to be closed first: NFS keeps an open file that was removed, under
    another name.
    """
    try:
        yield
    finally:
        if beneath.look(staging / record.LOCK, staging) is None:
            with contextlib.suppress(OSError):
                for path, is_folder in beneath.all_in(staging):
                    if is_folder:
                        beneath.remove_folder(path, staging)
                beneath.remove_folder(staging, staging)


def clear(staging: Path) -> None:
    """Remove what is in a staging folder, but for the lock, which is held."""
    if not staging.exists():  # somebody removed it meanwhile
        return
    for path in [*staging.iterdir(), *(staging / record.FOLDER).iterdir()]:
        if path.name == record.FOLDER or path == staging / record.LOCK:
            continue
        if beneath.is_folder(path, staging):
            beneath.remove_tree(path, staging)
        else:
            beneath.remove(path, staging)


def check_room(request: WeightsRequest, missing: int) -> None:
    """Refuse before the first byte when what is missing, the conversion's copy and the reserve do not fit."""
    room = os.statvfs(request.staging)
    free = room.f_bavail * room.f_frsize
    needed = missing + request.extra_room + request.reserve
    if needed > free:
        elsewhere = f", or set another {request.root_option}" if request.root_option else ""
        raise Refusal(
            "no_room",
            f"{request.target} needs {human_bytes(missing)} for what is still missing, "
            f"{human_bytes(request.extra_room)} for a conversion's copy "
            f"and {human_bytes(request.reserve)} in reserve, {human_bytes(needed)} in all; "
            f"{human_bytes(free)} are free on its file system. Make room for {human_bytes(needed - free)} more in "
            f"{request.target.parent}{elsewhere}",
        )


def publish(request: WeightsRequest, made: Manifest) -> None:
    """Make the staging folder the model, in one rename. Raises Refusal if its record could not be read back."""
    text = made.render()
    try:
        record.parse(text)
    except ValueError as error:
        raise Refusal(
            "record_unfit",
            f"what {made.source} states of {made.repository} cannot be recorded ({error}); use another source",
        ) from error
    wanted = {file.name for file in made.files}
    staging, target = request.staging, request.target
    # What earlier attempts left here: a fetch its scratch folder, a receiver of a peer its incoming files.
    for working in (record.SCRATCH, record.INCOMING):
        with contextlib.suppress(OSError):
            beneath.remove_tree(staging / working, staging)
    beneath.remove(staging / record.RELAY, staging)
    inside = list(beneath.all_in(staging))
    for path, is_folder in inside:
        name = path.relative_to(staging).as_posix()
        ours = name.startswith(record.FOLDER + "/") and not name.endswith(beneath.WRITING)
        if not is_folder and name not in wanted and not ours:
            # Of an earlier listing, such as a branch that has moved, or of a run that was killed.
            beneath.remove(path, staging)
    manifest.write(staging / record.MANIFEST, text, staging)
    beneath.remove(staging / record.ARRIVED, staging)
    for folder in [staging, *(path for path, is_folder in inside if is_folder)]:
        files.sync_folder(folder)
    beneath.rename(staging, staging, target, target)
    files.sync_folder(target.parent)
    beneath.remove(target / record.LOCK, target)


def put_right(request: WeightsRequest, names: list[str]) -> None:
    """Put checked files of the staging folder in the place of wrong ones of the finished model, each in one rename."""
    for name in names:
        place = request.target / name
        beneath.make_folders(place.parent, request.target)
        beneath.rename(request.staging / name, request.staging, place, request.target)
        files.sync_folder(place.parent)
    beneath.remove(request.target / record.VERIFIED, request.target)
    clear(request.staging)
