"""Build contexts: the files an image is made of, and the hash that names the image."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_HASH_DIGITS = 12
_IGNORED = {"__pycache__"}


@dataclass(frozen=True)
class ContextFile:
    """One file on its way into an image or a container."""

    content: bytes
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


Files = Mapping[str, ContextFile]


def text(content: str, mode: int = 0o644) -> ContextFile:
    """Make a file of root's from text."""
    return ContextFile(content.encode(), mode)


def tree(directory: Path, prefix: str = "") -> dict[str, ContextFile]:
    """Read a directory; of the permissions only "may be executed" is kept, as git does."""
    return {
        prefix + str(path.relative_to(directory)): ContextFile(
            path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not _IGNORED.intersection(path.parts) and path.suffix != ".pyc"
    }


def digest(files: Files, *inputs: str) -> str:
    """Name a build by all that goes into it: every file's path, mode and content, and other inputs.

    Each part goes in with its length, so that moving a byte from one part to the next is a change.
    """
    sha = hashlib.sha256()
    parts = [part for path in sorted(files) for part in (path, f"{files[path].mode:o}", files[path].content)]
    for part in [*parts, *inputs]:
        data = part.encode() if isinstance(part, str) else part
        sha.update(f"{len(data)}:".encode())
        sha.update(data)
    return sha.hexdigest()[:_HASH_DIGITS]


def archive(files: Files) -> bytes:
    """Pack files into a tar archive that depends on nothing but them (no clock, no user)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(files):
            file = files[path]
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(file.content), file.mode
            member.uid, member.gid = file.uid, file.gid
            tar.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()
