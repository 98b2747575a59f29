"""What a report has in place of what could not be read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...base.documents import Damaged
from ...base.printable import printable
from ...base.refusal import Refusal
from .. import documents
from .in_time import in_time

Name = TypeVar("Name")
# Longer than hl-smi takes for the cards of a node, and the headers of the largest model on a slow disk.
SECONDS = 60.0


def answers(reads: Mapping[Name, Callable[[], dict[str, Any]]]) -> dict[Name, dict[str, Any]]:
    """Return what functions read, all at once; of one that cannot, or does not end, why, and for a refusal its id."""
    found: dict[Name, dict[str, Any]] = in_time({name: partial(_answer, read) for name, read in reads.items()}, SECONDS)
    return {name: found[name] if name in found else _late(name) for name in reads}


def _late(name: object) -> dict[str, Any]:
    """Return the entry of a part, or of a path, that was not read in time."""
    what = name[-1] if isinstance(name, tuple) else name
    refusal = Refusal(
        "not_read_in_time",
        f"Reading {what} took longer than {SECONDS:g} seconds, or its process was killed. Check whether the file "
        "system there, or the driver of the cards, still answers (findmnt, journalctl --dmesg), then run again.",
    )
    return {"error": str(refusal), "refused_id": refusal.id}


def _answer(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            return read()
    except SystemExit:
        # As fail_json of a module ends it.
        return {"error": printable(json.loads(printed.getvalue())["msg"])}
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
