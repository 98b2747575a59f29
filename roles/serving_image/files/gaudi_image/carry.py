"""Carry an image as a file: write it with its checksum, and take it from a file that is whole and says what it is."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gaudi.base.documents import Damaged
from gaudi.base.refusal import Refusal
from gaudi.base.units import human_bytes
from gaudi.engine.image_record import built_labels
from gaudi.node import beneath
from gaudi.node.documents import read_json
from gaudi.node.files import write_json, write_text
from gaudi.node.folders import no_room

from . import archive
from .engine import EngineClient, last

Tell = Callable[[dict[str, Any]], None]

SCHEMA = 1
_FORM = {"reference": str, "id": str, "labels": {str: str}, "bytes": int, "sha256": str}
_BLOCK = 1 << 20
_TELL_EVERY = 0.5  # seconds
# Bytes. What is written beside the file, and what an archive has around the layers.
_AROUND = 64 << 20


@dataclass(frozen=True)
class CarriedImage:
    """What lies beside the file of an image, ``sha256`` and ``bytes`` being those of the file."""

    reference: str
    id: str
    labels: dict[str, str]
    bytes: int
    sha256: str

    @classmethod
    def beside(cls, file: Path) -> CarriedImage | None:
        """Read it; None where nothing is. Raises Refusal for what cannot be read."""
        try:
            found = read_json(description_of(file), _FORM, SCHEMA, place=file.parent)
        except Damaged as damage:
            raise Refusal("image_file_undescribed", f"{damage}. Save the image again, or copy both files.") from damage
        return None if found is None else cls(**{key: found[key] for key in _FORM})


def description_of(file: Path) -> Path:
    """What says which image is in the file."""
    return file.with_name(f"{file.name}.json")


def save(engine: EngineClient, tell: Tell, reference: str, name: str) -> dict[str, Any]:
    """Write an image into a file, with its checksum and what it is beside it. Raises Refusal with what to do."""
    file = _file(name)
    inspected = engine.inspect(reference)
    if not inspected:
        raise Refusal(
            "no_such_image",
            f"{reference} is not on this node. playbooks/image.yml says which images there are; name the node that has "
            "it with --limit.",
        )
    there = CarriedImage.beside(file)
    if there and (there.reference, there.id) == (reference, inspected["Id"]) and _size(file) == there.bytes:
        return {"file": str(file), "changed": False, "sha256": there.sha256, "bytes": there.bytes}
    for left in file.parent.glob(f"{file.name}.*{beneath.WRITING}"):
        beneath.remove(left, file.parent)
    size = int(inspected.get("Size") or 0)
    wrong = no_room(file, size + _AROUND)
    if wrong:
        raise Refusal("no_room", f"{wrong}. Make room, or name a file elsewhere.")
    digest, written = _write(engine, tell, reference, file, size)
    document = CarriedImage(reference, inspected["Id"], built_labels(inspected), written, digest)
    write_json(description_of(file), {"schema": SCHEMA, **vars(document)}, mode=0o644, place=file.parent)
    # As sha256sum --check reads it.
    write_text(file.with_name(f"{file.name}.sha256"), f"{digest}  {file.name}\n", mode=0o644, place=file.parent)
    return {"file": str(file), "changed": True, "sha256": digest, "bytes": written}


def _write(engine: EngineClient, tell: Tell, reference: str, file: Path, size: int) -> tuple[str, int]:
    """Have the engine write; the file has its name when it is whole. Returns checksum and bytes."""
    checksum, progress = hashlib.sha256(), _Progress(tell, f"save {reference}", size)
    try:
        with beneath.replacing(file, file.parent, 0o644) as out:

            def take(block: bytes) -> None:
                out.write(block)
                checksum.update(block)
                progress.advance(len(block))

            status, said = engine.stream(take, "image", "save", reference)
            if status:
                raise Refusal("not_saved", f"{reference} could not be saved: {said or 'nothing was said'}.")
    except OSError as error:
        raise Refusal("not_saved", f"{file} could not be written: {error.strerror}. Nothing is left of it.") from error
    progress.end()
    return checksum.hexdigest(), progress.done


def load(engine: EngineClient, tell: Tell, name: str, reference: str = "", *given: str) -> dict[str, Any]:
    """Load an image from a file. Raises Refusal for an incomplete file, and leaves the present image unchanged.

    reference: the image that is meant, and given: ids that it may have, where it is not the file that says so; any node
    of the site may have written the file and what lies beside it.
    """
    file = _file(name)
    carried = CarriedImage.beside(file)
    if carried is None or _size(file) is None:
        lacking = file if carried else description_of(file)
        raise Refusal(
            "no_image_file", f"{lacking} is not there. Copy both {file.name} and {file.name}.json to this node."
        )
    if reference and carried.reference != reference:
        raise Refusal(
            "file_of_other_images", f"{file} is said to hold {carried.reference}, but {reference} is asked for."
        )
    if given and carried.id not in given:
        raise Refusal(
            "file_of_other_images",
            f"{file} is said to hold the image {carried.id}, but {' or '.join(given)} is the one that was given.",
        )
    found = engine.inspect(carried.reference)
    ids = {carried.id}
    # The engine reads this stream, and not what has the file's name by then.
    with beneath.open_file(file, file.parent) as stream:
        beneath.refuse_file_writers(stream, file)
        if found.get("Id") not in ids:
            ids |= check(stream, file, carried, tell, strict=bool(given))
        if not found:
            _load(engine, tell, stream, file, carried)
    changed, found = not found, engine.inspect(carried.reference)
    if found.get("Id") not in ids or built_labels(found) != carried.labels:
        if changed:
            # The next run of site.yml would take what has this name.
            engine.untag(carried.reference)
            raise Refusal(
                "file_of_other_images",
                f"{file} brought the image {found.get('Id')} to this node. Its id or its labels are not those of "
                f"{file.name}.json ({carried.id}), so the name {carried.reference} was removed from it. Save the image "
                f"again, and copy both {file.name} and {file.name}.json to this node.",
            )
        raise Refusal(
            "other_image_there",
            f"{carried.reference} is another image on this node ({found.get('Id')}) than in {file} ({carried.id}). "
            f"Where it is not needed, remove it (docker image rm {carried.reference}) and run again.",
        )
    return {"reference": carried.reference, "id": found["Id"], "changed": changed}


def check(stream: BinaryIO, file: Path, carried: CarriedImage, tell: Tell, strict: bool = False) -> set[str]:
    """Compare an open file with its description; returns the ids that the image in it may have, which differ by engine.

    strict: whether the image has to be the one whose id is said, and not only of its name. Raises Refusal for a file
    that was damaged on its way, or that would bring other images.
    """
    size = os.fstat(stream.fileno()).st_size
    if size != carried.bytes:
        raise Refusal(
            "image_file_damaged",
            f"{file} has {size} bytes, and had {carried.bytes} when it was saved. Copy it again.",
        )
    checksum, progress = hashlib.sha256(), _Progress(tell, f"check {file.name}", carried.bytes)
    for block in iter(lambda: stream.read(_BLOCK), b""):
        checksum.update(block)
        progress.advance(len(block))
    progress.end()
    if checksum.hexdigest() != carried.sha256:
        raise Refusal(
            "image_file_damaged",
            f"{file} has the SHA-256 {checksum.hexdigest()}, and had {carried.sha256} when it was saved. Copy it "
            "again.",
        )
    stream.seek(0)
    try:
        names, ids = archive.images(stream)
        ids = archive.same_as(stream, carried.id) if strict else ids
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal("no_image_file", f"{file} is no archive that docker save wrote: {error}.") from error
    if names != [carried.reference]:
        raise Refusal(
            "file_of_other_images",
            f"{file} would bring {', '.join(names) or 'an image without a name'}, and is said to hold "
            f"{carried.reference}. Save that image alone.",
        )
    return ids


def _load(engine: EngineClient, tell: Tell, stream: BinaryIO, file: Path, carried: CarriedImage) -> None:
    directory = engine.directory()
    # The engine writes there; this program may not.
    free = shutil.disk_usage(directory).free
    if free < carried.bytes:
        raise Refusal(
            "no_room",
            f"{carried.reference} takes {human_bytes(carried.bytes)} below {directory}, but {human_bytes(free)} are "
            "free. Make room (docker system df shows what takes it), then run again.",
        )
    tell({"phase": f"load {carried.reference}", "message": human_bytes(carried.bytes), "began": time.time()})
    # The engine reads from the descriptor's offset, which seek() of a buffered stream need not move.
    os.lseek(stream.fileno(), 0, os.SEEK_SET)
    status, lines = engine.run("image", "load", "--quiet", given=stream)
    if status:
        raise Refusal("not_loaded", f"{carried.reference} could not be loaded from {file}: {last(lines)}")


def _file(name: str) -> Path:
    """The file that is meant. Raises Refusal for one that others could exchange, or whose folder is not there."""
    file = Path(name)
    if not file.is_absolute() or not file.name or ".." in file.parts:
        raise Refusal(
            "no_absolute_path", f"{name!r} is no absolute path of a file on the node, such as /data/vllm.tar."
        )
    if not file.parent.is_dir():
        raise Refusal("no_folder", f"{file.parent} is not there. Make it, or mount what it is to be on.")
    beneath.refuse_writers(file.parent)
    return file


def _size(file: Path) -> int | None:
    seen = beneath.look(file, file.parent)
    return seen.st_size if seen is not None and beneath.is_file(file, file.parent) else None


class _Progress:
    """Says how many bytes are done, not more often than anybody reads it."""

    def __init__(self, tell: Tell, phase: str, total: int) -> None:
        self.tell, self.phase, self.total = tell, phase, total
        self.done, self.begun, self.told = 0, time.monotonic(), 0.0

    def advance(self, size: int) -> None:
        self.done += size
        if time.monotonic() - self.told >= _TELL_EVERY:
            # What the engine says of an image's size is not to the byte.
            self._tell(max(self.total, self.done))

    def end(self) -> None:
        self._tell(self.done)

    def _tell(self, total: int) -> None:
        self.told = time.monotonic()
        rate = self.done / max(self.told - self.begun, 1e-3)
        left = (total - self.done) / rate if rate else 0.0
        figures = {"done": self.done, "total": total, "unit": "bytes", "rate": round(rate), "eta": round(left, 1)}
        self.tell({"phase": self.phase, **figures})
