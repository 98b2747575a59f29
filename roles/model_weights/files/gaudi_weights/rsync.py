"""Files from another node of the site: one call of rsync, and what it means when it fails.

Python 3.9 and its standard library. The role fp8_calibration's program uses it, too.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gaudi.base.refusal import Refusal
from gaudi.node import beneath, folders
from gaudi.weights import record

INSPECT_EVERY = 1.0  # seconds between two measurements of the folder that a peer writes to
# Beside the files that are asked for: bytes, such as of the sign of life of a node, and temporary files.
SMALL, FEW = 1 << 20, 64
LONGEST_LINE = 1 << 13  # bytes; Linux has paths of 4096
SILENCE = 60  # seconds without a byte after which the peer counts as gone
NO_ANSWER = 15  # seconds for the first answer
UNREACHED = (10, 30, 35)  # rsync's status for sockets and timeouts
# Its status when a file vanished between the list and the transfer, such as the sign of life of a node that has just
# published its folder. If a vanished file is needed, the check finds it missing.
VANISHED = 24
# What its daemon says (3.2 and 3.5) when the folder of a module is not there, with and without "use chroot".
FOLDER_GONE = ("@ERROR: chroot failed", "@ERROR: chdir failed")
# What a peer offers: a finished folder, or one that still arrives. Of the latter it offers the files it has checked.
WHOLE, ARRIVING = "weights", "arriving"


class MissingPeerFolder(Exception):
    """The peer has no such folder, or has it no more. The text is one sentence for a person."""


@dataclass(frozen=True)
class Peer:
    """The node that gives: its name for people, rsync's address of it, and the file the password lies in."""

    name: str
    address: str  # rsync://USER@HOST:PORT
    password_file: Path

    @property
    def where(self) -> str:
        """HOST:PORT."""
        return self.address.split("/")[2].rpartition("@")[2]


def direct() -> dict[str, str]:
    """The environment of rsync: without a proxy, which is for hosts outside the site."""
    return {**{key: text for key, text in os.environ.items() if not key.upper().endswith("_PROXY")}, "LC_ALL": "C"}


@dataclass(frozen=True)
class Limit:
    """What a folder may hold while a peer writes to it. largest: bytes of one file; total: bytes of all files."""

    largest: int
    total: int
    entries: int  # files and folders

    @classmethod
    def of(cls, folder: Path, names: Iterable[str], largest: int, total: int) -> Limit:
        """Allow some files beside what the folder holds already. largest and total: bytes of these files."""
        held, entries = _content(folder)
        files = set(names)
        asked = len(files.union(*(record.folders_of(name) for name in files)))
        return cls(max(largest, SMALL), held + total + SMALL, entries + asked + FEW)

    def exceeded(self, folder: Path) -> bool:
        """Whether the folder holds more."""
        held, entries = _content(folder)
        return held > self.total or entries > self.entries


def _content(folder: Path) -> tuple[int, int]:
    """Bytes of all files in a folder, and how many files and folders it has."""
    sizes = [folders.size_of(path, folder) or 0 for path, _ in beneath.all_in(folder)]
    return sum(sizes), len(sizes)


def receive(
    peer: Peer,
    folder: Path,
    what: str,
    options: Iterable[str],
    names: Iterable[str],
    limit: Limit,
    module: str = WHOLE,
    heard: Callable[[str], None] = lambda _name: None,
) -> None:
    """Have rsync copy files of a peer into a folder.

    what: its name for people; names: the files that are asked for, none of which rsync takes as a folder; heard is told
    the name of each file that has come and that rsync does not touch any more. A peer decides what it sends: rsync is
    stopped when the folder exceeds the limit, and the folder is removed.
    Raises MissingPeerFolder, and Refusal with rsync's own words.
    """
    command = [
        *("rsync", "--times", "--8-bit-output", f"--timeout={SILENCE}", f"--contimeout={NO_ANSWER}"),
        *("--files-from=-", "--from0", f"--max-size={limit.largest}"),
        # With the bytes that were sent in it, a line is written when its file is there, not when it begins.
        *("--out-format=%b %n", f"--password-file={peer.password_file}", *options),
        *(f"{peer.address}/{module}/", f"{folder}/"),
    ]
    with tempfile.TemporaryFile() as asked:
        asked.write(b"".join(os.fsencode(name) + b"\0" for name in names))
        asked.seek(0)
        with (
            subprocess.Popen(command, stdin=asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=direct()) as ran,
            # rsync's processes end each other (cleanup.c).
            limited(folder, limit, ran.terminate) as exceeded,
            beginning(ran.stderr) as said,
        ):
            _tell_files(ran.stdout, heard)
    if exceeded.is_set() or limit.exceeded(folder):
        beneath.remove_tree(folder, folder)
        raise Refusal(
            "peer_sends_too_much",
            f"{peer.name} sent more than its record of {what} has, and was stopped. What it sent is removed. Find out "
            "what runs on that node",
        )
    words = " ".join(bytes(said).decode(errors="replace").split())
    if words.startswith(FOLDER_GONE):
        raise MissingPeerFolder(f"{peer.name} has {what} no more (rsync: {words[:300]}). Run this again")
    if ran.returncode not in (0, VANISHED):
        remedy = f". Nodes of a site must reach each other at {peer.where}" if ran.returncode in UNREACHED else ""
        raise Refusal(
            "rsync_failed",
            f"{peer.name} did not give {what} (rsync, status {ran.returncode}: {words[:300]}){remedy}",
        )


def _tell_files(stream: IO[bytes] | None, heard: Callable[[str], None]) -> None:
    """Read rsync's lines, and tell which files are complete."""
    last = ""
    # The peer can send text as well, also without an end of its line.
    for line in iter(lambda: stream.readline(LONGEST_LINE) if stream else b"", b""):
        name = os.fsdecode(line.rstrip(b"\n")).partition(" ")[2]
        # rsync sets the times of a file after its line (receiver.c: log_item before finish_transfer), and ends with
        # status 23 if it is gone by then. Lines of folders come from another process, at any time.
        if not name.endswith("/"):
            if last:
                heard(last)
            last = name
    if last:
        heard(last)


@contextmanager
def limited(folder: Path, limit: Limit, stop: Callable[[], None]) -> Iterator[threading.Event]:
    """Stop what writes to a folder when the folder exceeds its limit; the event tells that it was stopped."""
    over, exceeded = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(INSPECT_EVERY):
            if limit.exceeded(folder):
                exceeded.set()
                stop()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield exceeded
    finally:
        over.set()
        watcher.join()


@contextmanager
def beginning(stream: IO[bytes] | None) -> Iterator[bytearray]:
    """Read a stream to its end, and keep the beginning. A peer can send text without end."""
    kept = bytearray()

    def read() -> None:
        for part in iter(lambda: stream.read1(LONGEST_LINE) if stream else b"", b""):  # type: ignore[attr-defined]
            kept.extend(part[: LONGEST_LINE - len(kept)])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield kept
    finally:
        reader.join()
