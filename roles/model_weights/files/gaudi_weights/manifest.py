"""The record on disk, and the check of every byte against it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

from gaudi.base.documents import Damaged
from gaudi.base.refusal import Refusal
from gaudi.node import beneath, documents, files, folders
from gaudi.weights import record

BLOCK = 1024 * 1024  # bytes read at once


def load(folder: Path) -> record.Manifest | None:
    """The record of a folder, None without one; raises Refusal when it is damaged."""
    path = folder / record.MANIFEST
    folders.revalidate_directory(path.parent)
    try:
        found: record.Manifest | None = documents.read(path, record.parse, place=folder)
    except Damaged as damage:
        raise Refusal(
            "record_damaged", f"{path} is damaged ({damage.what}); restore it, or remove {folder} and fetch it again"
        ) from damage
    return found


def write(path: Path, text: str, place: Path) -> None:
    """Write a record durably, in one step, and the folder it lies in; place is the model's folder."""
    beneath.make_folders(path.parent, place)
    files.write_text(path, text, place=place)


def wrong_sizes(folder: Path, manifest: record.Manifest) -> list[str]:
    """Names of files that are missing or have another size: the look that takes under a second."""
    return record.wrong_sizes(manifest.sizes, folders.sizes_in(folder, manifest.names))


def known_wrong(folder: Path, manifest: record.Manifest) -> list[str]:
    """Names of files that have a wrong size, or were found damaged when every byte was last read."""
    try:
        note = documents.read_json(folder / record.VERIFIED, record.VERIFICATION, place=folder)
    except Damaged:
        # What was found when every byte was read is not known any more.
        note = None
    return sorted({*wrong_sizes(folder, manifest), *(note["wrong"] if note else ())})


class ArrivedFiles:
    """Files of a staging folder that were checked when they arrived; a continued fetch need not read them again.

    An entry counts as long as the file has the size and the time of its last change it had then.
    """

    def __init__(self, staging: Path) -> None:
        self.staging = staging
        self.lock = threading.Lock()
        self.known: dict[str, tuple[int, int, str]] = {}
        try:
            lines = (documents.read_text(staging / record.ARRIVED, place=staging) or "").splitlines()
        except Damaged:
            lines = []
        for line in lines:
            # The last one may have been cut off in its middle; its file is read again.
            with contextlib.suppress(ValueError, TypeError):
                name, size, changed, sha256 = json.loads(line)
                self.known[name] = (size, changed, sha256)

    def has(self, name: str, sha256: str | None) -> bool:
        """Whether a file is there whole, with the checksum a source states."""
        seen = beneath.look(self.staging / name, self.staging)
        if sha256 is None or seen is None or not beneath.is_file(self.staging / name, self.staging):
            return False
        return self.known.get(name) == (seen.st_size, seen.st_mtime_ns, sha256)

    def add(self, name: str, sha256: str) -> None:
        """Note a file that has been written out to the disk and checked."""
        seen = beneath.look(self.staging / name, self.staging)
        if seen is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.staging / name))
        # What a cut-off line left behind must not take this one with it.
        line = "\n" + json.dumps([name, seen.st_size, seen.st_mtime_ns, sha256]) + "\n"
        with self.lock, beneath.open_file(self.staging / record.ARRIVED, self.staging, "ab") as out:
            out.write(line.encode("utf-8"))


def sha256_of(path: Path, place: Path, advance: Callable[[int], None]) -> str:
    """SHA-256 of the bytes of a file in a model's folder, place; advance hears of every block."""
    digest = hashlib.sha256()
    buffer = bytearray(BLOCK)
    view = memoryview(buffer)
    with beneath.open_file(path, place, buffering=0) as stream:
        while count := stream.readinto(buffer):  # type: ignore[attr-defined]
            digest.update(view[:count])
            advance(count)
    return digest.hexdigest()
