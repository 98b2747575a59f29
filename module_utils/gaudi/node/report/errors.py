"""What a report has in place of what could not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from ...base.documents import Damaged
from ...base.printable import printable
from ...base.refusal import Refusal
from .. import documents


def answer(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a function reads; where it cannot, why, and for a refusal its id."""
    try:
        return read()
    except Refusal as refusal:
        return {"error": str(refusal), "refused_id": refusal.id}
    except Damaged as damage:
        return {"error": f"{damage}."}
    except OSError as error:
        return {"error": printable(f"{error.filename} cannot be read: {error.strerror}.")}


def text(path: Path) -> dict[str, Any]:
    """Return the text of a file of ours, None where there is none, for a parser on the controller; or its damage."""
    try:
        return {"text": documents.read_text(path)}
    except Damaged as damage:
        return {"damage": damage.what}


def each(names: Iterable[str], read: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return what a function reads of each name; one that cannot be read does not end the others."""
    return {name: answer(partial(read, name)) for name in names}
