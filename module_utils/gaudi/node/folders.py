"""What lies in folders: sizes of files, also where another node writes to the same folders.

Also installed on nodes as gaudi_weights/folders.py, so it imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection
from pathlib import Path


def ask_anew(*folders: Path) -> None:
    """Have a network file system ask its server for what is in folders; those that are not there are left out.

    NFS believes for 30 to 60 s what it saw of a folder last, also that a name is not there (acdirmin and acdirmax in
    nfs(5)). To open the folder makes it ask.
    """
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.scandir(folder).close()


def size_of(path: Path) -> int | None:
    """Bytes of a regular file, None for anything else or nothing; in one look, since a fetch moves files meanwhile."""
    try:
        seen = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen.st_size if stat.S_ISREG(seen.st_mode) else None


def sizes_in(folder: Path, names: Collection[str]) -> dict[str, int | None]:
    """Bytes by name of the files in a folder, None for what is not a regular file."""
    ask_anew(*{(folder / name).parent for name in names})
    return {name: size_of(folder / name) for name in names}
