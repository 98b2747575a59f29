"""Have an image in a folder with a record, as weights are, so that other nodes take it as they take weights."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

from gaudi.base.documents import Damaged
from gaudi.base.refusal import Refusal
from gaudi.node import beneath, documents, folders
from gaudi.node.files import sync_folder, write_text
from gaudi.weights import record
from gaudi.weights.record import Manifest, RecordedFile

from .carry import Tell, description_of, save
from .engine import EngineClient

FILE = "vllm.tar"
"""The image in its folder."""


def share(engine: EngineClient, tell: Tell, reference: str, name: str) -> dict[str, Any]:
    """Save an image into a folder of the weights root; all of it appears in one rename. Raises Refusal."""
    folder = Path(name)
    # Files of a job are readable by root alone; the daemon that gives them to other nodes runs as the user nobody.
    os.umask(0o022)
    beneath.refuse_writers(folder.parent)
    staging = folder.with_name(folder.name + record.STAGING_SUFFIX)
    inspected = engine.inspect(reference)
    if inspected and _holds(folder, reference, inspected["Id"]):
        return {"folder": name, "changed": False, "id": inspected["Id"]}
    if beneath.look(folder, folder) is not None:
        _give_up(folder, staging)
    beneath.make_folders(staging / record.FOLDER, staging)
    said = save(engine, tell, reference, str(staging / FILE))
    description = description_of(staging / FILE)
    with beneath.open_file(description, staging) as stream:
        text = stream.read()
    files = (
        RecordedFile(FILE, said["bytes"], said["sha256"]),
        RecordedFile(description.name, len(text), hashlib.sha256(text).hexdigest()),
    )
    made = Manifest("saved", reference, inspected["Id"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), files)
    write_text(staging / record.MANIFEST, made.render(), mode=0o644, place=staging)
    beneath.rename(staging, staging, folder, folder)
    sync_folder(folder.parent)
    return {"folder": name, "changed": True, "id": inspected["Id"]}


def _holds(folder: Path, reference: str, image: str) -> bool:
    """Whether a folder holds this image, by its record and the sizes of its files."""
    try:
        made = documents.read(folder / record.MANIFEST, record.parse, place=folder)
    except Damaged:
        return False
    if made is None or (made.repository, made.revision) != (reference, image):
        return False
    return not record.wrong_sizes(made.sizes, folders.sizes_in(folder, made.names))


def _give_up(folder: Path, staging: Path) -> None:
    """Make a folder of ours an unfinished one. Raises Refusal for somebody else's."""
    if beneath.look(folder / record.MANIFEST, folder) is None:
        raise Refusal(
            "no_folder_of_an_image",
            f"{folder} has no record of this project, so it is somebody's own and is not touched. Move it away.",
        )
    beneath.remove_tree(staging, staging)
    beneath.rename(folder, folder, staging, staging)
    beneath.remove(staging / record.MANIFEST, staging)
