"""The part ``files`` of a node's report: the text of files that requests name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...base.documents import LONGEST_FILE, Damaged
from ...base.refusal import Refusal
from .. import beneath, documents


def read(path: str) -> dict[str, Any]:
    """Return the text of a file of the option ``files``; None where there is none."""
    return {"text": read_file(path)}


def read_file(path: str) -> str | None:
    """The text of a file that a request names; None where there is none. Raises Refusal for what is no file of text.

    It may lie among weights that somebody brought. The server sees only its own folder, so it could not follow a link
    out of it either.
    """
    try:
        text = documents.read_text(Path(path), within=beneath.within(Path(path).parent))
    except Damaged as damage:
        raise Refusal("file_unreadable", f"{damage}. Put the file itself there, or correct the path.") from damage
    if text is not None and len(text) > LONGEST_FILE:
        raise Refusal(
            "file_too_large", f"{path} has more than {LONGEST_FILE} characters. Shorten it, or correct the path."
        )
    return text
