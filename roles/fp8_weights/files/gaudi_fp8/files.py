"""Files and folders: written in one step, read and checked, durable."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gaudi.base.refusal import Refusal
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


def fits(value: Any, form: Any) -> bool:
    """Whether a JSON value has a form: a type, [form of all], (form of each), {str: form of all} or {key: form}.

    A key that ends in "?" may be absent; other keys than those of the form are not looked at.
    """
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(element, form[0]) for element in value)
    if isinstance(form, tuple):
        return isinstance(value, list) and len(value) == len(form) and all(map(fits, value, form))
    if not isinstance(form, dict):
        return isinstance(value, form)
    if not isinstance(value, dict):
        return False
    if str in form:
        return all(fits(element, form[str]) for element in value.values())
    return all(
        fits(value[name], inner) if (name := key.rstrip("?")) in value else key.endswith("?")
        for key, inner in form.items()
    )


def read_json(path: Path, form: Any = dict, advice: str = "fetch the model again") -> dict[str, Any]:
    """A JSON object of a form from a file; Refusal with the advice when it is none."""
    if path.exists() and not path.is_file():
        raise Refusal("not_a_regular_file", f"{path} is not a regular file; {advice}")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal("not_json", f"{path} cannot be read as JSON ({error}); {advice}") from error
    if not fits(content, dict):
        raise Refusal("not_a_json_object", f"{path} does not hold a JSON object; {advice}")
    if not fits(content, form):
        raise Refusal("record_damaged", f"{path} does not say what it has to, so it is damaged; {advice}")
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
