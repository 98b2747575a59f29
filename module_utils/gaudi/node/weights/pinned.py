"""Compare the files of a folder of weights with the checksums that a model's pins have for them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ...base.documents import Damaged
from ...base.refusal import Refusal
from ...weights import pin_file
from ...weights import record as weights
from .. import beneath, documents


def not_as_pinned(folder: Path, repositories: Iterable[Mapping[str, Any]], written: Collection[str]) -> list[str]:
    """Return files of a folder of weights that differ from the pins, or need one and have none; sorted.

    A link to anything but a file differs: what is behind it is not read here, and a server may read it. The folder
    itself may be a link. ``repositories``: the possible origins with their checksums. ``written``: files that a
    conversion wrote here, which no repository has.
    """
    folder = Path(os.path.realpath(folder))
    found: dict[str, str] = {}
    for path, is_folder in beneath.all_in(folder):
        name = path.relative_to(folder).as_posix()
        own = name in written or name.startswith(f"{weights.FOLDER}/")
        if path.is_symlink() and not path.is_file():
            found[name] = ""
        elif not is_folder and not own and pin_file.needs_pin(name):
            with contextlib.suppress(FileNotFoundError):
                found[name] = _sha256(path, folder)
    return pin_file.differing(found, repositories)


def _sha256(path: Path, folder: Path) -> str:
    """Return the SHA-256 of a file; for a large one the recorded checksum. "" if it must not be read."""
    try:
        with beneath.open_linked(path, beneath.within(folder)) as stream:
            if os.fstat(stream.fileno()).st_size <= pin_file.LARGEST:
                return hashlib.sha256(stream.read()).hexdigest()
        record = documents.read(folder / weights.MANIFEST, weights.parse, place=folder)
    except (Refusal, Damaged):
        return ""
    recorded = {file.name: file.sha256 for file in record.files} if record else {}
    return recorded.get(path.relative_to(folder).as_posix(), "")
