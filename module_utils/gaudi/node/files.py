"""Write files so that nobody sees half of one; programs and modules do it alike."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Replace a file in one rename.

    durable: it survives a power cut. What only a running program tells others need not, and is written twice a second.
    """
    temporary = path.with_name(path.name + ".writing")
    with temporary.open("w", encoding="utf-8") as out:
        out.write(text)
        if durable:
            out.flush()
            os.fsync(out.fileno())
    temporary.replace(path)
    if durable:
        sync_folder(path.parent)


def write_json(path: Path, content: Any, durable: bool = True) -> None:
    """Replace a JSON file in one rename; durable as in :func:`write_text`."""
    write_text(path, json.dumps(content), durable)


def sync_folder(folder: Path) -> None:
    """Make a rename inside a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
