"""Sizes of files and free space, also in folders that another node writes to."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from ..base.recipes import CARRIED, PARTNERS, is_keyed
from ..base.units import human_bytes
from ..base.values import INSTANCE
from ..weights.record import STAGING_SUFFIX
from . import beneath


def revalidate_directory(*folders: Path) -> None:
    """Make a network file system reread folders from its server; missing folders are skipped.

    NFS caches directory attributes for 30 to 60 s, including the absence of a name (acdirmin and acdirmax in nfs(5)).
    Opening the folder revalidates the cache.
    """
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.scandir(folder).close()


def size_of(path: Path, place: Path) -> int | None:
    """Return the bytes of a regular file beneath a place (see beneath); None for anything else.

    It is examined only once, because a fetch may move the file meanwhile.
    """
    seen = beneath.look(path, place)
    return seen.st_size if seen is not None and stat.S_ISREG(seen.st_mode) else None


def no_room(path: Path, wanted: int) -> str:
    """Say why root cannot write so many bytes to a file, which may be missing; "" if it can."""
    here = next(folder for folder in path.parents if folder.exists())
    seen = os.statvfs(here)
    free = seen.f_bfree * seen.f_frsize
    # Some file systems have no fixed number of inodes, and report 0.
    if seen.f_flag & os.ST_RDONLY:
        what = "is read-only"
    elif free < wanted:
        what = f"has {human_bytes(free)} free, and {human_bytes(wanted)} are needed"
    elif seen.f_files and not seen.f_ffree:
        what = "has no room for one more file (df -i)"
    else:
        return ""
    return f"{path} cannot be written: the file system of {here} {what}"


def _there(path: Path) -> Path:
    """Return the path, or its nearest existing parent folder."""
    return next(each for each in (path, *path.parents) if each.exists())


def mount_of(path: Path) -> Path:
    """The mount point of the file system that a path is on, or will be."""
    mount = _there(path).resolve()
    while not mount.is_mount():
        mount = mount.parent
    return mount


def space_at(path: Path) -> tuple[str, int]:
    """The mount point of the file system that a path is on, or will be, and its bytes free for root's programs."""
    return str(mount_of(path)), shutil.disk_usage(_there(path)).free


def users_may_enter(folder: Path) -> bool:
    """Whether users other than root get to what is in a folder, should its own mode let them; links are followed.

    Missing folders above it are made by us, for root alone.
    """
    above = Path(os.path.realpath(folder)).parent
    return above.is_dir() and not any(map(_closed, (above, *above.parents)))


def _closed(folder: Path) -> bool:
    seen = folder.stat()
    group = stat.S_IXGRP if seen.st_gid or beneath.has_acl(folder) else 0
    return seen.st_uid == 0 and not seen.st_mode & (stat.S_IXOTH | group)


def holds_anything(folder: str) -> bool:
    """Whether a directory is there, and not empty."""
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def sizes_in(folder: Path, names: Collection[str]) -> dict[str, int | None]:
    """Bytes by name of the files in a folder, None for what is not a regular file."""
    revalidate_directory(*{(folder / name).parent for name in names})
    return {name: size_of(folder / name, folder) for name in names}


def of_instances(place: Path) -> list[Path]:
    """Return folders with valid names of instances, sorted; none if the place is missing."""
    found = sorted(place.iterdir()) if place.is_dir() else []
    return [path for path in found if path.is_dir() and INSTANCE.fullmatch(path.name)]


def filled_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield non-empty regular files in a folder and its subfolders; links are not followed."""
    for path, is_folder in beneath.all_in(folder):
        seen = None if is_folder else beneath.look(path, folder)
        if seen is not None and stat.S_ISREG(seen.st_mode) and seen.st_size:
            yield path, seen


def measured(folder: Path) -> tuple[int, int]:
    """Return the number and bytes of non-empty files in a folder; zeros if it is missing."""
    sizes = [seen.st_size for _, seen in filled_files(folder)]
    return len(sizes), sum(sizes)


def recipe_givers(folder: Path) -> list[Path]:
    """Return folders of other instances with recipes of the same key, most files first."""
    if not folder.parent.is_dir():
        return []
    others = [path for path in folder.parent.iterdir() if path.name != folder.name and path.name[:1] != "."]
    full = {path: measured(path)[0] for path in sorted(others) if beneath.is_folder(path, folder.parent)}
    return sorted((path for path in full if full[path]), key=lambda path: -full[path])


def recipes_to_be_had(folder: str) -> bool:
    """Whether a start would find recipes: in its own folder, or in another instance's folder of the same key."""
    return holds_anything(folder) or (is_keyed(folder) and bool(recipe_givers(Path(folder))))


def on_its_way(key: str) -> bool:
    """Whether a folder is in transfer from or to another node, so that it is not the folder of a key."""
    return key.endswith((CARRIED, CARRIED + STAGING_SUFFIX))


def keys_with_recipes(place: Path) -> dict[str, str]:
    """Return keys with compiled recipes on the node, each with one instance that has them.

    place: the folder of all keys. For each folder it stops at the first recipe file.
    """
    found: dict[str, str] = {}
    for key in sorted(place.iterdir()) if place.is_dir() else ():
        for folder in () if on_its_way(key.name) else of_instances(key):
            if any(path.suffix in PARTNERS for path, _ in filled_files(folder)):
                found.setdefault(key.name, folder.name)
    return found
