"""What this process has read of its program and of the library, as digests."""

from __future__ import annotations

from pathlib import Path

import gaudi
from gaudi.node.programs import library_digest, supervisor_digest


def _on_disk() -> dict[str, str]:
    return {
        "library": library_digest(Path(gaudi.__file__).resolve().parent),
        "program": supervisor_digest(Path(__file__).resolve().parents[1]),
    }


_BEFORE = _on_disk()


def digests() -> dict[str, str]:
    """Both by name; to be called once everything is imported.

    Empty where the files were replaced while they were read: no digest stands for half of each set, and a run that
    compares has the supervisor read them again. The files may have changed since, and changed back.
    """
    now = _on_disk()
    return {part: digest if now[part] == digest else "" for part, digest in _BEFORE.items()}
