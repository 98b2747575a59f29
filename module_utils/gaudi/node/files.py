"""Files that appear whole, and renames that survive a power cut."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def sync_folder(folder: Path) -> None:
    """Make a rename inside the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str, durable: bool = True, mode: int | None = None) -> None:
    """Replace a file in one step; a reader sees the old text or the new, never half.

    durable: whether it has to survive a power cut. mode: rights of the file; without it those that the umask leaves.
    """
    temporary = path.with_name(path.name + ".writing")
    try:
        with temporary.open("w", encoding="utf-8") as out:
            if mode is not None:
                os.fchmod(out.fileno(), mode)
            out.write(text)
            if durable:
                out.flush()
                os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def write_json(path: Path, content: Any, durable: bool = True, mode: int | None = None) -> None:
    """Replace a JSON file in one step, as write_text does."""
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n", durable=durable, mode=mode)
