"""Measure how fast a disk gives the files of a folder, past the kernel's cache."""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from pathlib import Path

from ..base.refusal import Refusal
from . import beneath

# One read, and all of them. Large enough for a disk that reads ahead, or that is many disks.
PIECE = 16 * 1024**2
PIECES = 32
SECONDS = 2.0


def measured(files: list[Path], folder: Path) -> int:
    """Return bytes a second of the largest of the files, which lie in a folder of weights; 0 if it cannot be measured.

    It reads at most PIECES pieces, spread over the file, for about SECONDS. A file system without direct access
    (O_DIRECT) cannot be measured: its files may be in the cache.
    """
    try:
        largest = max(files, key=lambda file: file.stat().st_size, default=None)
        if largest is None:
            return 0
        with beneath.open_linked(largest, beneath.within(folder), buffering=0) as stream:
            handle = stream.fileno()
            fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_DIRECT)
            return _read(handle, os.fstat(handle).st_size)
    except (OSError, Refusal):
        return 0


def _read(handle: int, size: int) -> int:
    whole = size // PIECE
    step = max(1, whole // PIECES)
    # Direct access needs memory that begins at a page.
    with mmap.mmap(-1, PIECE) as piece:
        begin, count = time.monotonic(), 0
        for place in range(0, whole, step):
            count += os.preadv(handle, [piece], place * PIECE)
            if time.monotonic() - begin > SECONDS:
                break
        took = time.monotonic() - begin
    return int(count / took) if count and took else 0
