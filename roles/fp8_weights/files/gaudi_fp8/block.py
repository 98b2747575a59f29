"""Convert a block-quantised FP8 checkpoint to the FP8 range of Gaudi2, bit for bit and restartable.

Published checkpoints use float8_e4m3fn up to its end at 448; Gaudi2 computes with an FP8 that ends at 240.
Every FP8 weight is therefore multiplied by 240/448 and rounded to the nearest even code, and its scales by
448/240, so that weight x scale stays what it was. An FP8 value is one byte, so the whole weight conversion
is one table of 256 bytes: no torch, no numpy, only the standard library of Python 3.9 or newer.

    fp8_convert.py IN OUT [--jobs N] [--verify]
    fp8_convert.py IN OUT --check

IN is never changed. OUT appears, complete, in one rename; until then the work is in OUT.partial, and the same
command continues there after any interruption. What was done is written to OUT/.gaudi-serving/fp8.json.

Exit status: 0 converted (or already converted from the same input), 1 refused or failed (one sentence on
standard error), 2 wrong usage, 3 not converted yet, or found wrong by --verify (--check), 130 interrupted.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import reprlib
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NoReturn, TypeVar

PROGRAM = Path(__file__).absolute().parents[1] / "fp8_convert.py"
VERSION = "1"
STATE_FOLDER = ".gaudi-serving"
PROVENANCE = "fp8.json"
LOCKS = ("lock", "workers")  # in the state folder while work is done: of the program, of its worker processes
MARKER_KEY = "gaudi_fp8_range"
EVERY_BYTE = "every byte"  # the provenance's word for a whole verification
FOUND_WRONG = "found wrong"  # and for one that failed; its key "wrong" says which files, and when

# Bits of one element; the dtypes of the safetensors format. Four- and six-bit types are left out: no FP8
# checkpoint has them, and a size that cannot be checked is refused.
DTYPE_BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64,
}  # fmt: skip
FP8 = "F8_E4M3"
SCALE_DTYPES = ("F32", "BF16")

DIMENSIONS = 64  # of a tensor; more is no weight
HEADER_LIMIT = 100_000_000  # bytes; the limit of the safetensors library itself
# Bytes of one step: source and result stay in a core's second-level cache, and the result is below the 128 KiB from
# which the C library asks the system for memory every time.
CHUNK = 96 * 1024
REPORT_EVERY = 256 * CHUNK
WRITE_BEHIND = 40 * CHUNK  # bytes after which the disk is told to begin writing them; with 12 times as many it waits
SCALE_SUFFIXES = ("_scale_inv", "_scale")
INPUT_SCALES = ("input_scale_inv", "input_scale")

# Not part of what is served: version control and hub caches (a git-lfs checkout holds every weight a second
# time), and the same weights in another format.
SKIPPED_FOLDERS = frozenset({".git", ".cache", ".huggingface", "__pycache__", STATE_FOLDER})
SKIPPED_SUFFIXES = (".bin", ".pth", ".pt", ".ckpt", ".msgpack", ".h5", ".gguf", ".incomplete", ".lock")
SKIPPED_NAMES = frozenset({".gitattributes", ".gitignore", ".gitmodules"})

short = reprlib.repr  # of what a file says, which may be long

MAGNITUDE = 0x7F
NAN_CODE = 0x7F
CODE_OF_240 = 0x77  # 1.875 x 2^7


class Refusal(Exception):
    """The input or the request cannot be converted; the text is one sentence for a person."""


class Wrong(Refusal):
    """A file of the result is not what it has to be."""


# --- the arithmetic ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Factor:
    """How weights shrink: weight x numerator / denominator, scales the other way round."""

    name: str
    numerator: int
    denominator: int


GAUDI2 = Factor("240/448", 240, 448)
# 236 of the 252 finite non-zero codes survive exactly, against 28 with 240/448; the result ends at 224.
EXACT_HALF = Factor("1/2", 1, 2)


def e4m3_value(code: int) -> Fraction:
    """Value of a non-negative float8_e4m3fn code (0 to 126): bias 7, subnormals in steps of 2^-9."""
    exponent, mantissa = code >> 3, code & 7
    if exponent == 0:
        return Fraction(mantissa, 512)
    return Fraction(8 + mantissa, 8) * Fraction(2) ** (exponent - 7)


_VALUES = [e4m3_value(code) for code in range(NAN_CODE)]


def nearest_e4m3(value: Fraction) -> int:
    """Code of the float8_e4m3fn number nearest to a non-negative value, ties to the even code.

    Above 464 (half a step beyond 448) there is no finite neighbour: NaN. Only bfloat16 weights above 866 in
    magnitude get there; torch 2.13 gives 448 for them.
    """
    if value > 464:
        return NAN_CODE
    low, high = 0, NAN_CODE - 1
    while low < high:  # the last code whose value is not above
        middle = (low + high + 1) // 2
        if value >= _VALUES[middle]:
            low = middle
        else:
            high = middle - 1
    if low == NAN_CODE - 1:
        return low
    below, above = value - _VALUES[low], _VALUES[low + 1] - value
    if below == above:
        return low if low % 2 == 0 else low + 1
    return low if below < above else low + 1


def weight_table(factor: Factor) -> bytes:
    """The 256-byte table: result code of every float8_e4m3fn code, NaN staying NaN and zero its sign."""
    shrink = Fraction(factor.numerator, factor.denominator)
    half = bytes(nearest_e4m3(value * shrink) for value in _VALUES) + bytes([NAN_CODE])
    return half + bytes(code | 0x80 for code in half)


def table_hash(table: bytes) -> str:
    """Name of a table in journals and provenance."""
    return hashlib.sha256(table).hexdigest()


def to_float32(values: array.array[int]) -> array.array[float]:
    """Widen bfloat16 bit patterns (array of 'H') to float32: the upper half of the same bits."""
    wide = array.array("I", (bits << 16 for bits in values))
    return array.array("f", wide.tobytes())


def scaled(values: array.array[float], factor: Factor) -> array.array[float]:
    """Float32 x denominator / numerator, rounded to float32 after each step, in that order.

    A float32 times 448 is exact in Python's doubles and a quotient of two float32 in double precision
    rounds to float32 as if divided once, so the result has the bits of float32 arithmetic.
    """
    product = array.array("f", (value * factor.denominator for value in values))
    return array.array("f", (value / factor.numerator for value in product))


def bf16_weight_table(factor: Factor) -> bytes:
    """65536 bytes: float8_e4m3fn code of every bfloat16 pattern x numerator / denominator in float32."""
    positive = bytearray(0x8000)
    patterns = array.array("H", range(0x8000))
    product = array.array("f", (value * factor.numerator for value in to_float32(patterns)))
    shrunk = array.array("f", (value / factor.denominator for value in product))
    for pattern, value in enumerate(shrunk):
        positive[pattern] = nearest_e4m3(Fraction(value)) if math.isfinite(value) else NAN_CODE
    return bytes(positive) + bytes(code | 0x80 for code in positive)


# --- the safetensors format --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
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
    """What a shard says of itself: tensors in file order, free-form metadata, where the data starts."""

    tensors: tuple[Tensor, ...]
    metadata: dict[str, str]
    data_start: int


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise Refusal(f"the name {key!r} stands twice in the header")
        result[key] = value
    return result


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def _tensor(name: str, entry: Any) -> Tensor:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Refusal(f"tensor {name!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise Refusal(f"tensor {name!r} has the dtype {short(dtype)}, which this program does not know")
    if not _sizes(shape) or len(shape) > DIMENSIONS:
        raise Refusal(f"tensor {name!r} has the shape {short(shape)}; a list of sizes is needed")
    if not _sizes(offsets) or len(offsets) != 2:
        raise Refusal(f"tensor {name!r} has the offsets {short(offsets)}; two positions are needed")
    begin, end = offsets
    needed = math.prod(shape) * DTYPE_BITS[dtype] // 8
    if end - begin != needed:
        raise Refusal(
            f"tensor {name!r} is said to take {end - begin} bytes, but {dtype} of shape {shape} takes {short(needed)}"
        )
    return Tensor(name, dtype, tuple(shape), begin, end)


def parse_header(stream: BinaryIO, file_size: int) -> Header:
    """Read and check the header of a shard of file_size bytes.

    Raises Refusal when it is truncated, too large, no JSON, or describes tensors that overlap, leave holes or
    reach beyond the end of the file.
    """
    prefix = stream.read(8)
    if len(prefix) < 8:
        raise Refusal(f"the file has {file_size} bytes, too few for a safetensors header")
    (length,) = struct.unpack("<Q", prefix)
    if length > HEADER_LIMIT:
        raise Refusal(f"the header is said to have {length} bytes; more than {HEADER_LIMIT} is no safetensors file")
    raw = stream.read(length)
    if len(raw) < length:
        raise Refusal(f"the header should have {length} bytes, the file ends after {len(raw)}")
    try:
        content = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise Refusal(f"the header is not UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise Refusal(f"the header is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise Refusal("the header is not a JSON object")
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Refusal("the header's __metadata__ is not a mapping of texts")
    try:
        "".join((*content, *metadata, *metadata.values())).encode()
    except UnicodeEncodeError as error:
        raise Refusal(f"a name in the header is no text ({error.object[error.start : error.end]!a})") from error
    tensors = sorted((_tensor(n, e) for n, e in content.items()), key=lambda t: (t.begin, t.end))
    position = 0
    for tensor in tensors:
        if tensor.begin < position:
            raise Refusal(f"tensor {tensor.name!r} overlaps the one before it (at byte {tensor.begin})")
        if tensor.begin > position:
            raise Refusal(f"{tensor.begin - position} bytes before tensor {tensor.name!r} belong to no tensor")
        position = tensor.end
    data_start = 8 + length
    if data_start + position != file_size:
        raise Refusal(
            f"the header describes {data_start + position} bytes, the file has {file_size}: "
            f"{'it is cut short' if data_start + position > file_size else 'something was appended'}"
        )
    return Header(tuple(tensors), metadata, data_start)


def header_of(stream: BinaryIO) -> Header:
    """Header of an open shard; a Refusal names the file."""
    try:
        return parse_header(stream, os.fstat(stream.fileno()).st_size)
    except Refusal as refusal:
        raise Refusal(f"{stream.name}: {refusal}; fetch it again if it is damaged") from refusal


def written_header(stream: BinaryIO, head: bytes) -> Header:
    """Header of an open shard of the result, whose first bytes have to be head."""
    name = Path(stream.name).name
    if stream.read(len(head)) != head:
        raise Wrong(f"{name}: the header is not the one this conversion writes")
    stream.seek(0)
    try:
        return parse_header(stream, os.fstat(stream.fileno()).st_size)
    except Refusal as refusal:
        raise Wrong(f"{name}: {refusal}") from refusal


def render_header(tensors: list[Tensor], metadata: dict[str, str]) -> bytes:
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


# --- what happens to each tensor ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What becomes of one tensor: 'copy', 'weight' (the table), 'scale', or 'bf16' (vendor-compatible)."""

    tensor: Tensor
    action: str

    @property
    def result(self) -> tuple[str, int]:
        """Dtype and bytes of the result."""
        if self.action == "scale":
            return "F32", self.tensor.size * 32 // DTYPE_BITS[self.tensor.dtype]
        if self.action == "bf16":
            return FP8, self.tensor.size // 2
        return self.tensor.dtype, self.tensor.size


