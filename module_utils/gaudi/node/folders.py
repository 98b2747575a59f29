"""Sizes of files, also in folders that another node writes to."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection
from pathlib import Path

from . import beneath


def revalidate_directory(*folders: Path) -> None:
    """Make a network file system read folders from its server again; a folder that does not exist is skipped.

    NFS caches directory attributes for 30 to 60 s, and caches that a name does not exist as well (acdirmin and
    acdirmax in nfs(5)). Opening the folder revalidates the cache.
    """
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.scandir(folder).close()


def size_of(path: Path, place: Path) -> int | None:
    """Bytes of a regular file beneath a place (see beneath); None for anything else, or nothing.

    Looked at once, because a fetch may move the file meanwhile.
    """
    seen = beneath.look(path, place)
    return seen.st_size if seen is not None and stat.S_ISREG(seen.st_mode) else None


def sizes_in(folder: Path, names: Collection[str]) -> dict[str, int | None]:
    """Bytes by name of the files in a folder, None for what is not a regular file."""
    revalidate_directory(*{(folder / name).parent for name in names})
    return {name: size_of(folder / name, folder) for name in names}
