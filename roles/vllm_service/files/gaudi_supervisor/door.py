"""The door of an instance: a file that tells its guard to let no new request in."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .systemd import say


class Door:
    """Open or closed. The guard sees the directory inside the container, read-only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._closed = directory / "closed"

    def open(self) -> None:
        """Let requests in."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._closed.unlink()

    def close(self) -> None:
        """Refuse new requests; where that cannot be written they are cut later, which is said."""
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            self._closed.touch(mode=0o600)
        except OSError as failed:
            say(f"{self._closed} cannot be written ({failed.strerror}): new requests are still let in.", 4)