def weight_scales(name: str) -> list[str]:
    """Names under which the scale of an FP8 weight may stand."""
    return [name + suffix for suffix in SCALE_SUFFIXES]


def input_scales(name: str) -> list[str]:
    """Names of scales of the activations that meet this weight."""
    if name.endswith(".weight"):
        return [name[: -len("weight")] + leaf for leaf in INPUT_SCALES]
    return [f"{name}_{leaf}" for leaf in INPUT_SCALES]


def can_scale(scale: Sequence[int], weight: Sequence[int]) -> bool:
    """Whether a scale of this shape can belong to a weight: one value, or one for each block, row or column."""
    if math.prod(scale) == 1:
        return True
    if len(scale) == 1:
        return scale[0] in weight
    blocks = zip(scale, weight)
    return len(scale) == len(weight) and all(min(values, 1) <= count <= values for count, values in blocks)


def decide(tensors: list[Tensor], vendor_compatible: bool) -> dict[str, str]:
    """Action by tensor name for all tensors of a checkpoint, selected by dtype and partner, not by name.

    Raises Refusal with the tensor's name for an FP8 tensor without a scale, and a scale of another type or shape.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    actions: dict[str, str] = {}
    for tensor in tensors:
        if tensor.dtype != FP8:
            continue
        partners = [by_name[name] for name in weight_scales(tensor.name) if name in by_name]
        if not partners:
            raise Refusal(
                f"the FP8 tensor {tensor.name!r} has no scale ({' or '.join(weight_scales(tensor.name))}); "
                "without one its values would change their meaning"
            )
        actions[tensor.name] = "weight"
        for scale in partners:
            if not can_scale(scale.shape, tensor.shape):
                raise Refusal(
                    f"the scale {scale.name!r} has the shape {list(scale.shape)}, which does not divide its weight's "
                    f"{list(tensor.shape)} into blocks, rows or columns"
                )
        partners += [by_name[name] for name in input_scales(tensor.name) if name in by_name]
        for scale in partners:
            if scale.dtype not in SCALE_DTYPES:
                raise Refusal(
                    f"the scale {scale.name!r} has the dtype {scale.dtype}; {' or '.join(SCALE_DTYPES)} is needed"
                )
            actions[scale.name] = "scale"
    if not actions:
        raise Refusal("there is no FP8 tensor (float8_e4m3fn) in this checkpoint, so there is nothing to convert")
    if vendor_compatible:
        for tensor in tensors:
            if tensor.dtype == "BF16" and tensor.name.endswith("proj.weight"):
                actions[tensor.name] = "bf16"
    return actions


# --- one shard ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """A source file as it was when the work began."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Identity:
        """Read it from the file system."""
        seen = path.stat()
        return cls(seen.st_size, seen.st_mtime_ns, seen.st_ino)


def _exactly(stream: BinaryIO, buffer: memoryview, name: str) -> None:
    """Fill the buffer or refuse: a file that shrinks under us must not become zeros."""
    filled = 0
    while filled < len(buffer):
        count = stream.readinto(buffer[filled:])  # type: ignore[attr-defined]
        if not count:
            raise Refusal(
                f"the source changed while it was read: {name!r} ends too early in {getattr(stream, 'name', 'it')}; "
                "fetch the model again and start over"
            )
        filled += count


def chunks(stream: BinaryIO, size: int, name: str) -> Iterator[bytearray]:
    """The next size bytes in pieces; the piece is only valid until the next one."""
    buffer = bytearray(CHUNK)
    left = size
    while left:
        piece = buffer if left >= CHUNK else bytearray(left)
        _exactly(stream, memoryview(piece), name)
        yield piece
        left -= len(piece)


def converted(
    stream: BinaryIO, step: Step, factor: Factor, table: bytes, bf16_table: bytes
) -> Iterator[bytes | bytearray]:
    """Result bytes of one tensor whose source bytes come next in the stream."""
    tensor = step.tensor
    for piece in chunks(stream, tensor.size, tensor.name):
        if step.action == "weight":
            yield piece.translate(table)
        elif step.action == "scale":
            values = (
                to_float32(array.array("H", bytes(piece))) if tensor.dtype == "BF16" else array.array("f", bytes(piece))
            )
            yield scaled(values, factor).tobytes()
        elif step.action == "bf16":
            yield bytes(map(bf16_table.__getitem__, array.array("H", bytes(piece))))
        else:
            yield piece


