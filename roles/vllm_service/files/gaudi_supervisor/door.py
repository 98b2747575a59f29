"""The door of an instance: a file that tells its guard to let no new request in."""

from __future__ import annotations

from pathlib import Path

from gaudi.node.documents import make_room

from .systemd import say


class Door:
    """Open or closed. The guard sees the directory inside the container, read-only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._closed = directory / "closed"

    def open(self) -> None:
        """Let requests in. What stands in the way is said; a guard whose directory is not there cannot start."""
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            make_room(self._closed)
            self._closed.unlink(missing_ok=True)
        except OSError as failed:
            say(f"{failed.filename} cannot be made or removed ({failed.strerror}).", 4)

    def close(self) -> None:
        """Refuse new requests; where that cannot be written they are cut later, which is said."""
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            self._closed.touch(mode=0o600)
        except OSError as failed:
            say(f"{self._closed} cannot be written ({failed.strerror}): new requests are still let in.", 4)
