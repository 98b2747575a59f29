"""Files in places where others may write: a container, a user of the node, another node of the site.

A place is a folder. It and what lies beneath it are reached by descriptors, one folder at a time, and no link among
them is followed. Only regular files are opened, so a pipe cannot block the program. What lies above a place is the
administrator's, links included; ``refuse_writers`` refuses it where others may write there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

from ..base.refusal import Refusal

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_LINKS = 40  # as many as the kernel follows
# What a file that is being written ends with, until it has its name.
WRITING = ".writing"
_MODES = ("rb", "r+b", "ab", "a+b", "xb")


def open_file(path: Path, place: Path | None, mode: str = "rb", buffering: int = -1) -> BinaryIO:
    """Open a regular file. mode: as for open(), except "w", which would empty a file that another user put there.

    Without a place, which is for reading alone, links are followed. Raises Refusal for a link, a pipe and the like,
    FileNotFoundError where nothing is.
    """
    if mode not in (_MODES if place is not None else _MODES[:1]):
        raise ValueError(f"{mode} is none of {', '.join(_MODES)}")
    if place is None:
        handle = _linked(path)
        return _stream(path, mode, buffering, lambda _path, _flags: handle)
    with _holder(path, place) as (folder, name):
        return _stream(path, mode, buffering, lambda _path, flags: _opened(folder, name, path, flags))


def open_linked(path: Path, within: Iterable[Path], buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading that may be a link, as long as the file itself lies in one of the folders.

    Raises Refusal for one that lies elsewhere, and for a pipe and the like.
    """
    stream = open_file(path, None, buffering=buffering)
    # Asked of the open file, so that a change of the link has no effect any more.
    real = Path(f"/proc/self/fd/{stream.fileno()}").readlink()
    if not any(real.is_relative_to(os.path.realpath(folder)) for folder in within):
        stream.close()
        raise Refusal(
            "link_leads_out",
            f"{path} is a link to {real}, outside its folder, and is not read. Put the file itself there, or remove "
            "the link",
        )
    return stream


def within(folder: Path) -> list[Path]:
    """Where links may lead in a folder of weights that somebody brought: to files of the same folder.

    A hub's cache keeps the files of all revisions in "blobs", and a revision's folder in "snapshots" has links to them.
    """
    real = folder.resolve()
    return [real, real.parents[1] / "blobs"] if real.parent.name == "snapshots" else [real]


@contextlib.contextmanager
def replacing(
    path: Path, place: Path | None = None, mode: int | None = None, durable: bool = True, buffering: int = -1
) -> Iterator[BinaryIO]:
    """A new file, which takes its place under its name when the block ends well; a reader sees the old one or the new.

    mode: rights of the file; without it those that the umask leaves. durable: whether it survives a power cut. Without
    a place, links to the folder are followed, and nothing else.
    """
    with _holder(path, place) as (folder, name):
        temporary = f"{name}.{secrets.token_hex(8)}{WRITING}"
        created = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with _named(path.with_name(temporary), folder, temporary):
            handle = os.open(temporary, created, 0o666 if mode is None else mode, dir_fd=folder)
        try:
            with _stream(path.with_name(temporary), "wb", buffering, lambda _path, _flags: handle) as out:
                if mode is not None:
                    os.fchmod(handle, mode)
                yield out
                out.flush()
                if durable:
                    os.fsync(handle)
            with _named(path, folder, name):
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            raise
        if durable:
            os.fsync(folder)