def layout(header: Header, actions: dict[str, str], factor: Factor) -> tuple[list[Step], bytes]:
    """Steps in file order and the bytes of the result's header."""
    steps = [Step(tensor, actions.get(tensor.name, "copy")) for tensor in header.tensors]
    results: list[Tensor] = []
    position = 0
    for step in steps:
        dtype, size = step.result
        results.append(Tensor(step.tensor.name, dtype, step.tensor.shape, position, position + size))
        position += size
    return steps, render_header(results, {**header.metadata, MARKER_KEY: factor.name})


def quickest_crc32() -> Callable[[bytes | bytearray, int], int]:
    """CRC-32 as libdeflate computes it, in a fifth of zlib's time, where that library is; else as zlib does.

    The sums are the same. Many packages bring libdeflate (libtiff is one); nothing here needs it.
    """
    try:
        import ctypes

        compute = ctypes.CDLL("libdeflate.so.0").libdeflate_crc32
    except (ImportError, OSError, AttributeError):  # a Python without ctypes, no such library, or another one
        return zlib.crc32
    compute.restype, compute.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)

    def crc32(data: bytes | bytearray, before: int) -> int:
        if not data:
            return before
        where = data if isinstance(data, bytes) else ctypes.addressof(ctypes.c_char.from_buffer(data))
        done: int = compute(before, where, len(data))
        return done

    return crc32


crc32 = quickest_crc32()


