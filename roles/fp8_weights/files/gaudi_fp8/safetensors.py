"""The safetensors format: headers are read, checked and written; tensors stay bytes."""

from __future__ import annotations

import json
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gaudi.base.checks import shown
from gaudi.base.refusal import Refusal

from .refusals import WrongResult, short

# Bits of one element; the dtypes of the safetensors format. Four- and six-bit types are left out: no FP8
# checkpoint has them, and a size that cannot be checked is refused.
DTYPE_BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64,
}  # fmt: skip
FP8 = "F8_E4M3"
MARKER_KEY = "gaudi_fp8_range"
DIMENSIONS = 64  # of a tensor; more is no weight
LONGEST_NAME = 1024  # characters; those of published models have some 100
HEADER_LIMIT = 100_000_000  # bytes; the limit of the safetensors library itself


@dataclass(frozen=True)
class ShardTensor:
    """One tensor of a shard; begin and end are byte offsets into the shard's data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.end - self.begin


@dataclass(frozen=True)
class Header:
    """What the header of a shard says: tensors in file order, free-form metadata, and where the data starts."""

    tensors: tuple[ShardTensor, ...]
    metadata: dict[str, str]
    data_start: int


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise Refusal("header_name_twice", f"the name {shown(key)} stands twice in the header")
        result[key] = value
    return result


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def _tensor(name: str, entry: Any) -> ShardTensor:
    if len(name) > LONGEST_NAME:
        raise Refusal(
            "tensor_name_too_long",
            f"the tensor {shown(name)} has a name of {len(name)} characters; {LONGEST_NAME} at most are one of a model",
        )
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Refusal("tensor_undescribed", f"tensor {name!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise Refusal(
            "unknown_dtype", f"tensor {name!r} has the dtype {short(dtype)}, which this program does not know"
        )
    if not _sizes(shape) or len(shape) > DIMENSIONS:
        raise Refusal("tensor_shape", f"tensor {name!r} has the shape {short(shape)}; a list of sizes is needed")
    if not _sizes(offsets) or len(offsets) != 2:
        raise Refusal("tensor_offsets", f"tensor {name!r} has the offsets {short(offsets)}; two positions are needed")
    begin, end = offsets
    needed = math.prod(shape) * DTYPE_BITS[dtype] // 8
    if end - begin != needed:
        raise Refusal(
            "tensor_size",
            f"tensor {name!r} is said to take {end - begin} bytes, but {dtype} of shape {shape} takes {short(needed)}",
        )
    return ShardTensor(name, dtype, tuple(shape), begin, end)


def parse_header(stream: BinaryIO, file_size: int) -> Header:
    """Read and check the header of a shard of file_size bytes.

    Raises Refusal when it is truncated, too large, no JSON, or describes tensors that overlap, leave holes or
    reach beyond the end of the file.
    """
    raw = _raw_header(stream, file_size)
    content = _json_object(raw)
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Refusal("header_metadata", "the header's __metadata__ is not a mapping of texts")
    try:
        "".join((*content, *metadata, *metadata.values())).encode()
    except UnicodeEncodeError as error:
        wrong = ascii(error.object[error.start : error.start + 1])
        raise Refusal("header_name_no_text", f"a name in the header is no text ({wrong})") from error
    tensors = sorted((_tensor(n, e) for n, e in content.items()), key=lambda t: (t.begin, t.end))
    data_start = 8 + len(raw)
    _check_ends(data_start + _end_of(tensors), file_size)
    return Header(tuple(tensors), metadata, data_start)


def _raw_header(stream: BinaryIO, file_size: int) -> bytes:
    """Bytes of the header, without the eight that give its length."""
    prefix = stream.read(8)
    if len(prefix) < 8:
        raise Refusal("header_missing", f"the file has {file_size} bytes, too few for a safetensors header")
    (length,) = struct.unpack("<Q", prefix)
    if length > HEADER_LIMIT:
        raise Refusal(
            "header_too_long",
            f"the header is said to have {length} bytes; more than {HEADER_LIMIT} is no safetensors file",
        )
    raw = stream.read(length)
    if len(raw) < length:
        raise Refusal("header_cut_short", f"the header should have {length} bytes, the file ends after {len(raw)}")
    return raw


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        content = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except Refusal:
        raise
    except UnicodeDecodeError as error:
        raise Refusal("header_not_utf8", f"the header is not UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise Refusal("header_not_json", f"the header is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise Refusal("header_not_an_object", "the header is not a JSON object")
    return content


def _end_of(tensors: list[ShardTensor]) -> int:
    """End of the data of tensors in file order, in bytes; Refusal when tensors overlap or leave holes."""
    position = 0
    for tensor in tensors:
        if tensor.begin < position:
            raise Refusal(
                "tensors_overlap", f"tensor {tensor.name!r} overlaps the one before it (at byte {tensor.begin})"
            )
        if tensor.begin > position:
            raise Refusal(
                "bytes_of_no_tensor",
                f"{tensor.begin - position} bytes before tensor {tensor.name!r} belong to no tensor",
            )
        position = tensor.end
    return position


def _check_ends(described: int, file_size: int) -> None:
    if described != file_size:
        raise Refusal(
            "wrong_file_size",
            f"the header describes {described} bytes, the file has {file_size}: "
            f"{'it is cut short' if described > file_size else 'something was appended'}",
        )


def header_of(stream: BinaryIO) -> Header:
    """Header of an open shard; a Refusal names the file."""
    try:
        return parse_header(stream, os.fstat(stream.fileno()).st_size)
    except Refusal as refusal:
        raise Refusal(refusal.id, f"{stream.name}: {refusal}; fetch it again if it is damaged") from refusal


def written_header(stream: BinaryIO, head: bytes) -> Header:
    """Header of an open shard of the result; WrongResult when the shard does not begin with the bytes head."""
    name = Path(stream.name).name
    if stream.read(len(head)) != head:
        raise WrongResult("wrong_header", f"{name}: the header is not the one this conversion writes")
    stream.seek(0)
    try:
        return parse_header(stream, os.fstat(stream.fileno()).st_size)
    except Refusal as refusal:
        raise WrongResult(refusal.id, f"{name}: {refusal}") from refusal


def render_header(tensors: list[ShardTensor], metadata: dict[str, str]) -> bytes:
    """Header bytes with their length in front, padded with blanks to a multiple of 8 as the library does."""
    content: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    for tensor in tensors:
        content[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [tensor.begin, tensor.end],
        }
    raw = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw
