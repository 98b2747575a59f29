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
from typing import BinaryIO, cast

from ..base.refusal import Refusal
from . import storage

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_LINKS = 40  # the kernel's own limit
# Suffix of a file that is being written, until it gets its final name.
WRITING = ".writing"
_LOCK_MODE = 0o600
_MODES = ("rb", "r+b", "ab", "a+b", "xb")


def open_file(
    path: Path, place: Path | None, mode: str = "rb", buffering: int = -1, permissions: int = 0o666
) -> BinaryIO:
    """Open a regular file. mode: as for open(), except "w", which would empty a file that another user put there.

    permissions: of a file that is created, less those that the umask takes.

    Without a place, which is for reading only, links are followed. Raises Refusal for a link, a pipe and other special
    files, FileNotFoundError for a missing file.
    """
    if mode not in (_MODES if place is not None else _MODES[:1]):
        raise ValueError(f"{mode} is none of {', '.join(_MODES)}")
    if place is None:
        handle = _linked(path)
        return _stream(path, mode, buffering, lambda _path, _flags: handle)
    with _holder(path, place) as (folder, name):
        return _stream(path, mode, buffering, lambda _path, flags: _opened(folder, name, path, flags, permissions))


def open_lock(path: Path, place: Path) -> BinaryIO:
    """Open a file that is there to be locked, and create it where it is missing.

    Only its owner may open it, since whoever can open a file can lock it and so keep us waiting. Raises what open_file
    does.
    """
    stream = open_file(path, place, "ab", permissions=_LOCK_MODE)
    # An earlier release of this project made it readable for a moment. A file system that keeps no permissions refuses
    # this; the lock counts there all the same.
    with contextlib.suppress(OSError):
        os.fchmod(stream.fileno(), _LOCK_MODE)
    return stream


def open_linked(path: Path, within: Iterable[Path], buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading, possibly through a link, if the file itself is in one of the folders.

    within: folders without links in their paths, such as those of within(). Raises Refusal for a file elsewhere, and
    for a pipe and other special files.
    """
    stream = open_file(path, None, buffering=buffering)
    # Asked of the open file, so that a change of the link has no effect any more.
    real = Path(f"/proc/self/fd/{stream.fileno()}").readlink()
    if not any(real.is_relative_to(folder) for folder in within):
        stream.close()
        raise Refusal(
            "link_leads_out",
            f"{path} is a link to {real}, outside its folder, and is not read. Put the file itself there, or remove "
            "the link",
        )
    return stream


def within(folder: Path) -> list[Path]:
    """Return the folders to which links in a folder of weights may lead: the folder itself.

    A hub's cache stores the files of all revisions in "blobs", and a revision's folder in "snapshots" links to them, so
    "blobs" is allowed there too. If it is a link itself, no file has a real path below it.
    """
    real = folder.resolve()
    return [real, real.parents[1] / "blobs"] if real.parent.name == "snapshots" else [real]


@contextlib.contextmanager
def replacing(
    path: Path, place: Path | None = None, mode: int | None = None, durable: bool = True, buffering: int = -1
) -> Iterator[BinaryIO]:
    """Write a new file that replaces the old one when the block succeeds; a reader sees either the old or the new file.

    mode: permissions, by default from the umask. durable: whether it must survive a power cut. Without a place, links
    to the folder are followed, but no others.
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
    """Create a folder beneath a place, the place itself, and missing folders above it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    parts = path.relative_to(place).parts
    for count in range(len(parts) + 1):
        part = place.joinpath(*parts[:count])
        with _holder(part, place) as (folder, name), _named(part, folder, name):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            os.close(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder))


def look(path: Path, place: Path) -> os.stat_result | None:
    """Return the stat of a name without following links; None if it is missing, or reached only through a link."""
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
    """Yield everything beneath a place, with whether it is a folder; a folder comes after its content.

    A link is not a folder. A missing place, or a link in its place, is empty. Any depth is looked at, up to paths of
    the kernel's length.
    """
    real, waiting, found = place.parent.resolve() / place.name, [place], []
    while waiting:
        folder = waiting.pop()
        found.append(folder)
        for name, is_folder in _listed(folder, real / folder.relative_to(place)):
            if is_folder:
                waiting.append(folder / name)
            else:
                yield folder / name, False
    yield from ((folder, True) for folder in reversed(found[1:]))


def _listed(folder: Path, real: Path) -> list[tuple[str, bool]]:
    """Return the names in a folder, and which are folders; nothing if it cannot be read, or has another real path.

    It may have become a link since its name was read, or lie behind one.
    """
    with contextlib.suppress(OSError):
        handle = os.open(folder, _FOLDER | os.O_NOFOLLOW)
        try:
            if Path(f"/proc/self/fd/{handle}").readlink() == real:
                with os.scandir(handle) as entries:
                    return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(handle)
    return []


def remove(path: Path, place: Path) -> None:
    """Remove a file, or a link itself; a missing one is no error."""
    with contextlib.suppress(FileNotFoundError), _holder(path, place) as (folder, name), _named(path, folder, name):
        os.unlink(name, dir_fd=folder)


def remove_folder(path: Path, place: Path) -> None:
    """Remove an empty folder. Raises OSError where it is not empty."""
    with _holder(path, place) as (folder, name), _named(path, folder, name):
        os.rmdir(name, dir_fd=folder)


def remove_tree(path: Path, place: Path) -> None:
    """Remove a folder with its content; a missing one is no error. Links in it are removed, not followed.

    Raises Refusal if the folder itself is a link.
    """
    with contextlib.suppress(FileNotFoundError), _holder(path, place) as (folder, name), _named(path, folder, name):
        top = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=folder)


def _empty(top: int) -> None:
    """Remove what is in an open folder. What is deeper comes up first: no depth takes more descriptors or memory."""
    waiting = _without_files(top)
    while waiting:
        name = waiting.pop()
        handle = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=top)
        try:
            for inner in _without_files(handle):
                above = secrets.token_hex(16)
                os.rename(inner, above, src_dir_fd=handle, dst_dir_fd=top)
                waiting.append(above)
        finally:
            os.close(handle)
        os.rmdir(name, dir_fd=top)


def _without_files(handle: int) -> list[str]:
    """Remove what is no folder from an open folder, and return the names of the others."""
    with os.scandir(handle) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, folder in listed:
        if not folder:
            os.unlink(name, dir_fd=handle)
    return [name for name, folder in listed if folder]


def rename(path: Path, place: Path, target: Path, target_place: Path | None = None) -> None:
    """Rename a file or folder within a file system; a file replaces an existing one."""
    to = _holder(target, target_place or place)
    with _holder(path, place) as (folder, name), to as (other, new), _named(path, folder, name):
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=other)


def refuse_writers(folder: Path) -> None:
    """Refuse a folder that users other than root and the caller may write to, or could exchange from above.

    Missing folders will be created by us, in the last one that exists. /tmp is refused, but not a folder of ours in it:
    its sticky bit keeps other users from renaming that folder.
    """
    ours = (0, os.geteuid())
    at, passed = Path("/"), ""
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
        if passed and seen.st_uid not in ours:
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
        at, passed = at / part, ""
        if stat.S_ISDIR(seen.st_mode):
            # Its sticky bit keeps others from renaming what is ours in it.
            passed = _writing(at, seen) if seen.st_mode & stat.S_ISVTX and seen.st_uid in ours else ""
            if not passed:
                _refuse_writers(folder, at, seen, ours)
    if passed:
        raise _writers(folder, at, passed)


def refuse_writers_within(folder: Path) -> None:
    """Refuse a folder or file that users other than root and the caller may change, as refuse_writers does."""
    ours = (0, os.geteuid())
    refuse_writers(folder)
    for place in within(folder):
        for path in (place, *(inner for inner, _is_folder in all_in(place))):
            with contextlib.suppress(FileNotFoundError):
                seen = path.lstat()
                # Its mode lets everybody write to a link, and nobody can: its folder decides who replaces it.
                if not stat.S_ISLNK(seen.st_mode):
                    _refuse_writers(folder, path, seen, ours)


def refuse_file_writers(stream: BinaryIO, path: Path) -> None:
    """Refuse an open file that users other than root and the caller may write to; its folder is not checked."""
    seen = os.fstat(stream.fileno())
    who = _writing(path, seen) if seen.st_uid in (0, os.geteuid()) else f"user {seen.st_uid}"
    if who:
        raise Refusal(
            "others_may_write",
            f"{path} can be written by {who}, who could change it after its check. Make it a file that only root "
            f"writes to (chown root:root {path}; chmod go-w {path}), or use a copy of it that only root writes to.",
        )


def _refuse_writers(folder: Path, at: Path, seen: os.stat_result, ours: tuple[int, int]) -> None:
    if seen.st_uid not in ours:
        raise _writers(folder, at, f"user {seen.st_uid}")
    if who := _writing(at, seen):
        raise _writers(folder, at, who)


def _writing(at: Path, seen: os.stat_result) -> str:
    """Return who besides its owner may write to a path; "" if only the groups of root and of the caller may."""
    if seen.st_mode & stat.S_IWOTH:
        return "everybody"
    if not seen.st_mode & stat.S_IWGRP:
        return ""
    if has_acl(at):
        return "those whom its ACL names (getfacl)"
    return "" if seen.st_gid in (0, os.getegid()) else f"group {seen.st_gid}"


def has_acl(path: Path) -> bool:
    """Whether a POSIX ACL names further users or groups, acl(5): the bits of the group are its mask then."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:
        return False  # A file system without extended attributes has no ACL.


def _writers(folder: Path, at: Path, who: str) -> Refusal:
    return Refusal(
        "others_may_write",
        f"{at} can be written by {who}, who could put anything in the place of {folder}. {storage.owner_advice(at)}",
    )


@contextlib.contextmanager
def _holder(path: Path, place: Path | None) -> Iterator[tuple[int, str]]:
    """Open the folder of a path; yield its descriptor and the path's last name."""
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
    """Add the whole path to an error, and turn the different errors for a link into one refusal."""
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
    """Open a regular file for reading, following links. Other files are not opened: that may have effects."""
    seen = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(seen).st_mode):
            raise _not_regular(path)
        # A regular file makes nobody wait, but for a lease, fcntl(2), which the kernel takes from its holder.
        return os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(seen)


def _opened(folder: int, name: str, path: Path, flags: int, permissions: int) -> int:
    with _named(path, folder, name):
        try:
            handle = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, permissions, dir_fd=folder)
        except BlockingIOError:
            handle = _leased(folder, name, path, flags)
    return _regular(handle, path)


def _leased(folder: int, name: str, path: Path, flags: int) -> int:
    """Open a file on which another process has a lease, fcntl(2): the kernel takes it away while we wait."""
    seen = _regular(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), path)
    try:
        return os.open(f"/proc/self/fd/{seen}", flags & ~(os.O_CREAT | os.O_EXCL) | os.O_CLOEXEC)
    finally:
        os.close(seen)


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
