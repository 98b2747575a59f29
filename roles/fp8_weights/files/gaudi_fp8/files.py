"""Files and folders: written in one step, read and checked, durable."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gaudi.base.documents import Damaged
from gaudi.base.refusal import Refusal
from gaudi.node import documents
from gaudi.node.files import sync_folder

STATE_FOLDER = ".gaudi-serving"
PROVENANCE = "fp8.json"


@contextlib.contextmanager
def in_one_step(target: Path) -> Iterator[Path]:
    """Name of a temporary file, which becomes target when the block ends, and is removed when the block fails."""
    temporary = target.with_name(target.name + ".writing")
    try:
        yield temporary
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    sync_folder(target.parent)


def read_json(path: Path, form: Any = dict, advice: str = "fetch the model again") -> dict[str, Any]:
    """A JSON object of a form (see documents.misfit) from a file; Refusal with the advice when it is none."""
    try:
        content: dict[str, Any] | None = documents.read_json(path, form)
    except Damaged as damaged:
        raise Refusal("record_damaged", f"{damaged}; {advice}") from damaged
    if content is None:
        raise Refusal("not_there", f"{path} is not there; {advice}")
    return content


def copy_file(source: Path, target: Path) -> None:
    """Copy a file in one step, durably."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".writing")
    shutil.copyfile(source, temporary)
    with temporary.open("rb") as copy:
        os.fsync(copy.fileno())
    temporary.replace(target)


def refuse_special(folder: Path, names: list[str]) -> None:
    """Refuse pipes and other special files: opening a pipe would wait for ever."""
    for name in names:
        if not (folder / name).is_file():
            raise Refusal(
                "not_a_regular_file", f"{folder / name} is not a regular file; remove it, or fetch the model again"
            )


def remove_unfinished(folder: Path) -> None:
    """Remove half-written shards of a run that ended."""
    for left_over in folder.glob("*.writing"):
        left_over.unlink()
