"""The part ``weights`` of a node's report: what folders of weights hold, counted from the headers of their files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...base.command_line import PICKLED
from ...base.documents import Damaged
from ...base.refusal import Refusal
from ...model.headers import CONVERTED, INDEX, PREFIX_BYTES, Weights, header_bytes, weights_from
from ...model.remote_code import BESIDE_LIMIT, CONFIG_LIMIT, CONFIGS_BESIDE
from ...model.weights_document import document_of
from ...weights.record import MANIFEST
from .. import beneath, documents
from ..weight_folders import loaded_files, wrong_files

# Bytes of all headers of one folder. Qwen3-Coder-480B has some 60,000 tensors, whose entries take 8 MB.
HEADERS_LIMIT = 256 << 20


def read(path: str) -> dict[str, Any]:
    """Return what is in a directory of the option ``weights``, as model/weights_document.py reads it back."""
    found: dict[str, Any] = document_of(read_weights(path))
    return found


def read_weights(path: str) -> Weights | None:
    """Headers and index of a directory's safetensors files, and its config.json; None where there is no such directory.

    Raises Refusal with the name of a file that is cut short or no safetensors file, or no config.json, and of one that
    is a pipe, a device, or a link out of the directory: a person who brought such weights could make root read any
    file.
    """
    directory = Path(path)
    if not directory.is_dir():
        return None
    headers, wrong, together = {}, wrong_files(directory), 0
    for shard in sorted(directory.glob("*.safetensors")):
        if shard.name in wrong:
            continue
        with beneath.open_linked(shard, beneath.within(directory)) as stream:
            size = os.fstat(stream.fileno()).st_size
            length = header_bytes(str(shard), stream.read(PREFIX_BYTES), size)
            together += length
            if together > HEADERS_LIMIT:
                raise Refusal(
                    "file_too_large",
                    f"The headers of the files in {directory} have more than {HEADERS_LIMIT >> 20} MiB, which no model "
                    "has. Fetch it again.",
                )
            headers[shard.name] = (stream.read(length), size)
    index, said = _text(directory, INDEX), _text(directory, CONVERTED)
    beside = {name: content for name in CONFIGS_BESIDE if (content := _beside(directory / name)) is not None}
    found = weights_from(headers, index, said, _config(directory / "config.json"), wrong, beside)
    loaded = [file.suffix for file in loaded_files(directory)]
    # A subfolder of fetched files has no record of its own. A record that cannot be read is one of a fetch as well.
    real = directory.resolve()
    fetched = any(os.path.lexists(folder / MANIFEST) for folder in (real, *real.parents, *directory.parents))
    return replace(found, pickled=bool({*loaded} & {*PICKLED}), fetched=fetched)


def _text(directory: Path, name: str) -> str | None:
    """The text of a file beside the weights; None where there is none. Raises Refusal for what is no file of text."""
    try:
        return documents.read_text(directory / name, within=beneath.within(directory))
    except Damaged as damage:
        raise Refusal("file_unreadable", f"{damage}. Fetch the model again, or put the file itself there.") from damage


def _config(file: Path) -> bytes | None:
    """The content of config.json; None where there is none. Raises Refusal for more than any model's has."""
    try:
        with beneath.open_linked(file, beneath.within(file.parent)) as stream:
            content = stream.read(CONFIG_LIMIT + 1)
    except FileNotFoundError:
        return None
    if len(content) > CONFIG_LIMIT:
        raise Refusal(
            "file_too_large", f"{file} is larger than {CONFIG_LIMIT >> 20} MiB, which no model's is. Fetch it again."
        )
    return content


def _beside(file: Path) -> bytes | None:
    """The content of another configuration file, None where there is none, empty for more than any model's has.

    Raises Refusal for a pipe, a device, or a link out of the directory.
    """
    try:
        with beneath.open_linked(file, beneath.within(file.parent)) as stream:
            content = stream.read(BESIDE_LIMIT + 1)
    except FileNotFoundError:
        return None
    return content if len(content) <= BESIDE_LIMIT else b""
