"""The record on disk, and the check of every byte against it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path

from gaudi.base.refusal import Refusal
from gaudi.node import files, folders
from gaudi.weights import record

BLOCK = 1024 * 1024  # bytes read at once


def load(folder: Path) -> record.Manifest | None:
    """The record of a folder, None without one; raises Refusal when it is damaged."""
    path = folder / record.MANIFEST
    folders.revalidate_directory(path.parent)
    try:
        return record.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Refusal(
            "record_damaged", f"{path} is damaged ({error}); restore it, or remove {folder} and fetch it again"
        ) from error


def write(path: Path, text: str) -> None:
    """Write a record durably, in one step, and the folder it lies in."""
    path.parent.mkdir(exist_ok=True)
    files.write_text(path, text)


def wrong_sizes(folder: Path, manifest: record.Manifest) -> list[str]:
    """Names of files that are missing or have another size: the look that takes under a second."""
    return record.wrong_sizes(manifest.sizes, folders.sizes_in(folder, manifest.names))


def known_wrong(folder: Path, manifest: record.Manifest) -> list[str]:
    """Names of files that have a wrong size, or were found damaged when every byte was last read."""
    try:
        found = json.loads((folder / record.VERIFIED).read_text(encoding="utf-8"))["wrong"]
    except FileNotFoundError:
        found = []
    return sorted({*wrong_sizes(folder, manifest), *found})


class Arrived:
    """Files of a staging folder that were checked when they arrived; whoever continues need not read them again.

    An entry counts as long as the file has the size and the time of its last change it had then.
    """

    def __init__(self, staging: Path) -> None:
        self.staging = staging
        self.lock = threading.Lock()
        self.known: dict[str, tuple[int, int, str]] = {}
        try:
            lines = (staging / record.ARRIVED).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            lines = []
        for line in lines:
            # The last one may have been cut off in its middle; its file is read again.
            with contextlib.suppress(ValueError):
                name, size, changed, sha256 = json.loads(line)
                self.known[name] = (size, changed, sha256)

    def has(self, name: str, sha256: str | None) -> bool:
        """Whether a file is there whole, with the checksum a source states."""
        if sha256 is None or name not in self.known or folders.size_of(self.staging / name) is None:
            return False
        seen = (self.staging / name).stat()
        return self.known[name] == (seen.st_size, seen.st_mtime_ns, sha256)

    def add(self, name: str, sha256: str) -> None:
        """Note a file that has been written out to the disk and checked."""
        seen = (self.staging / name).stat()
        with self.lock, (self.staging / record.ARRIVED).open("a", encoding="utf-8") as out:
            # What a cut-off line left behind must not take this one with it.
            out.write("\n" + json.dumps([name, seen.st_size, seen.st_mtime_ns, sha256]) + "\n")


def sha256_of(path: Path, advance: Callable[[int], None]) -> str:
    """SHA-256 of a file's bytes; advance hears of every block."""
    digest = hashlib.sha256()
    buffer = bytearray(BLOCK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            digest.update(view[:count])
            advance(count)
    return digest.hexdigest()
