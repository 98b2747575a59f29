"""What makes a second supervisor of an instance impossible; the kernel lets go when the first ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gaudi.node.documents import make_room
from gaudi.node.files import holder

from .systemd import say


class Held(BlockingIOError):
    """Another process has one of the locks; its text says which lock, and which process."""


class Locks:
    """Two of them: the directory of the instance's state, and a file in it.

    The directory is there on a file system that is full or read-only, too, and no file in it can be put in its place.
    The file is what supervisors of earlier releases take.
    """

    def __init__(self, directory: Path) -> None:
        """Take both, or none. Raises Held where another process has one of them, and OSError."""
        self._held: list[int] = []
        try:
            self._lock(directory, os.O_RDONLY | os.O_DIRECTORY)
            self._lock_file(directory / "lock")
        except OSError:
            self.close()
            raise

    def _lock(self, path: Path, flags: int) -> None:
        self._held.append(os.open(path, flags | os.O_CLOEXEC, 0o600))
        try:
            fcntl.flock(self._held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise Held(f"{path} is locked by {holder(self._held[-1])}") from taken

    def _lock_file(self, path: Path) -> None:
        """Whatever is wrong with the file, the directory is locked already."""
        try:
            aside = make_room(path)
            if aside is not None:
                say(f"{path} was a directory, which is now {aside}.", 4)
            # To read, which a read-only file system lets; a pipe is opened at once.
            self._lock(path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK)
        except Held:
            raise
        except OSError as failed:
            say(f"{path} cannot be locked ({failed.strerror}). Its directory is, which does as well.", 4)

    def close(self) -> None:
        """Let go."""
        while self._held:
            os.close(self._held.pop())