def make_folders(path: Path, place: Path) -> None:
    """Make a folder beneath a place, the place itself, and what is missing above it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    parts = path.relative_to(place).parts
    for count in range(len(parts) + 1):
        part = place.joinpath(*parts[:count])
        with _holder(part, place) as (folder, name), _named(part, folder, name):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            os.close(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder))


def look(path: Path, place: Path) -> os.stat_result | None:
    """What lies under a name, links not followed; None for nothing, and for what only a link leads to."""
    try:
        with _holder(path, place) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError, Refusal):
        return None


def is_file(path: Path, place: Path) -> bool:
    """Whether a regular file lies under a name, links not followed."""
    seen = look(path, place)
    return seen is not None and stat.S_ISREG(seen.st_mode)


def is_folder(path: Path, place: Path) -> bool:
    """Whether a folder lies under a name, links not followed."""
    seen = look(path, place)
    return seen is not None and stat.S_ISDIR(seen.st_mode)


def all_in(place: Path) -> Iterator[tuple[Path, bool]]:
    """Everything beneath a place, each with whether it is a folder, a folder after what lies in it.

    A link is no folder. A place that is not there, or is a link, holds nothing.
    """
    for folder, folders, files in os.walk(place, topdown=False) if not place.is_symlink() else ():
        for name in (*files, *folders):
            path = Path(folder, name)
            yield path, name in folders and not path.is_symlink()


def remove(path: Path, place: Path) -> None:
    """Remove a file, or a link itself; nothing there is as good."""
    with contextlib.suppress(FileNotFoundError), _holder(path, place) as (folder, name), _named(path, folder, name):
        os.unlink(name, dir_fd=folder)


def remove_folder(path: Path, place: Path) -> None:
    """Remove an empty folder. Raises OSError where it is not empty."""
    with _holder(path, place) as (folder, name), _named(path, folder, name):
        os.rmdir(name, dir_fd=folder)


def remove_tree(path: Path, place: Path) -> None:
    """Remove a folder and what lies in it; nothing there is as good. A link in it goes, what it leads to stays.

    Raises Refusal where a link lies in the folder's place.
    """
    with contextlib.suppress(FileNotFoundError), _holder(path, place) as (folder, name), _named(path, folder, name):
        os.close(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder))
        for _, folders, files, inside in os.fwalk(name, topdown=False, onerror=_stop, dir_fd=folder):
            for inner in files:
                os.unlink(inner, dir_fd=inside)
            for inner in folders:
                if stat.S_ISLNK(os.stat(inner, dir_fd=inside, follow_symlinks=False).st_mode):
                    os.unlink(inner, dir_fd=inside)
                else:
                    os.rmdir(inner, dir_fd=inside)
        os.rmdir(name, dir_fd=folder)


def rename(path: Path, place: Path, target: Path, target_place: Path | None = None) -> None:
    """Give a file or folder another name, on the same file system; a file takes the place of one that is there."""
    to = _holder(target, target_place or place)
    with _holder(path, place) as (folder, name), to as (other, new), _named(path, folder, name):
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=other)


def refuse_writers(folder: Path) -> None:
    """Refuse a folder that users other than root and the caller may write to, or could exchange from above.

    Missing folders will be created by us, in the last one that exists. /tmp is refused, but not a folder of ours in it:
    its sticky bit keeps other users from renaming that folder.
    """
    ours = (0, os.geteuid())
    at, open_to_all = Path("/"), False
    todo = list(reversed(folder.absolute().parts[1:]))
    links = 0
    _refuse_writers(folder, at, at.lstat(), ours)
    while todo:
        part = todo.pop()
        if part == "..":
            at = at.parent
            continue
        try:
            seen = (at / part).lstat()
        except FileNotFoundError:
            break
        if open_to_all and seen.st_uid not in ours:
            break
        if stat.S_ISLNK(seen.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            leads = (at / part).readlink()
            at = Path("/") if leads.is_absolute() else at
            todo += reversed([inner for inner in leads.parts if inner != "/"])
            # A user who could create this link could put anything here; its owner was checked above.
            continue
        at, open_to_all = at / part, False
        if stat.S_ISDIR(seen.st_mode):
            open_to_all = bool(seen.st_mode & stat.S_ISVTX and seen.st_mode & stat.S_IWOTH and seen.st_uid in ours)
            if not open_to_all:
                _refuse_writers(folder, at, seen, ours)
    if open_to_all:
        raise _writers(folder, at, "everybody")


def _refuse_writers(folder: Path, at: Path, seen: os.stat_result, ours: tuple[int, int]) -> None:
    if seen.st_uid not in ours:
        raise _writers(folder, at, f"user {seen.st_uid}")
    if seen.st_mode & stat.S_IWOTH:
        raise _writers(folder, at, "everybody")
    if seen.st_mode & stat.S_IWGRP and seen.st_gid not in (0, os.getegid()):
        raise _writers(folder, at, f"group {seen.st_gid}")


def _writers(folder: Path, at: Path, who: str) -> Refusal:
    return Refusal(
        "others_may_write",
        f"{at} can be written by {who}, who could put anything in the place of {folder}. Use a folder that only root "
        f"writes to, or make it one: chown root:root {at}; chmod go-w {at}",
    )


def _stop(error: OSError) -> NoReturn:
    raise error


@contextlib.contextmanager
def _holder(path: Path, place: Path | None) -> Iterator[tuple[int, str]]:
    """The folder that a path lies in, as a descriptor, and the path's name there."""
    place = path if place is None else place
    if ".." in path.parts or place not in (path, *path.parents):
        raise Refusal("path_leads_out", f"{path} is not in {place}, where it has to be. Correct what names it")
    parts = (place.name, *path.relative_to(place).parts)
    at = place.parent
    handle = os.open(at, _FOLDER)
    try:
        for part in parts[:-1]:
            at = at / part
            with _named(at, handle, part):
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle, parts[-1]
    finally:
        os.close(handle)


@contextlib.contextmanager
def _named(path: Path, folder: int, name: str) -> Iterator[None]:
    """Have an error name the whole path, and refuse a link as one: systems have several errors for it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            with contextlib.suppress(OSError):
                kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                if stat.S_ISLNK(kind):
                    raise Refusal(
                        "link_in_the_way",
                        f"{path} is a link, and links are not followed there. Look who made it, remove it, and run "
                        "this again",
                    ) from error
                if not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
                    raise _not_regular(path) from error
        error.filename = str(path)
        raise


def _linked(path: Path) -> int:
    """A regular file for reading, links followed. Anything else is looked at and not opened: a device may act on it."""
    seen = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(seen).st_mode):
            raise _not_regular(path)
        return os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(seen)


def _opened(folder: int, name: str, path: Path, flags: int) -> int:
    with _named(path, folder, name):
        handle = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=folder)
    return _regular(handle, path)


def _stream(path: Path, mode: str, buffering: int, opener: Callable[[str, int], int]) -> BinaryIO:
    """A file that is opened otherwise, under its name."""
    return cast("BinaryIO", open(path, mode, buffering, opener=opener))


def _regular(handle: int, path: Path) -> int:
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise _not_regular(path)


def _not_regular(path: Path) -> Refusal:
    return Refusal("not_a_regular_file", f"{path} is not a regular file; remove it, or fetch the model again")