class Output:
    """The shard being written: counted, checksummed, and on its way to the disk while the next piece is computed.

    CRC-32 finds every accidental change a disk or a copy makes; SHA-256 would double the time.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.checksum = self.written = self.sent = 0

    def write(self, data: bytes | bytearray) -> None:
        """Append all of data."""
        self.checksum = crc32(data, self.checksum)
        done = self.stream.write(data)
        while done < len(data):  # a disk that is nearly full takes a part
            done += self.stream.write(memoryview(data)[done:])
        self.written += done
        if self.written - self.sent >= WRITE_BEHIND:
            # "Not needed soon" makes Linux start writing these pages at once: the disk and the processor work side by
            # side, and little is left for fsync.
            os.posix_fadvise(self.stream.fileno(), self.sent, self.written - self.sent, os.POSIX_FADV_DONTNEED)
            self.sent = self.written

    def close(self) -> dict[str, Any]:
        """Everything on the disk; returns size and checksum."""
        os.fsync(self.stream.fileno())
        return {"bytes": self.written, "crc32": f"{self.checksum:08x}"}


def convert_shard(
    source: Path, target: Path, actions: dict[str, str], factor: Factor, report: Callable[[int], None]
) -> dict[str, Any]:
    """Convert one shard into target by way of a temporary name; returns size and CRC-32 of the result.

    report is called with the source bytes done since the last call.
    """
    table = weight_table(factor)
    bf16_table = bf16_weight_table(factor) if "bf16" in actions.values() else b""
    temporary = target.with_name(target.name + ".writing")
    try:
        with source.open("rb", buffering=0) as stream, temporary.open("wb", buffering=0) as raw:
            header = header_of(stream)
            steps, head = layout(header, actions, factor)
            out = Output(raw)
            out.write(head)
            unreported = header.data_start
            for step in steps:
                left = step.tensor.size
                for piece in converted(stream, step, factor, table, bf16_table):
                    out.write(piece)
                    unreported += min(CHUNK, left)
                    left -= CHUNK
                    if unreported >= REPORT_EVERY:
                        report(unreported)
                        unreported = 0
            report(unreported)
            result = out.close()
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    fsync_folder(target.parent)
    return result


def verify_shard(
    source: Path,
    target: Path,
    actions: dict[str, str],
    factor: Factor,
    only: Callable[[str], bool] | None = None,
) -> int:
    """Re-read both sides and prove that every (chosen) tensor of target is the conversion of source.

    Returns the number of tensors compared; raises Refusal with the name of the first wrong one.
    """
    table = weight_table(factor)
    bf16_table = bf16_weight_table(factor) if "bf16" in actions.values() else b""
    compared = 0
    with source.open("rb") as left, target.open("rb") as right:
        source_header = header_of(left)
        steps, head = layout(source_header, actions, factor)
        target_header = written_header(right, head)
        for step, result in zip(steps, target_header.tensors):
            if only is not None and not only(step.tensor.name):
                continue
            left.seek(source_header.data_start + step.tensor.begin)
            right.seek(target_header.data_start + result.begin)
            for piece in converted(left, step, factor, table, bf16_table):
                if right.read(len(piece)) != piece:
                    raise Wrong(f"{target.name}: tensor {step.tensor.name!r} is not the conversion of its source")
            compared += 1
    return compared


def sum_of(path: Path) -> dict[str, Any]:
    """Size and CRC-32 of a file, as they are recorded."""
    checksum = size = 0
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(16 * CHUNK):
            checksum = crc32(piece, checksum)
            size += len(piece)
    return {"bytes": size, "crc32": f"{checksum:08x}"}


# --- files and folders -------------------------------------------------------------------------------------


def fsync_folder(folder: Path) -> None:
    """Make a rename inside the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, content: Any, durable: bool = True) -> None:
    """Replace a JSON file in one step."""
    temporary = path.with_name(path.name + ".writing")
    with temporary.open("w", encoding="utf-8") as out:
        json.dump(content, out, indent=1, sort_keys=True)
        out.write("\n")
        if durable:
            out.flush()
            os.fsync(out.fileno())
    temporary.replace(path)
    if durable:
        fsync_folder(path.parent)


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
        raise Refusal(f"{path} is not a regular file; {advice}")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(f"{path} cannot be read as JSON ({error}); {advice}") from error
    if not fits(content, dict):
        raise Refusal(f"{path} does not hold a JSON object; {advice}")
    if not fits(content, form):
        raise Refusal(f"{path} does not say what it has to, so it is damaged; {advice}")
    return content


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a checkpoint."""
    path = folder / "model.safetensors.index.json"
    content = read_json(path, {"metadata?": dict})
    if not fits(content.get("weight_map"), {str: str}):
        raise Refusal(f"{path} has no weight_map of file names; fetch the model again")
    return content


def shards_of(folder: Path) -> list[str]:
    """Names of the shards: the index's when there is one, each of which must be there, else all files."""
    present = sorted(path.name for path in folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        if not present:
            raise Refusal(f"{folder} holds no .safetensors file")
        refuse_special(folder, present)
        return present
    named = sorted(set(read_index(folder)["weight_map"].values()))
    missing = [name for name in named if name not in present]
    if missing:
        raise Refusal(
            f"{len(missing)} of {len(named)} shards named in {index} are not there, the first is {missing[0]!r}: "
            "fetch the model again, its download is not complete"
        )
    refuse_special(folder, named)
    return named


def refuse_special(folder: Path, names: list[str]) -> None:
    """Opening a pipe would wait for ever."""
    for name in names:
        if not (folder / name).is_file():
            raise Refusal(f"{folder / name} is not a regular file; remove it, or fetch the model again")


def carried_files(folder: Path, shards: list[str]) -> list[str]:
    """Relative names of the other files that belong to the served model (tokenizer, configuration, code)."""
    names: list[str] = []
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        linked = next((name for name in folders if (Path(base) / name).is_symlink()), None)
        if linked is not None:
            raise Refusal(
                f"{Path(base) / linked} is a symbolic link to a folder, whose files would be missing in the result. "
                "Put the folder itself there, or remove the link"
            )
        for name in sorted(files):
            if name in shards or name in SKIPPED_NAMES or name.endswith((".safetensors", *SKIPPED_SUFFIXES)):
                continue
            names.append(str((Path(base) / name).relative_to(folder)))
    refuse_special(folder, names)
    return names


def human(size: float) -> str:
    """Bytes for people, in decimal units as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} TB"


# --- the whole checkpoint ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A checkpoint to convert, as it was found."""

    folder: Path
    shards: dict[str, Identity]
    actions: dict[str, dict[str, str]]  # by shard, then by tensor; only tensors that change
    result_bytes: dict[str, int]
    carried: list[str]

    @cached_property
    def fingerprint(self) -> str:
        """Names it in journal and provenance: shard names, sizes, and every decision."""
        seen = [[name, identity.size] for name, identity in sorted(self.shards.items())]
        text = json.dumps([seen, self.actions], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    @property
    def times(self) -> dict[str, int]:
        """When each shard was last written, in nanoseconds since 1970."""
        return {name: identity.mtime_ns for name, identity in self.shards.items()}


def read_headers(folder: Path, shards: list[str]) -> dict[str, Header]:
    """Headers of all shards, checked; Refusal names the file."""
    headers: dict[str, Header] = {}
    for name in shards:
        with (folder / name).open("rb") as stream:
            headers[name] = header_of(stream)
    return headers


def check_names(folder: Path, headers: dict[str, Header]) -> None:
    """Every tensor stands once, and where the index says."""
    home: dict[str, str] = {}
    for shard, header in headers.items():
        for tensor in header.tensors:
            if tensor.name in home:
                raise Refusal(f"the tensor {tensor.name!r} stands in {home[tensor.name]} and again in {shard}")
            home[tensor.name] = shard
    index = folder / "model.safetensors.index.json"
    if index.exists():
        for name, shard in read_index(folder)["weight_map"].items():
            if home.get(name) != shard:
                raise Refusal(f"{index} says that tensor {name!r} is in {shard}, but it is not there")


def refuse_converted(folder: Path, headers: dict[str, Header], actions: dict[str, str], assume: bool) -> None:
    """An input converted before would lose a second 240/448 without any error: refuse it."""
    if (folder / STATE_FOLDER / PROVENANCE).exists():
        raise Refusal(
            f"{folder} was converted before (see {STATE_FOLDER}/{PROVENANCE} in it); converting twice ruins the weights"
        )
    for name, header in headers.items():
        if MARKER_KEY in header.metadata:
            raise Refusal(
                f"{folder / name} was converted before (its header says {MARKER_KEY}={header.metadata[MARKER_KEY]}); "
                "converting twice ruins the weights"
            )
    if assume:
        return
    # A block-quantised checkpoint reaches 448 in nearly every block, because that is how its scales were
    # chosen. Sixteen tensors without one value above 240 were converted by some other program.
    looked = 0
    for name, header in headers.items():
        weights = [t for t in header.tensors if actions.get(t.name) == "weight" and t.size >= 128 * 128]
        with (folder / name).open("rb") as stream:
            for tensor in weights[: 16 - looked]:
                stream.seek(header.data_start + tensor.begin)
                for piece in chunks(stream, tensor.size, tensor.name):
                    if any(CODE_OF_240 < (code & MAGNITUDE) < NAN_CODE for code in set(piece)):
                        return
                looked += 1
        if looked >= 16:
            break
    if looked:
        raise Refusal(
            f"no value in the first {looked} FP8 tensors of {folder} is above 240, so it looks converted already; "
            "converting twice ruins the weights (--assume-unconverted if you know better)"
        )


def examine(folder: Path, vendor_compatible: bool, assume_unconverted: bool, factor: Factor) -> Source:
    """Read every header, decide every tensor; nothing is written."""
    shards = shards_of(folder)
    identities = {name: Identity.of(folder / name) for name in shards}
    headers = read_headers(folder, shards)
    check_names(folder, headers)
    everything = [tensor for header in headers.values() for tensor in header.tensors]
    actions = decide(everything, vendor_compatible)
    refuse_converted(folder, headers, actions, assume_unconverted)
    by_shard: dict[str, dict[str, str]] = {}
    result_bytes: dict[str, int] = {}
    for name, header in headers.items():
        by_shard[name] = {t.name: actions[t.name] for t in header.tensors if t.name in actions}
        steps, head = layout(header, by_shard[name], factor)
        result_bytes[name] = len(head) + sum(step.result[1] for step in steps)
    return Source(folder, identities, by_shard, result_bytes, carried_files(folder, shards))


@dataclass(frozen=True)
class Wish:
    """What the caller asked for."""

    source: Path
    target: Path
    jobs: int
    verify: bool
    factor: Factor
    vendor_compatible: bool
    in_place_space: bool
    assume_unconverted: bool
    progress: Path | None
    check: bool = False

    @property
    def staging(self) -> Path:
        """Where the work is until it is whole."""
        return self.target.with_name(self.target.name + ".partial")

    @property
    def record(self) -> Path:
        """Where the provenance of the finished result is."""
        return self.target / STATE_FOLDER / PROVENANCE

    # What differs between this program and fp8_dynamic.

    tool: ClassVar[str] = "fp8_convert"

    def examine(self) -> Source:
        """The source as it is, every tensor decided."""
        return examine(self.source, self.vendor_compatible, self.assume_unconverted, self.factor)

    def request(self) -> dict[str, Any]:
        """The options that change the result; a continued run must ask for the same."""
        return request_of(self)

    def crew(self, jobs: int) -> Crew:
        """Worker processes."""
        return Crew(jobs)

    def carry(self, source: Source, folder: Path) -> dict[str, Any]:
        """Bring the other files of the model; returns size and CRC-32 of each."""
        return carry(self, source, folder)


WishT = TypeVar("WishT", bound=Wish)


SUM = {"bytes": int, "crc32": str}
DECIDED = {
    "request": dict,
    "source": {str: (int, int, int)},
    "actions": {str: {str: str}},
    "result_bytes": {str: int},
    "carried": [str],
}
RECORDED = {
    "source_fingerprint": str,
    "verified": str,
    "source_times?": {str: int},
    "shards": {str: SUM},
    "carried?": {str: SUM},
    "wrong?": {"files": [str], "seen": str, "others": str},
}


def start_over(wish: Wish) -> str:
    """Advice about a journal that is damaged."""
    return f"remove {wish.staging} to start over, and fetch the model again if --in-place-space gave up shards of it"


class Journal:
    """What was decided and what is done, kept beside the work so that the next run continues with the next shard.

    The decisions are megabytes for a large model and written once; what is done is small and written after every shard.
    """

    def __init__(self, folder: Path, source: Source, in_place_space: bool) -> None:
        self.path = folder / STATE_FOLDER / "journal.json"
        self.done_path = folder / STATE_FOLDER / "done.json"
        self.source = source
        self.in_place_space = in_place_space
        self.done: dict[str, dict[str, Any]] = {}

    @classmethod
    def load(cls, content: dict[str, Any], wish: Wish) -> Journal:
        """Continue a journal; the decisions of the first run stand (its source may be gone, shard by shard)."""
        source = Source(
            wish.source,
            {name: Identity(*values) for name, values in content["source"].items()},
            content["actions"],
            content["result_bytes"],
            content["carried"],
        )
        journal = cls(wish.staging, source, content["in_place_space"])
        if journal.done_path.exists():
            journal.done = read_json(journal.done_path, {str: {**SUM, "whole": bool}}, start_over(wish))
        return journal

    def begin(self, wish: Wish) -> None:
        """Write the decisions durably."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(
            self.path,
            {
                "source": {n: [i.size, i.mtime_ns, i.inode] for n, i in self.source.shards.items()},
                "actions": self.source.actions,
                "result_bytes": self.source.result_bytes,
                "carried": self.source.carried,
                "in_place_space": self.in_place_space,
                "request": request_of(wish),
            },
        )

    def record(self, name: str, result: dict[str, Any]) -> None:
        """Note durably that a shard is done."""
        self.done[name] = result
        self.save()

    def save(self) -> None:
        """Write durably what is done."""
        write_json(self.done_path, self.done)

    def give_up(self, wish: Wish, name: str) -> None:
        """Delete a source shard, if that is wished and every byte of its recorded twin was verified."""
        if wish.in_place_space and self.done[name]["whole"]:
            (wish.source / name).unlink(missing_ok=True)

    def remove_from(self, folder: Path) -> None:
        """Everything is done and said in the provenance; a run that was killed here leaves them, and nobody minds."""
        for name in (self.done_path.name, self.path.name, *LOCKS):
            (folder / STATE_FOLDER / name).unlink()


def request_of(wish: Wish) -> dict[str, Any]:
    """The options that change the result; a continued run must ask for the same."""
    return {
        "version": VERSION,
        "factor": wish.factor.name,
        "table_sha256": table_hash(weight_table(wish.factor)),
        "vendor_compatible": wish.vendor_compatible,
    }


class Progress:
    """Tells how far the work is: to a file for a follower, and in words to standard error."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.terminal = sys.stderr.isatty()
        self.phase, self.done, self.total = "", 0, 0
        self.started = self.said = self.written = time.monotonic()

    def begin(self, phase: str, total: int) -> None:
        """Enter a phase of total bytes."""
        self.phase, self.done, self.total = phase, 0, total
        self.started = time.monotonic()
        self.said = self.written = 0.0
        self.advance(0)

    def advance(self, size: int) -> None:
        """Count size more bytes; writes at most twice a second."""
        self.done += size
        now = time.monotonic()
        if self.path is not None and now - self.written >= 0.5:
            self.written = now
            write_json(self.path, self.state(now), durable=False)
        if now - self.said >= (0.5 if self.terminal else 30.0):
            self.said = now
            self.say(now)

    def state(self, now: float) -> dict[str, Any]:
        """The progress document: bytes, bytes per second, seconds."""
        seconds = now - self.started
        rate = self.done / seconds if seconds > 0 else 0.0
        eta = (self.total - self.done) / rate if rate else None
        return {
            "phase": self.phase,
            "done": self.done,
            "total": self.total,
            "unit": "bytes",
            "rate": round(rate),
            "eta": None if eta is None else round(eta, 1),
            "message": f"{self.phase}: {human(self.done)} of {human(self.total)}",
        }

    def say(self, now: float) -> None:
        """One line; on a terminal it overwrites itself."""
        state = self.state(now)
        eta = "" if state["eta"] is None else f", {state['eta']:.0f} s to go"
        line = f"{state['message']}, {human(state['rate'])}/s{eta}"
        print(
            f"\r\033[K{line}" if self.terminal else line,
            end="" if self.terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        """Leave the phase with its last figures said and written."""
        now = time.monotonic()
        if self.path is not None:
            write_json(self.path, self.state(now), durable=False)
        self.say(now)
        if self.terminal:
            print(file=sys.stderr)


class Worker:
    """One worker process, spoken to in JSON lines over its standard input and output."""

    def __init__(self, command: Sequence[str]) -> None:
        # Nothing is inheritable but what only_one holds for the workers.
        # It inherits that Ctrl-C is blocked: the terminal's is the parent's to handle, from its first moment on.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, close_fds=False
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("a worker was started without pipes")
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.unread = b""

    def give(self, task: dict[str, Any]) -> None:
        """Hand over a task."""
        with contextlib.suppress(BrokenPipeError):  # it ended, which messages says
            self.stdin.write(json.dumps(task).encode() + b"\n")

    def messages(self) -> list[dict[str, Any]]:
        """What it said since the last call; called when its output is ready, raises Refusal when it ended.

        Read from the descriptor: a buffered reader could hold a second line that no selector announces.
        """
        said = os.read(self.stdout.fileno(), 65536)
        if not said:
            raise Refusal(
                f"a worker ended unexpectedly (status {self.process.wait()}); "
                "run the same command again, finished shards are kept"
            )
        *lines, self.unread = (self.unread + said).split(b"\n")
        return [json.loads(line) for line in lines]


class Crew:
    """Worker processes; each gets the next task when it has finished one.

    A worker whose parent was killed ends when it has nobody to answer or to ask; only_one waits for that.
    """

    # -E, -S: nothing of the caller's environment, and no packages, which start slowly and are not needed.
    command: Sequence[str] = (sys.executable, "-E", "-S", "-B", str(PROGRAM), "--worker")

    def __init__(self, jobs: int) -> None:
        self.workers = [Worker(self.command) for _ in range(jobs)]

    def __enter__(self) -> Crew:
        """Workers are there from the beginning."""
        return self

    def __exit__(self, *_: object) -> None:
        """End them, whatever they are doing."""
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.process.communicate()

    def run(
        self,
        tasks: list[dict[str, Any]],
        advance: Callable[[int], None],
        finished: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """Do all tasks; raises Refusal with a worker's own sentence at its first failure."""
        waiting = list(reversed(tasks))
        left = len(waiting)
        with selectors.DefaultSelector() as selector:
            for worker in self.workers:
                selector.register(worker.stdout, selectors.EVENT_READ, worker)
                if waiting:
                    worker.give(waiting.pop())
            while left:
                for key, _ in selector.select():
                    for message in key.data.messages():
                        if "error" in message:
                            raise Refusal(message["error"])
                        if "advance" in message:
                            advance(message["advance"])
                            continue
                        left -= 1
                        if waiting:
                            key.data.give(waiting.pop())
                        finished(message["name"], message["result"])


def explain_os_error(error: OSError) -> str:
    """An operating system's refusal as a sentence."""
    where = error.filename or "the target"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "there is no room left for the result. What is finished is kept: free some room and run the same "
            "command again, or use --in-place-space, which gives up each source shard once its twin is verified"
        )
    if error.errno == errno.EROFS:
        return f"{where} is on a read-only file system; name a target that can be written"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where} may not be opened or written by this user ({error.strerror})"
    if error.errno == errno.ENOENT:
        return f"{where} is not there; put it back, or fetch the model again, then run the same command again"
    return f"{where}: {error.strerror or error}"


def serve_tasks(work: Callable[[dict[str, Any]], dict[str, Any]], explain: Callable[[OSError], str]) -> int:
    """Take tasks as JSON lines, answer with progress and results; ends with the input, or the first task that fails."""
    for line in sys.stdin:
        task = json.loads(line)
        try:
            try:
                result = check_sum(task) if "crc32" in task else work(task)
            except Wrong as wrong:
                if task["convert"]:
                    raise
                result = {"wrong": str(wrong)}
        except Refusal as refusal:
            answer({"error": str(refusal)})
            return 1
        except OSError as error:
            answer({"error": explain(error)})
            return 1
        answer({"name": task["name"], "result": result})
    return 0


def check_sum(task: dict[str, Any]) -> dict[str, Any]:
    """Hold every byte of a file against its record."""
    target = Path(task["target"])
    if sum_of(target) != {key: task[key] for key in SUM}:
        raise Wrong(f"{target.name}: its size or checksum is not the recorded one")
    return {}


def work_on(task: dict[str, Any]) -> dict[str, Any]:
    """Convert one shard, unless it is done, and compare it."""
    source, target = Path(task["source"]), Path(task["target"])
    factor = Factor(*task["factor"])
    result: dict[str, Any] = {}
    if task["convert"]:
        identity = Identity.of(source)
        if identity != Identity(*task["identity"]):
            raise Refusal(f"{source} changed since the conversion began; remove {target.parent} to start over")
        result = convert_shard(source, target, task["actions"], factor, lambda n: answer({"advance": n}))
        if Identity.of(source) != identity:
            target.unlink()
            raise Refusal(f"{source} changed while it was converted; remove {target.parent} to start over")
    chosen = task["only"]
    result["whole"] = chosen is None
    result["compared"] = verify_shard(
        source, target, task["actions"], factor, None if chosen is None else chosen.__contains__
    )
    return result


def worker_main() -> int:
    """Be one worker; returns the exit status."""
    return serve_tasks(work_on, explain_os_error)


def answer(message: dict[str, Any]) -> None:
    """One JSON line to the parent."""
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The parent was killed; what is still in the buffer must not fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def sample(source: Source, shard: str) -> list[str]:
    """Two tensors of a shard whose conversion is checked by default; the same ones for the same input.

    Neighbours by name, so that mostly a weight is seen with its scale.
    """
    names = sorted(source.actions[shard])
    lot = int(hashlib.sha256(f"{source.fingerprint}/{shard}".encode()).hexdigest(), 16)
    return [names[(lot + n) % len(names)] for n in range(min(2, len(names)))]


def tasks_for(wish: Wish, source: Source, shards: list[str], folder: Path, convert: bool) -> list[dict[str, Any]]:
    """Work for the crew in folder, largest shard first so that no worker ends alone with it.

    Every conversion is checked, by a sample unless all was asked for or the source is given up.
    """
    whole = wish.verify or wish.in_place_space
    return [
        {
            "name": name,
            "source": str(source.folder / name),
            "target": str(folder / name),
            "actions": source.actions[name],
            "factor": [wish.factor.name, wish.factor.numerator, wish.factor.denominator],
            "identity": [source.shards[name].size, source.shards[name].mtime_ns, source.shards[name].inode],
            "convert": convert,
            "only": None if whole else sample(source, name),
        }
        for name in sorted(shards, key=lambda n: -source.shards[n].size)
    ]


def sums_for(folder: Path, files: dict[str, Any]) -> list[dict[str, Any]]:
    """Work for the crew: hold files in folder against their recorded sums."""
    return [
        {"name": name, "target": str(folder / name), "convert": False, **{key: seen[key] for key in SUM}}
        for name, seen in sorted(files.items(), key=lambda item: -item[1]["bytes"])
    ]


def found_wrong(wish: Wish, tasks: list[dict[str, Any]]) -> dict[str, str]:
    """Have the crew compare files; returns a sentence for each wrong one, by name."""
    sizes = {task["name"]: Path(task["target"]).stat().st_size for task in tasks}
    wrong: dict[str, str] = {}
    progress = Progress(wish.progress)
    progress.begin("verify", sum(sizes.values()))

    def finished(name: str, result: dict[str, Any]) -> None:
        progress.advance(sizes[name])
        if "wrong" in result:
            wrong[name] = result["wrong"]

    with wish.crew(max(1, min(wish.jobs, len(tasks)))) as crew:
        crew.run(tasks, progress.advance, finished)
    progress.end()
    return wrong


# What else can be done where there is no room.
ELSEWHERE = (
    ", choose another target, or use --in-place-space, which gives up each source shard once its twin is verified"
)


def check_room(wish: Wish, source: Source, missing: list[str], replaced: bool = False) -> None:
    """Refuse before the first byte when the result does not fit; three numbers, all in bytes.

    replaced: every shard takes the place of another one, so that only those under work are there twice.
    """
    sizes = [source.result_bytes[name] for name in missing]
    needed = sum(sorted(sizes)[-wish.jobs :]) if replaced or wish.in_place_space else sum(sizes)
    needed += sum((source.folder / name).stat().st_size for name in source.carried)
    folder = wish.target.parent
    while not folder.exists():
        folder = folder.parent
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        raise Refusal(
            f"converting {len(missing)} shards needs {human(needed)} on the file system of {wish.target}, "
            f"{human(free)} are free: {human(needed - free)} are missing. Free some room{'' if replaced else ELSEWHERE}"
        )


def open_journal(wish: Wish) -> Journal:
    """Continue the work in the staging folder, or examine the source and begin."""
    path = wish.staging / STATE_FOLDER / "journal.json"
    if path.exists():
        content = read_json(path, {**DECIDED, "in_place_space": bool}, start_over(wish))
        if content["request"] != request_of(wish):
            raise Refusal(
                f"{wish.staging} was begun with other options ({json.dumps(content['request'], sort_keys=True)}); "
                "use the same, or remove it to start over"
            )
        journal = Journal.load(content, wish)
        if wish.in_place_space and not journal.in_place_space:  # as the sentence about a full disk advises
            journal.in_place_space = True
            journal.begin(wish)
        check_room(wish, journal.source, [name for name in journal.source.shards if name not in journal.done])
        return journal
    source = examine(wish.source, wish.vendor_compatible, wish.assume_unconverted, wish.factor)
    check_room(wish, source, list(source.shards))
    journal = Journal(wish.staging, source, wish.in_place_space)
    journal.begin(wish)
    return journal


def check_done(wish: Wish, journal: Journal) -> None:
    """Drop from the journal what is no longer as it was recorded; refuse a source that changed."""
    for name, identity in journal.source.shards.items():
        source, target = wish.source / name, wish.staging / name
        if name in journal.done and (not target.exists() or target.stat().st_size != journal.done[name]["bytes"]):
            del journal.done[name]
        if source.exists():
            if Identity.of(source) != identity:
                raise Refusal(f"{source} changed since the conversion began; remove {wish.staging} to start over")
        elif name not in journal.done:
            raise Refusal(f"{source} is gone and its conversion is not finished; fetch it again, then run this again")


def carry(wish: Wish, source: Source, folder: Path) -> dict[str, Any]:
    """Copy tokenizer, configuration and code into folder; rewrite the index for sizes that changed."""
    index = "model.safetensors.index.json"
    for name in source.carried:
        if name == index:
            content = read_index(wish.source)
            content.setdefault("metadata", {})["total_size"] = total_size(folder, list(source.shards))
            write_json(folder / name, content)
        else:
            copy_file(wish.source / name, folder / name)
    return {name: sum_of(folder / name) for name in source.carried}


def copy_file(source: Path, target: Path) -> None:
    """Copy a file in one step, durably."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".writing")
    shutil.copyfile(source, temporary)
    with temporary.open("rb") as copy:
        os.fsync(copy.fileno())
    temporary.replace(target)


def total_size(folder: Path, shards: list[str]) -> int:
    """Bytes of all tensors, as the index states them."""
    return sum(tensor.size for header in read_headers(folder, shards).values() for tensor in header.tensors)


def manifest_hash(folder: Path) -> str | None:
    """SHA-256 over the files the downloader recorded: names, sizes, checksums, not when they came; None without."""
    path = folder / STATE_FOLDER / "manifest.json"
    if not path.exists():
        return None
    return hashlib.sha256(json.dumps(read_json(path).get("files"), sort_keys=True).encode("utf-8")).hexdigest()


def provenance(wish: Wish, journal: Journal, carried: dict[str, Any]) -> dict[str, Any]:
    """What was made, from what, by what; written last, so that its presence means the result is whole."""
    return {
        "schema": 1,
        "tool": "fp8_convert",
        **request_of(wish),
        "validated_on_hardware": False,
        "usable_with_published_measurements": wish.factor == GAUDI2,
        "source": str(wish.source),
        "source_fingerprint": journal.source.fingerprint,
        "source_manifest_sha256": manifest_hash(wish.source),
        "source_times": journal.source.times,
        "in_place_space": journal.in_place_space,
        "verified": EVERY_BYTE if all(done["whole"] for done in journal.done.values()) else "a sample",
        "shards": {name: {key: done[key] for key in SUM} for name, done in sorted(journal.done.items())},
        "carried": carried,
    }


def already_there(wish: Wish) -> dict[str, Any] | None:
    """Provenance of the target when it is the finished conversion of this source, None when there is no target.

    Raises Refusal for anything else in its place, and for a source that is not the one it was made from; without a
    source, the record is what there is. Files that a verification found wrong are named under "wrong": they can be made
    anew from the source, which has to be there.
    """
    if not wish.target.exists():
        return None
    made = read_json(wish.record, dict, move_away(wish)) if wish.record.exists() else {}
    if made.get("tool") != wish.tool:
        raise Refusal(
            f"{wish.target} exists and is not a conversion of this program; it is not touched, name another target"
        )
    read_json(wish.record, RECORDED, move_away(wish))
    wrong = made.get("wrong")
    for name, written in {**made["shards"], **made.get("carried", {})}.items():
        path = wish.target / name
        if wrong and name in wrong["files"]:
            continue
        if not path.is_file() or path.stat().st_size != written["bytes"]:
            raise Refusal(f"{path} is not as it was written; remove {wish.target} and convert again")
    if {key: made.get(key) for key in wish.request()} != wish.request():
        raise Refusal(f"{wish.target} was converted with other options; name another target or remove it")
    if wrong:
        if not all((wish.source / name).exists() for name in made["shards"]):
            raise Refusal(
                f"{wish.target} was found wrong at {wrong['seen']} ({', '.join(wrong['files'])}), and {wish.source}, "
                "which it was made from, is gone. Fetch that again, then run this again: what is wrong is made anew"
            )
    elif source_given_up(wish, made):
        return made
    manifest = manifest_hash(wish.source)
    other_content = manifest is not None and made.get("source_manifest_sha256") not in (None, manifest)
    if wish.examine().fingerprint != made["source_fingerprint"] or other_content:
        raise Refusal(
            f"{wish.target} was converted from another input than {wish.source}; name another target or remove it"
        )
    return made


def move_away(wish: Wish) -> str:
    """Advice about a record that is damaged."""
    return f"move {wish.target} away and run this again"


def source_given_up(wish: Wish, made: dict[str, Any]) -> bool:
    """Whether only the result is there: its shards were deleted one by one, or the folder since."""
    return bool(made.get("in_place_space")) or not wish.source.is_dir()


def touched(wish: Wish, made: dict[str, Any]) -> bool:
    """Whether shards that no downloader keeps a record of were written since: only reading them tells what became."""
    if source_given_up(wish, made) or manifest_hash(wish.source) is not None:
        return False
    times = made.get("source_times", {})
    return any((wish.source / name).stat().st_mtime_ns != written for name, written in times.items())


def check_result(wish: Wish, made: dict[str, Any]) -> str:
    """Re-read every byte of a finished conversion and note in its provenance what was found.

    Shards are held against their source, or against the record where the source is gone; other files always against it.
    """
    alone = source_given_up(wish, made)
    carried = made.get("carried", {})
    if alone:
        tasks = sums_for(wish.target, {**made["shards"], **carried})
    else:
        source = wish.examine()
        tasks = tasks_for(replace(wish, verify=True), source, list(source.shards), wish.target, convert=False)
        tasks += sums_for(wish.target, carried)
    wrong = found_wrong(wish, tasks)
    if wrong:
        seen = datetime.now(timezone.utc).isoformat(timespec="seconds")
        others = made["verified"] if alone else EVERY_BYTE
        note = {"files": sorted(wrong), "seen": seen, "others": others}
        write_json(wish.record, {**made, "verified": FOUND_WRONG, "wrong": note})
        also = f" ({len(wrong)} of {len(tasks)} files are wrong, see {wish.record})" if len(wrong) > 1 else ""
        raise Refusal(
            f"{wrong[min(wrong)]}{also}. {f'Fetch {wish.source} again, then run' if alone else 'Run'} the same command "
            f"again: what is wrong in {wish.target} is converted anew"
        )
    if alone:
        return (
            f"{wish.target}: {len(tasks)} files are to the byte what was written (held against the checksums in its "
            f"record; {wish.source}, which it was made from, was given up)."
        )
    write_json(wish.record, {**made, "verified": EVERY_BYTE, "source_times": source.times})
    return f"{wish.target} is the conversion of {wish.source}, every byte of it."


def remove_unfinished(folder: Path) -> None:
    """Remove shards that nobody is writing any more."""
    for left_over in folder.glob("*.writing"):
        left_over.unlink()


@contextlib.contextmanager
def nothing_half(folder: Path, save: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Whatever ends the work early: half shards do not stay, and what is finished is on record.

    On a full disk there was no room for that record, as long as others wrote on.
    """
    try:
        yield
    except BaseException:
        remove_unfinished(folder)
        save()
        raise


def mend(wish: Wish, made: dict[str, Any]) -> dict[str, Any]:
    """Convert anew, in place, what a verification found wrong; returns the provenance, good again."""
    note = made["wrong"]
    with only_one(wish, wish.target):
        source = wish.examine()
        remove_unfinished(wish.target)
        done: dict[str, Any] = {}
        names = [name for name in source.shards if name in note["files"]]
        check_room(wish, source, names, replaced=True)
        progress = Progress(wish.progress)
        progress.begin("convert", sum(source.shards[name].size for name in names))
        tasks = tasks_for(replace(wish, verify=True), source, names, wish.target, convert=True)
        with nothing_half(wish.target), wish.crew(max(1, min(wish.jobs, len(names)))) as crew:
            crew.run(tasks, progress.advance, done.__setitem__)
        progress.end()
        shards = {name: {key: result[key] for key in SUM} for name, result in done.items()}
        carried = wish.carry(source, wish.target)
        made = {key: value for key, value in made.items() if key != "wrong"}
        times = {**made.get("source_times", {}), **{name: source.times[name] for name in names}}
        made.update(verified=note["others"], source_times=times, shards={**made["shards"], **shards}, carried=carried)
        write_json(wish.record, made)
        for name in LOCKS:
            (wish.target / STATE_FOLDER / name).unlink()
    return made


def look_after(wish: Wish, made: dict[str, Any]) -> str:
    """Mend or verify a finished conversion, where that is needed or asked for; returns the closing sentence."""
    wrong = made.get("wrong")
    if wrong:
        made = mend(wish, made)
    if wish.verify or touched(wish, made):
        return check_result(wish, made)
    if wrong:
        return f"{wish.target}: converted anew what was found wrong ({', '.join(wrong['files'])})."
    return f"{wish.target} is already the conversion of {wish.source}; nothing to do."


def recheck(wish: Wish, source: Source, done: dict[str, dict[str, Any]]) -> None:
    """Compare what earlier runs finished with its source; what is wrong is forgotten, and so converted anew."""
    here = [name for name in done if (wish.source / name).exists()]
    given_up = {name: done[name] for name in done if name not in here}
    tasks = tasks_for(wish, source, here, wish.staging, convert=False) + sums_for(wish.staging, given_up)
    for name, why in found_wrong(wish, tasks).items() if tasks else ():
        if name in given_up:
            raise Refusal(f"{why}, and its source was given up. Fetch {wish.source} again; {start_over(wish)}")
        print(f"{why}; it is converted anew", file=sys.stderr)
        del done[name]
    for result in done.values():
        result["whole"] = True


def ask_anew(*folders: Path) -> None:
    """Have a network file system ask its server for what is in folders; those that are not there are left out.

    NFS believes for 30 to 60 s what it saw of a folder last, also that a name is not there (acdirmin and acdirmax in
    nfs(5)). To open the folder makes it ask. gaudi_weights/record.py has the same; this program stands alone.
    """
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.scandir(folder).close()


def check_places(wish: Wish) -> None:
    """Source and target must be two folders, neither inside the other, and the staging folder ours."""
    for folder in (wish.source, wish.target):  # a node that shares them may have been at work
        ask_anew(folder.parent, folder, folder / STATE_FOLDER)
    if not wish.source.is_dir() and not (wish.target / STATE_FOLDER / PROVENANCE).exists():
        raise Refusal(f"{wish.source} is not a folder; name the folder that holds the checkpoint")
    source, target = wish.source.resolve(), wish.target.resolve()
    if source == target or source in target.parents or target in source.parents:
        raise Refusal(f"{wish.target} and {wish.source} are one inside the other; name a target beside the source")
    if wish.target.is_symlink() and not wish.target.exists():
        raise Refusal(f"{wish.target} is a link to {wish.target.readlink()}, which is not there; remove the link")
    ours = wish.staging / STATE_FOLDER / "journal.json"
    if wish.staging.exists() and not ours.exists() and any(e.name != STATE_FOLDER for e in wish.staging.iterdir()):
        raise Refusal(f"{wish.staging} exists and was not made by this program; remove it or name another target")


@contextlib.contextmanager
def only_one(wish: Wish, place: Path | None = None) -> Iterator[None]:
    """Hold the locks of this target, in place (else where the work is); a second conversion into it is refused.

    The second lock is inherited by the workers and free only when all have ended. Who holds the first can wait for
    it: only workers of a killed run can have it, and they would rename what they were writing into our result.
    """
    folder = (place or wish.staging) / STATE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    own, shared = (folder / name for name in LOCKS)
    with no_empty_folder(folder), own.open("a") as lock, shared.open("a") as workers:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refusal(f"another conversion into {wish.target} is running; wait for it or stop it first") from error
        try:
            fcntl.flock(workers, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waits for the workers of a run that was killed; they end by themselves", file=sys.stderr)
            fcntl.flock(workers, fcntl.LOCK_EX)
        os.set_inheritable(workers.fileno(), True)
        yield


@contextlib.contextmanager
def no_empty_folder(state: Path) -> Iterator[None]:
    """Remove in the end what untouched could not: NFS keeps a removed file that is open, under another name."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            state.rmdir()
            state.parent.rmdir()


@contextlib.contextmanager
def untouched(wish: Wish) -> Iterator[None]:
    """Leave no trace of an attempt that fails before anything was begun."""
    try:
        yield
    except BaseException:
        if wish.staging.exists() and not (wish.staging / STATE_FOLDER / "journal.json").exists():
            shutil.rmtree(wish.staging, ignore_errors=True)
        raise


def convert(wish: Wish) -> str:
    """Do what the wish says; returns the closing sentence."""
    check_places(wish)
    made = already_there(wish)
    if made:
        return look_after(wish, made)
    with only_one(wish), untouched(wish):
        journal = open_journal(wish)
        check_done(wish, journal)
        compared = work(wish, journal)
        carried = carry(wish, journal.source, wish.staging)
        write_json(wish.staging / STATE_FOLDER / PROVENANCE, provenance(wish, journal, carried))
        # Until the rename the journal is there: a run killed before it continues, one killed after it is done.
        wish.staging.rename(wish.target)
        fsync_folder(wish.target.parent)
        journal.remove_from(wish.target)
    size = sum(shard["bytes"] for shard in journal.done.values())
    return f"{wish.target}: {len(journal.done)} shards, {human(size)}, {compared} tensors compared with their source."


def is_done(wish: Wish) -> bool:
    """Whether converting would do nothing. Refuses where converting would, as far as that can be seen by looking."""
    check_places(wish)
    made = already_there(wish)
    if made is None or "wrong" in made or touched(wish, made):
        return False
    return not wish.verify or made["verified"] == EVERY_BYTE


def work(wish: Wish, journal: Journal) -> int:
    """Convert what the journal does not have, check it; returns the number of tensors compared."""
    if wish.verify and journal.done:
        recheck(wish, journal.source, journal.done)
        journal.save()
    missing = [name for name in journal.source.shards if name not in journal.done]
    if missing and len(missing) < len(journal.source.shards):
        print(
            f"continuing: {len(journal.done)} of {len(journal.source.shards)} shards are done",
            file=sys.stderr,
        )
    remove_unfinished(wish.staging)
    for name in journal.done:
        journal.give_up(wish, name)
    progress = Progress(wish.progress)
    progress.begin("convert", sum(journal.source.shards[name].size for name in missing))
    compared = 0

    def finished(name: str, result: dict[str, Any]) -> None:
        nonlocal compared
        compared += result["compared"]
        journal.record(name, result)
        journal.give_up(wish, name)

    with nothing_half(wish.staging, journal.save), Crew(max(1, min(wish.jobs, len(missing)))) as crew:
        crew.run(tasks_for(wish, journal.source, missing, wish.staging, convert=True), progress.advance, finished)
    progress.end()
    return compared


def positive(text: str) -> int:
    """Argument type: a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """What everything that runs as long work of a node takes."""
    parser.add_argument("--check", action="store_true",
                        help="only say whether OUT is the finished conversion of IN; status 3 if not")  # fmt: skip
    follower = os.environ.get("GAUDI_JOB_PROGRESS")  # set where this runs as long work of a node
    parser.add_argument("--progress", type=Path, metavar="FILE", default=Path(follower) if follower else None,
                        help="keep a JSON progress document there")  # fmt: skip


def parse_arguments(arguments: list[str]) -> Wish:
    """The command line; argparse ends the program with status 2 when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="fp8_convert.py",
        description="Convert a block-quantised FP8 checkpoint to the FP8 range of Gaudi2.",
    )
    parser.add_argument("source", metavar="IN", type=Path, help="folder of the published checkpoint; never changed")
    parser.add_argument("target", metavar="OUT", type=Path, help="folder that appears when everything is done")
    parser.add_argument(
        "--jobs", type=positive, default=min(8, os.cpu_count() or 1), help="worker processes (%(default)s)"
    )
    parser.add_argument("--verify", action="store_true", help="re-read and compare every byte, not only a sample")
    parser.add_argument("--vendor-compatible", action="store_true",
                        help="also turn bf16 '*proj.weight' (eh_proj) into FP8 without a scale, "
                             "as the vendor's script does")  # fmt: skip
    parser.add_argument("--exact-half", action="store_true",
                        help="use the factor 1/2, exact for 236 of 252 codes; not validated on hardware, "
                             "not usable with published measurement files")  # fmt: skip
    parser.add_argument("--in-place-space", action="store_true",
                        help="delete each source shard once its converted twin is verified and recorded")  # fmt: skip
    parser.add_argument("--assume-unconverted", action="store_true",
                        help="skip the test that refuses weights without any value above 240")  # fmt: skip
    add_job_arguments(parser)
    given = parser.parse_args(arguments)
    return Wish(
        given.source.absolute(),
        given.target.absolute(),
        given.jobs,
        given.verify,
        EXACT_HALF if given.exact_half else GAUDI2,
        given.vendor_compatible,
        given.in_place_space,
        given.assume_unconverted,
        given.progress,
        given.check,
    )


def _interrupted(signum: int, _frame: Any) -> NoReturn:
    raise KeyboardInterrupt(signum)


def carry_out(
    name: str,
    wish: WishT,
    done: Callable[[WishT], bool],
    work: Callable[[WishT], str],
    explain: Callable[[OSError], str],
) -> int:
    """Do what was asked, or only look whether it is done, and say how it ended; returns the exit status."""
    try:
        signal.signal(signal.SIGTERM, _interrupted)
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            signal.signal(signal.SIGINT, _interrupted)
        if wish.check:
            finished = done(wish)
            print("converted" if finished else "not converted yet")
            return 0 if finished else 3
        print(work(wish))
    except Refusal as refusal:
        print(f"{name}: {refusal}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{name}: {explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run the same command to continue with the next shard", file=sys.stderr)
        return 130
    return 0


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    if arguments == ["--worker"]:
        return worker_main()
    return carry_out("fp8_convert", parse_arguments(arguments), is_done, convert, explain_os_error)
