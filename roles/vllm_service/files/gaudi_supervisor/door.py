"""The door of an instance: files that tell its guard to let no new request in, and who is its supervisor."""

from __future__ import annotations

import secrets
from pathlib import Path

from gaudi.base.documents import Damaged
from gaudi.base.paths import DOOR, PROBE
from gaudi.node.documents import make_room, read_text
from gaudi.node.files import write_text
from gaudi.serving.keys import digest_of

from .systemd import say


class Door:
    """Open or closed. The guard sees the directory inside the container, read-only."""

    def __init__(self, state: Path) -> None:
        """Take the directory of the instance's state."""
        self.directory = state / DOOR
        self._closed = self.directory / "closed"
        self._digest = self.directory / PROBE
        # The token itself, beside the door, where no server sees it: the role's verification and benchmarks use it as
        # well.
        self._token = state / PROBE

    def open(self) -> None:
        """Let requests in. An obstacle is reported; a guard without its directory cannot start."""
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            make_room(self._closed)
            self._closed.unlink(missing_ok=True)
        except OSError as failed:
            say(f"{failed.filename} cannot be made or removed ({failed.strerror}).", 4)

    def close(self) -> None:
        """Refuse new requests; if that cannot be written, requests will be cut off later, and the journal says so."""
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            self._closed.touch(mode=0o600)
        except OSError as failed:
            say(f"{self._closed} cannot be written ({failed.strerror}): new requests are still let in.", 4)

    def draw(self) -> str:
        """A token that the guard lets in from now on, and no other one. Raises OSError where it cannot be written."""
        token = secrets.token_urlsafe(32)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        for path, text in ((self._token, token), (self._digest, digest_of(token))):
            make_room(path)
            write_text(path, f"{text}\n", mode=0o600)
        return token

    def kept(self) -> str | None:
        """The token of the server that was started last; None where there is none. Raises Damaged."""
        token, digest = ((read_text(path) or "").strip() for path in (self._token, self._digest))
        return token if token and digest_of(token) == digest else None

    def drawn(self) -> str:
        """The token of the server that runs; another one where it is lost. Raises OSError as ``draw`` does."""
        try:
            return self.kept() or self.draw()
        except Damaged as damage:
            say(f"{damage}. It is written again.", 4)
            return self.draw()
