"""Read the headers of safetensors files: the size of a model's weights, without reading the weights."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ..base.refusal import Refusal
from .remote_code import Code, ForeignCode, code_of, config_in, foreign_code

INDEX = "model.safetensors.index.json"
# The record of the role fp8_weights, written last; if it exists, the conversion is complete.
CONVERTED = ".gaudi-serving/fp8.json"
CONVERTERS = ("fp8_convert", "fp8_dynamic")
# A safetensors file begins with the header's length, a 64-bit little-endian number.
PREFIX_BYTES = 8
# The format's own limit on a header.
HEADER_LIMIT = 100_000_000

# Bytes of one element, by the format's names.
WIDTHS = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2, "U16": 2}


@dataclass(frozen=True)
class Weights:
    """The content of a weights path. ``parameters`` counts elements by safetensors dtype."""

    bytes: int | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    # Whether fp8_convert or fp8_dynamic left its record beside them, and whether its scales are those that published
    # measurement files were made with.
    converted: bool = False
    fits_published: bool = True
    # The model's config.json, and the code beside the weights that it names; None if the file is missing.
    config: Mapping[str, object] | None = None
    code: Code | None = None
    # Code of other repositories that config.json or the files beside it name.
    foreign: ForeignCode = field(default_factory=ForeignCode)
    # Whether they are in pickled tensors alone, and whether they were fetched here or by another node.
    pickled: bool = False
    fetched: bool = False


def header_bytes(name: str, prefix: bytes, file_bytes: int) -> int:
    """The length of a header from the file's first eight bytes. Raises Refusal with the file's name."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) < PREFIX_BYTES or length > HEADER_LIMIT or length + PREFIX_BYTES > file_bytes:
        raise Refusal(
            "not_safetensors", f"{name} is no safetensors file, or was cut short ({file_bytes} bytes). Fetch it again."
        )
    return length


def fits_published(record: str, shards: Iterable[str]) -> bool:
    """Return whether a conversion's scales are those of published measurement files, from its record.

    Raises Refusal for a file that is not such a record, or is about other files.
    """
    again = "Remove the folder and convert the weights again (role fp8_weights)."
    try:
        said = json.loads(record)
        made, tool = {*said["shards"]}, said["tool"]
        fits = bool(said.get("usable_with_published_measurements", True))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Refusal(
            "conversion_record_unreadable", f"{CONVERTED} cannot be read ({type(error).__name__}). {again}"
        ) from error
    # Missing files are reported elsewhere.
    foreign = sorted({*shards} - made)
    if foreign or tool not in CONVERTERS:
        what = f"it does not name {foreign[0]}" if foreign else f"made by {tool!r}"
        raise Refusal(
            "conversion_record_foreign", f"{CONVERTED} is not the record of the weights beside it ({what}). {again}"
        )
    return fits


def weights_from(
    headers: Mapping[str, tuple[bytes, int]],
    index: str | None,
    record: str | None = None,
    config: bytes | None = None,
    wrong: Collection[str] = (),
    beside: Mapping[str, bytes] | None = None,
) -> Weights:
    """Add up headers: file name -> (header, size of the file).

    ``index``: text of the index file. ``record``: that of the conversion's record. ``config``: config.json. ``wrong``:
    files that differ from the record beside them; they count as missing. ``beside``: other configuration files by name,
    of which only ``foreign`` is read. Raises Refusal, with the file's name, for any other file that cannot be read.
    """
    total = 0
    parameters: dict[str, int] = {}
    for name, (header, _size) in headers.items():
        try:
            tensors = json.loads(header)
            for tensor, entry in tensors.items():
                if tensor == "__metadata__":
                    continue
                begin, end = entry["data_offsets"]
                kind = str(entry["dtype"])
                total += end - begin
                parameters[kind] = parameters.get(kind, 0) + (end - begin) // WIDTHS.get(kind, 1)
        except (ArithmeticError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Refusal(
                "not_safetensors", f"The header of {name} cannot be read ({type(error).__name__}). Fetch it again."
            ) from error
    missing = tuple(sorted(wrong))
    if index is not None:
        try:
            named = {str(shard) for shard in json.loads(index)["weight_map"].values()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Refusal(
                "index_unreadable", f"{INDEX} cannot be read ({type(error).__name__}). Fetch it again."
            ) from error
        missing = tuple(sorted({*(named - set(headers)), *wrong}))
    said = config_in(config) if config is not None else None
    # With missing shards the sum would be wrong.
    return Weights(
        bytes=total if headers and not missing else None,
        parameters=parameters,
        missing=missing,
        converted=record is not None,
        fits_published=record is None or fits_published(record, headers),
        config=said,
        code=code_of(said) if said is not None else None,
        foreign=foreign_code({**({"config.json": config} if config is not None else {}), **(beside or {})}),
    )
