"""Files and folders: written in one step, read and checked, durable."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, BinaryIO

from gaudi.base.documents import Damaged
from gaudi.base.refusal import Refusal
from gaudi.node import beneath, documents

STATE_FOLDER = ".gaudi-serving"
PROVENANCE = "fp8.json"
COPIED_AT_ONCE = 1024 * 1024  # bytes


def open_in(folder: Path, name: str, buffering: int = -1) -> BinaryIO:
    """Open a file of a checkpoint. It may be a link to a file of the same folder."""
    return beneath.open_linked(folder / name, beneath.within(folder), buffering)


def read_json(path: Path, form: Any = dict, advice: str = "fetch the model again") -> dict[str, Any]:
    """A JSON object of a form (see documents.misfit) from a file; Refusal with the advice when it is none."""
    try:
        content: dict[str, Any] | None = documents.read_json(
            path, form, within=beneath.within(path.parent), of_model=True
        )
    except Damaged as damaged:
        raise Refusal("record_damaged", f"{damaged}; {advice}") from damaged
    if content is None:
        raise Refusal("not_there", f"{path} is not there; {advice}")
    return content


def copy_file(source: Path, target: Path, name: str) -> None:
    """Copy a file of one folder into another, in one step, durably."""
    beneath.make_folders((target / name).parent, target)
    with open_in(source, name) as original, beneath.replacing(target / name, target) as copy:
        shutil.copyfileobj(original, copy, COPIED_AT_ONCE)


def refuse_special(folder: Path, names: list[str]) -> None:
    """Refuse pipes and other special files: opening a pipe would wait for ever."""
    for name in names:
        if not (folder / name).is_file():
            raise Refusal(
                "not_a_regular_file", f"{folder / name} is not a regular file; remove it, or fetch the model again"
            )


def remove_unfinished(folder: Path) -> None:
    """Remove half-written shards and records of a run that ended."""
    for place in (folder, folder / STATE_FOLDER):
        for left_over in place.glob(f"*{beneath.WRITING}"):
            beneath.remove(left_over, folder)
