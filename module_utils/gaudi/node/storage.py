"""Check the file system of a directory before and after it fails."""

from __future__ import annotations

import os
from pathlib import Path

from ..base.refusal import Refusal
from ..weights import storage
from ..weights.storage import FileSystem

MOUNTINFO = Path("/proc/self/mountinfo")


def file_system(path: Path) -> FileSystem:
    """Return the file system of a path, which need not exist."""
    return storage.mount_of(MOUNTINFO.read_text(encoding="utf-8", errors="replace"), os.path.realpath(path))


def unwritable(folder: Path) -> Refusal | None:
    """Refuse a directory, or the one that it will be created in, if this process may not write to it.

    A server of a network file system is asked, as it would be for a write. Nothing is written.
    """
    at = folder
    while not os.path.lexists(at) and at != at.parent:
        at = at.parent
    if os.access(at, os.W_OK | os.X_OK):
        return None
    try:
        read_only = bool(os.statvfs(at).f_flag & os.ST_RDONLY)
    except OSError:
        read_only = False
    return storage.not_writable(str(at), file_system(at), read_only)


def owner_advice(path: Path) -> str:
    """Say how a directory becomes one that only root writes to."""
    return storage.owner_advice(str(path), file_system(path), os.access(path, os.W_OK))


def explained(error: OSError, path: Path, doing: str = storage.ACCESS) -> Refusal | None:
    """Explain an error at a path; None where its own text says it all."""
    return storage.fault(error.errno or 0, error.strerror or "", str(path), file_system(path), doing)
