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
    """Three of them: the directory of the instance's state, a file in it, and the directory of its plan.

    A directory can be locked on a full or read-only file system, too, and cannot be replaced by another file. The file
    is what supervisors of earlier releases lock. A mount over the state hides the first two, but not the third: if that
    were hidden, there would be no plan to run.
    """

    def __init__(self, state: Path, plan: Path) -> None:
        """Take all, or none. Raises Held where another process has one of them, and OSError."""
        self._held: list[int] = []
        try:
            self._lock(state, os.O_RDONLY | os.O_DIRECTORY)
            self._lock_file(state / "lock")
            self._lock_plan(plan)
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

    def _lock_plan(self, path: Path) -> None:
        """Whatever is wrong with the directory, that of the state is locked already."""
        try:
            self._lock(path, os.O_RDONLY | os.O_DIRECTORY)
        except Held:
            raise
        except (FileNotFoundError, NotADirectoryError):
            # Whoever reads the plan says so.
            return
        except OSError as failed:
            said = f"{path} cannot be locked ({failed.strerror})."
            say(f"{said} The directory of the state is, which does as long as nothing is mounted over it.", 4)

    def close(self) -> None:
        """Let go."""
        while self._held:
            os.close(self._held.pop())
