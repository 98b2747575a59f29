"""What the headers of safetensors files say about a model's weights: their size, without reading them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from .checks import Refusal

INDEX = "model.safetensors.index.json"
# The record of the role fp8_weights, written last: where it is, the conversion is whole.
CONVERTED = ".gaudi-serving/fp8.json"
# A safetensors file begins with the header's length, a 64-bit little-endian number.
PREFIX_BYTES = 8
# The format's own limit on a header.
HEADER_LIMIT = 100_000_000

# Bytes of one element, by the format's names.
WIDTHS = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2, "U16": 2}


@dataclass(frozen=True)
class Weights:
    """What lies at the weights path. ``parameters`` counts elements by safetensors dtype."""

    bytes: int | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()
    # Whether fp8_convert left its record beside them.
    converted: bool = False


def header_bytes(name: str, prefix: bytes, file_bytes: int) -> int:
    """The length of a header from the file's first eight bytes. Raises :class:`Refusal` with the file's name."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) < PREFIX_BYTES or length > HEADER_LIMIT or length + PREFIX_BYTES > file_bytes:
        raise Refusal(f"{name} is no safetensors file, or was cut short ({file_bytes} bytes). Fetch it again.")
    return length


def weights_from(headers: Mapping[str, tuple[bytes, int]], index: str | None, *, converted: bool = False) -> Weights:
    """Add up headers: file name -> (header, size of the file). ``index`` is the text of the index file.

    Raises :class:`Refusal` with the file's name for a header that cannot be read.
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
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Refusal(f"The header of {name} cannot be read ({type(error).__name__}). Fetch it again.") from error
    missing: tuple[str, ...] = ()
    if index is not None:
        try:
            named = {str(shard) for shard in json.loads(index)["weight_map"].values()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Refusal(f"{INDEX} cannot be read ({type(error).__name__}). Fetch it again.") from error
        missing = tuple(sorted(named - set(headers)))
    # Shards that are missing would make the sum a guess.
    return Weights(total if headers and not missing else None, parameters, frozenset(headers), missing, converted)
