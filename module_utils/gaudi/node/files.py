"""Files that appear whole, and renames that survive a power cut."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .beneath import replacing


class NotWritten(OSError):
    """A file that could not be written; its text is the sentence that a person is told."""

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.filename} cannot be written ({self.strerror}), and is as it was. Mend that, then run this again."


def sync_folder(folder: Path) -> None:
    """Make a rename inside the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str, durable: bool = True, mode: int | None = None, place: Path | None = None) -> None:
    """Replace a file in one step; a reader sees the old text or the new, never half.

    durable: whether it has to survive a power cut. mode: rights of the file; without it those that the umask leaves.
    place: the folder beneath which no link is followed (see beneath); without one, links to the file's folder are.
    Raises NotWritten, such as on a full file system, and Refusal as beneath does.
    """
    try:
        with replacing(path, place, mode, durable) as out:
            out.write(text.encode("utf-8"))
    except OSError as failed:
        raise NotWritten(failed.errno, failed.strerror, str(path)) from failed


def write_json(
    path: Path, content: Any, durable: bool = True, mode: int | None = None, place: Path | None = None
) -> None:
    """Replace a JSON file in one step, as write_text does."""
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    write_text(path, text, durable=durable, mode=mode, place=place)
