"""Files the role host_tuning writes: how they are known, and what keeps one from being written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

MARK = "# Written by gaudi-serving (role host_tuning)."
"""First line of every file of ours; a file of ours without it belongs to somebody else and is left alone."""


def obstacle(path: Path) -> str | None:
    """Say why a file of ours cannot be written or taken away here, or None when it can."""
    if path.is_dir():
        return f"{path} is a directory, where a file of this role is to be. Move it away, then run again."
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return f"{folder} is no directory, where {path} is to be. Move it away, then run again."
    # access() answers "no" to root only where the file system is read-only.
    if not os.access(folder, os.W_OK):
        return f"{folder} cannot be written, where {path} is to be. Mount it for writing, then run again."
    return None


def foreign(files: Mapping[str, str | None]) -> list[str]:
    """Say which files at our paths somebody else wrote. `files`: path and text, None where there is none."""
    return [
        f"{path} was not written by this role. Move it away, then run again."
        for path, text in files.items()
        if text is not None and not text.startswith(MARK)
    ]
