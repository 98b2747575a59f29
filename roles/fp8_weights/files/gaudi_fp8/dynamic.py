"""Turn the language model of a bfloat16 checkpoint into FP8 for Gaudi2, a scale for every output channel.

The server quantises activations while it runs ("dynamic"); what has to be made beforehand are the weights:

    scale  = (max|w| + 1e-8) / 240      of each output channel, rounded to bfloat16 after each step
    weight = w / scale                  rounded to bfloat16, cut at 240, rounded to float8_e4m3fn

in the precision of the vendor's script, which computes in the dtype of the weights (torch, bfloat16), to the bit.
A matrix [out, in] gets a scale for each row, fused experts [experts, in, out] one for each expert and column. Vision
and audio towers, biases, norms, embeddings, routers and whatever --keep names stay as they are and are listed in
config.json, since the server would otherwise read them as FP8.

No torch and no numpy: with a known scale the code of a weight is the sum of two table entries, one for each byte of
the bfloat16 (see addends), and long integers add and compare thousands of them at once. Files are read, written and
recorded as by fp8_convert. Python 3.9 and the standard library.

    fp8_dynamic.py IN OUT [--jobs N] [--verify] [--keep PATTERN]

IN is never changed. OUT appears, complete, in one rename; the same command continues after any interruption.
Exit status: 0 done (or done before), 1 refused or failed (one sentence), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import errno
import fnmatch
import functools
import hashlib
import json
import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from . import block as fp8
from .block import Header, Refusal, Tensor

PROGRAM = Path(__file__).absolute().parents[1] / "fp8_dynamic.py"
VERSION = "1"
MARKER = "per channel, 240"
# Base fields of a wish; there is no factor in this conversion.
CHANNEL = fp8.Factor(MARKER, 1, 1)

FP8_MAX = 240
CODE_OF_MAX = 0x77
TINY = 0x322C  # 1e-8 as bfloat16, which is what torch adds to a bfloat16 tensor
SIGN = 0x8000
INFINITY = 0x7F80  # bfloat16; what is above is no number
CODE_OF_ONE, BINADE = 0x38, 8  # and codes in one binade of FP8
FRACTION = 128  # patterns of a bfloat16 in one binade
# Quotients below 2^-12 are zero in FP8, and none reaches 2^9: a scale is at least its channel's maximum / 243.
LOWEST, HIGHEST = -12, 9

NEGATIVE = bytes(code | 0x80 for code in range(256))  # a code's sign set

# Parts of a name that stand for towers in front of the language model. The vendor's script knows "visual" only.
TOWERS = frozenset(
    {"visual", "vision_tower", "vision_model", "vision_encoder", "audio_tower", "audio_encoder", "audio_model",
     "multi_modal_projector", "mm_projector", "talker", "token2wav", "code2wav"}
)  # fmt: skip
SCALE = "_scale"
# The fork loads these as one layer each and refuses a mixture (is_layer_skipped in quant_utils.py).
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
# Names of the hub -> names of the server (hf_to_vllm_mapper of qwen3_vl.py, fork 17a7946f).
SERVER_NAMES = (
    ("model.visual.", "visual."),
    ("model.language_model.", "language_model.model."),
    ("lm_head", "language_model.lm_head"),
)

PIECE = 4 * 1024 * 1024  # bytes of the source in memory at a time, rounded to whole rows; at most one row more
LARGEST_ROW = 32 * 1024 * 1024  # bytes


# --- the arithmetic ----------------------------------------------------------------------------------------


def float32(value: float) -> float:
    """The float32 nearest to a double; a sum or quotient of two float32 comes out as if rounded once."""
    result: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return result


def bfloat16(value: float) -> int:
    """Pattern of the bfloat16 nearest to a non-negative float32, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def value_of(pattern: int) -> float:
    """Value of a bfloat16 pattern."""
    result: float = struct.unpack("<f", struct.pack("<I", pattern << 16))[0]
    return result


def scale_pattern(largest: int) -> int:
    """Bfloat16 pattern of the scale of a channel whose largest magnitude has the given pattern."""
    moved = bfloat16(float32(value_of(largest) + value_of(TINY)))
    return bfloat16(float32(value_of(moved) / FP8_MAX))


@functools.cache
def _codes() -> bytes:
    """FP8 codes of the bfloat16 numbers from 2^LOWEST to 2^HIGHEST, cut at 240."""
    first = (127 + LOWEST) * FRACTION
    values = (Fraction(value_of(first + step)) for step in range((HIGHEST - LOWEST) * FRACTION))
    return bytes(fp8.nearest_e4m3(min(value, Fraction(FP8_MAX))) for value in values)


@functools.lru_cache(maxsize=FRACTION)
def _binades(fraction: int) -> bytes:
    """Codes of w / scale for a scale 1.fraction x 2^0 and w from 2^(LOWEST + 1) to 2^HIGHEST.

    The rounding of a quotient does not depend on exponents, so that one binade of it serves all.
    """
    codes = _codes()
    quotients = [
        bfloat16(float32((FRACTION + step) / (FRACTION + fraction))) - 127 * FRACTION for step in range(FRACTION)
    ]
    return bytes(
        codes[quotient + (exponent - LOWEST) * FRACTION]
        for exponent in range(LOWEST + 1, HIGHEST)
        for quotient in quotients
    )


@functools.lru_cache(maxsize=256)
def table_of(scale: int) -> bytes:
    """65536 bytes: FP8 code of every bfloat16 pattern divided by a scale; w beyond 2^9 scales give 240."""
    exponent, fraction = divmod(scale, FRACTION)
    zeros = (exponent + LOWEST + 1) * FRACTION
    positive = (bytes(zeros) + _binades(fraction)).ljust(SIGN, bytes([CODE_OF_MAX]))[:SIGN]
    return positive + positive.translate(NEGATIVE)


@functools.cache
def table_hash() -> str:
    """Names the arithmetic in journals and provenance: all tables of scales with exponent 0, hashed."""
    text = b"".join(_binades(fraction) for fraction in range(FRACTION))
    return hashlib.sha256(text).hexdigest()


@functools.lru_cache(maxsize=256)
def addends(scale: int) -> tuple[bytes, bytes, bytes]:
    """Tables for the upper and the lower byte of a bfloat16 whose sum is the code, and which upper bytes are rare.

    Codes count on through the binades and a quotient's rounding does not depend on its exponent, so the code of a
    normal FP8 number is 8 for each binade plus a number of 0 to 16 that only the fraction decides. Rare are the
    subnormal ones, below 1/15000 of a channel's maximum: for them the sum is wrong and table_of is asked.
    """
    exponent, fraction = divmod(scale, FRACTION)
    one = CODE_OF_ONE - BINADE
    unit = _binades(fraction)[-(LOWEST + 1) * FRACTION :][:FRACTION]
    lower = bytes(BINADE * (low // FRACTION) + unit[low % FRACTION] - one for low in range(256))
    sums = [one + BINADE * (2 * high - exponent) for high in range(128)]
    rare = [value + lower[0] < BINADE or value > CODE_OF_MAX for value in sums]
    upper = bytes(0 if never else value for value, never in zip(sums, rare))
    return upper + upper.translate(NEGATIVE), lower, bytes(rare) * 2


def codes_of(upper: bytes, lower: bytes, scale: int) -> bytes:
    """FP8 codes of the bfloat16 numbers with these upper and lower bytes, all of one channel."""
    table_upper, table_lower, rare = addends(scale)
    # One addition for all: no sum reaches 256, so nothing is carried into a neighbour.
    total = int.from_bytes(upper.translate(table_upper), "little") + int.from_bytes(
        lower.translate(table_lower), "little"
    )
    codes = bytearray(total.to_bytes(len(upper), "little"))
    marks = upper.translate(rare)
    at = marks.find(1)
    while at >= 0:
        codes[at] = table_of(scale)[upper[at] << 8 | lower[at]]
        at = marks.find(1, at + 1)
    return bytes(codes)


@functools.lru_cache(maxsize=64)
def _lanes(pattern: bytes, count: int) -> int:
    return int.from_bytes(pattern * count, "little")


def largest(piece: bytes, unit: int, count: int) -> array.array[int]:
    """Largest magnitudes, as bfloat16 patterns: position by position over count vectors of unit numbers each.

    Halves are compared as two long integers of 15-bit lanes, which is ten times as fast as number by number.
    """
    values = int.from_bytes(piece, "little") & _lanes(b"\xff\x7f", unit * count)
    while count > 1:
        count = (count + 1) // 2
        lanes = unit * count
        flags = _lanes(b"\x00\x80", lanes)
        low, high = values & _lanes(b"\xff\xff", lanes), values >> 16 * lanes
        larger = ((low | flags) - high) & flags  # the flag of a lane survives where low >= high
        values = high ^ ((low ^ high) & (larger - (larger >> 15)))
    return array.array("H", values.to_bytes(2 * unit, "little"))


# --- what happens to each tensor ---------------------------------------------------------------------------


def module_of(name: str) -> str:
    """Name of the layer a weight belongs to; fused experts are named like a layer themselves."""
    return name[: -len(".weight")] if name.endswith(".weight") else name


def is_tower(name: str) -> bool:
    """Whether a tensor is part of a vision or audio tower."""
    return not TOWERS.isdisjoint(name.split("."))


def is_projection(tensor: Tensor) -> bool:
    """Whether a tensor is the weight of a projection of the language model: a matrix, or fused experts."""
    leaf = module_of(tensor.name).rsplit(".", 1)[-1]
    dimensions = 2 if tensor.name.endswith(".weight") else 3
    return leaf.endswith("proj") and len(tensor.shape) == dimensions and not is_tower(tensor.name)


def kept(name: str, keep: tuple[str, ...]) -> bool:
    """Whether --keep names the layer: its whole name, a pattern, or the last part."""
    module = module_of(name)
    return any(fnmatch.fnmatchcase(module, p) or module.rsplit(".", 1)[-1] == p for p in keep)


def decide(tensors: list[Tensor], keep: tuple[str, ...]) -> dict[str, str]:
    """Action by tensor name: 'rows' for matrices, 'columns' for fused experts; what is absent is copied.

    Raises Refusal with a tensor's name for what cannot be converted.
    """
    names = {tensor.name for tensor in tensors}
    actions: dict[str, str] = {}
    for tensor in tensors:
        if tensor.dtype.startswith("F8_"):
            raise Refusal(
                f"the tensor {tensor.name!r} is FP8 ({tensor.dtype}) already; this program starts from bfloat16. "
                "Block-quantised FP8 is converted by fp8_convert.py"
            )
        if not is_projection(tensor):
            continue
        if kept(tensor.name, keep):
            if len(tensor.shape) == 3:
                raise Refusal(f"the fused experts {tensor.name!r} cannot be kept: the server reads all experts as FP8")
            continue
        if tensor.dtype != "BF16":
            raise Refusal(f"the tensor {tensor.name!r} has the dtype {tensor.dtype}; BF16 is needed")
        if 0 in tensor.shape:
            raise Refusal(f"the tensor {tensor.name!r} of shape {list(tensor.shape)} holds nothing")
        if tensor.name + SCALE in names:
            raise Refusal(f"the tensor {tensor.name!r} has a scale already ({tensor.name + SCALE!r})")
        if 2 * tensor.shape[-1] > LARGEST_ROW:
            raise Refusal(f"a row of {tensor.name!r} has {2 * tensor.shape[-1]} bytes, more than this program holds")
        actions[tensor.name] = "rows" if len(tensor.shape) == 2 else "columns"
    if not actions:
        raise Refusal(
            "there is no bfloat16 '*proj' layer of a language model in this checkpoint, so there is nothing to convert"
        )
    _refuse_mixtures(names, actions)
    return actions


def _refuse_mixtures(names: set[str], actions: Mapping[str, str]) -> None:
    for name in sorted(actions):
        base, _, leaf = module_of(name).rpartition(".")
        for parts in FUSED:
            for part in parts if leaf in parts else ():
                other = f"{base}.{part}.weight"
                if other in names and other not in actions:
                    raise Refusal(f"{other!r} is kept but {name!r} is not: the server loads both as one layer")


def ignored_layers(tensors: list[Tensor], actions: Mapping[str, str]) -> list[str]:
    """Layers the server must not read as FP8, under the hub's and under the server's names.

    Both, because the pinned fork asks for the attention of the vision tower as model.visual...qkv and for its other
    layers as visual... (qwen2_5_vl.py and qwen3_vl.py at 17a7946f).
    """
    found: set[str] = set()
    for tensor in tensors:
        if tensor.name.endswith(".weight") and len(tensor.shape) == 2 and tensor.name not in actions:
            module = module_of(tensor.name)
            found.add(module)
            for hub, server in SERVER_NAMES:
                if module.startswith(hub):
                    found.add(server + module[len(hub) :])
    return sorted(found)


def quantization_config(ignored: list[str]) -> dict[str, Any]:
    """What the fork reads (Fp8Config.from_config, 17a7946f): ``channel`` under quant_scheme, nothing else, makes
    it expect a scale for each channel."""
    return {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "quant_scheme": "channel",
        "ignored_layers": ignored,
    }


# --- one shard ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A tensor of the result: where its bytes come from, and how."""

    result: Tensor
    source: Tensor
    action: str  # 'copy', 'rows', 'columns', 'scale'


def layout(header: Header, actions: Mapping[str, str]) -> tuple[list[Part], bytes]:
    """Tensors of the result in file order, and the bytes of its header.

    Wide types first, as the library orders them: a float32 behind an odd number of bytes could not be viewed.
    """
    parts: list[tuple[str, tuple[int, ...], str, Tensor, str]] = []
    for tensor in header.tensors:
        action = actions.get(tensor.name, "copy")
        parts.append((tensor.name, tensor.shape, tensor.dtype if action == "copy" else fp8.FP8, tensor, action))
        if action != "copy":
            channels = tensor.shape[:1] if action == "rows" else (tensor.shape[0], tensor.shape[2])
            parts.append((tensor.name + SCALE, channels, "F32", tensor, "scale"))
    parts.sort(key=lambda part: -fp8.DTYPE_BITS[part[2]])
    result: list[Part] = []
    position = 0
    for name, shape, dtype, source, action in parts:
        size = fp8.DTYPE_BITS[dtype] // 8
        for length in shape:
            size *= length
        result.append(Part(Tensor(name, dtype, shape, position, position + size), source, action))
        position += size
    head = fp8.render_header([part.result for part in result], {**header.metadata, fp8.MARKER_KEY: MARKER})
    return result, head


def rows_of(stream: BinaryIO, tensor: Tensor) -> Iterator[bytes]:
    """Pieces of whole rows of the next matrix (or expert) in the stream; never across two experts."""
    row = 2 * tensor.shape[-1]
    matrix = row * tensor.shape[-2]
    step = max(1, PIECE // row) * row
    for _ in range(tensor.shape[0] if len(tensor.shape) == 3 else 1):
        left = matrix
        while left:
            piece = stream.read(min(step, left))
            if len(piece) != min(step, left):
                raise Refusal(
                    f"the source changed while it was read: {tensor.name!r} ends too early in "
                    f"{getattr(stream, 'name', 'it')}; fetch the model again and start over"
                )
            left -= len(piece)
            yield piece


def scales_of(stream: BinaryIO, tensor: Tensor, report: Callable[[int], None]) -> array.array[int]:
    """Bfloat16 patterns of all scales of a tensor whose bytes come next; Refusal for what is no number."""
    columns, rows = tensor.shape[-1], tensor.shape[-2]
    found = array.array("H")
    done = 0
    for piece in rows_of(stream, tensor):
        height = len(piece) // (2 * columns)
        if len(tensor.shape) == 2:
            for at in range(0, len(piece), 2 * columns):
                found.extend(largest(piece[at : at + 2 * columns], 1, columns))
        else:
            if done % rows:  # an expert's maxima so far are one more row of it
                piece_and_maxima = piece + found[-columns:].tobytes()
                del found[-columns:]
                found.extend(largest(piece_and_maxima, columns, height + 1))
            else:
                found.extend(largest(piece, columns, height))
            done += height
        report(len(piece))
    if max(found) >= INFINITY:
        raise Refusal(f"the tensor {tensor.name!r} holds infinity or what is no number; fetch the model again")
    known = {pattern: scale_pattern(pattern) for pattern in set(found)}
    return array.array("H", map(known.__getitem__, found))


def converted(stream: BinaryIO, tensor: Tensor, scales: array.array[int]) -> Iterator[tuple[bytes, int]]:
    """Codes of a tensor whose bytes come next, in pieces, each with the bytes of the source it was made from."""
    columns, rows = tensor.shape[-1], tensor.shape[-2]
    done = 0
    for piece in rows_of(stream, tensor):
        lower, upper = piece[0::2], piece[1::2]
        height = len(upper) // columns
        codes = bytearray(len(upper))
        if len(tensor.shape) == 2:
            for row in range(height):
                place = slice(row * columns, (row + 1) * columns)
                codes[place] = codes_of(upper[place], lower[place], scales[done + row])
        else:
            first = done // rows * columns
            for column in range(columns):
                place = slice(column, None, columns)
                codes[place] = codes_of(upper[place], lower[place], scales[first + column])
        yield bytes(codes), len(piece)
        done += height


def pieces(
    stream: BinaryIO, header: Header, parts: list[Part], report: Callable[[int], None]
) -> Iterator[tuple[str, bytes]]:
    """The result's data in file order, with the name of the tensor; the source is read twice where scales are made.

    Scales stand before their weights (they are wider), so they are known by then.
    """
    known: dict[str, array.array[int]] = {}
    for part in parts:
        source = part.source
        stream.seek(header.data_start + source.begin)
        if part.action == "scale":
            known[source.name] = scales_of(stream, source, report)
            wide = array.array("I", (pattern << 16 for pattern in known[source.name]))
            yield part.result.name, wide.tobytes()
        elif part.action == "copy":
            for piece in fp8.chunks(stream, source.size, source.name):
                yield part.result.name, bytes(piece)
                report(len(piece))
        else:
            for codes, size in converted(stream, source, known.pop(source.name)):
                yield part.result.name, codes
                report(size)


def convert_shard(
    source: Path, target: Path, actions: Mapping[str, str], report: Callable[[int], None]
) -> dict[str, Any]:
    """Convert one shard by way of a temporary name; returns size and CRC-32 of the result."""
    temporary = target.with_name(target.name + ".writing")
    try:
        with source.open("rb") as stream, temporary.open("wb") as out:
            header = fp8.header_of(stream)
            parts, head = layout(header, actions)
            checksum, written = zlib.crc32(head), len(head)
            out.write(head)
            for _name, piece in pieces(stream, header, parts, report):
                checksum = zlib.crc32(piece, checksum)
                written += len(piece)
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    fp8.fsync_folder(target.parent)
    return {"bytes": written, "crc32": f"{checksum:08x}"}


def verify_shard(source: Path, target: Path, actions: Mapping[str, str], only: list[str] | None) -> int:
    """Re-read both sides and prove that (chosen) tensors of target are what this conversion makes of source.

    Returns the number of tensors compared; raises Refusal with the name of the first wrong one.
    """
    with source.open("rb") as left, target.open("rb") as right:
        header = fp8.header_of(left)
        parts, head = layout(header, actions)
        fp8.written_header(right, head)
        # A weight is not known without its scale, which counts as part of it.
        chosen = [part for part in parts if only is None or part.source.name in only]
        at, seen = "", set()
        for name, piece in pieces(left, header, chosen, lambda _size: None):
            if name != at:
                at = name
                seen.add(name)
                begin = next(part.result.begin for part in chosen if part.result.name == name)
                right.seek(len(head) + begin)
            if right.read(len(piece)) != piece:
                raise fp8.Wrong(f"{target.name}: tensor {name!r} is not the conversion of its source")
    return len(seen)


# --- the whole checkpoint ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish(fp8.Wish):
    """What the caller asked for; keep names layers that stay as they are."""

    keep: tuple[str, ...] = ()

    tool: ClassVar[str] = "fp8_dynamic"

    def examine(self) -> fp8.Source:
        """The source as it is, every tensor decided."""
        return examine(self.source, self.keep)

    def request(self) -> dict[str, Any]:
        """The options that change the result; a continued run must ask for the same."""
        return request_of(self)

    def crew(self, jobs: int) -> fp8.Crew:
        """Worker processes."""
        return Crew(jobs)

    def carry(self, source: fp8.Source, folder: Path) -> dict[str, Any]:
        """Bring the other files of the model; returns size and CRC-32 of each."""
        return carry(self, source, folder)


class Crew(fp8.Crew):
    """Workers of this program."""

    command = (sys.executable, "-E", "-S", "-B", str(PROGRAM), "--worker")


class Journal:
    """What was decided and what is done, kept beside the work so that the next run continues with the next shard."""

    def __init__(self, wish: Wish, source: fp8.Source, done: dict[str, dict[str, Any]]) -> None:
        self.wish = wish
        self.source = source
        self.done = done

    @staticmethod
    def path(wish: Wish) -> Path:
        """Where the journal of a wish lies."""
        return wish.staging / fp8.STATE_FOLDER / "journal.json"

    @classmethod
    def load(cls, wish: Wish) -> Journal:
        """Continue a journal; Refusal when it was begun with other options."""
        form = {**fp8.DECIDED, "done": {str: {**fp8.SUM, "whole?": bool}}}
        # Whose journal it is comes first: another program's has another form.
        content = fp8.read_json(cls.path(wish), {"request": dict}, fp8.start_over(wish))
        if content["request"] != request_of(wish):
            raise Refusal(
                f"{wish.staging} was begun with other options or by another program "
                f"({json.dumps(content['request'], sort_keys=True)}); use the same, or remove it to start over"
            )
        fp8.read_json(cls.path(wish), form, fp8.start_over(wish))
        shards = {name: fp8.Identity(*values) for name, values in content["source"].items()}
        source = fp8.Source(wish.source, shards, content["actions"], content["result_bytes"], content["carried"])
        return cls(wish, source, content["done"])

    def save(self) -> None:
        """Write it durably; called after every shard."""
        fp8.write_json(
            self.path(self.wish),
            {
                "source": {n: [i.size, i.mtime_ns, i.inode] for n, i in self.source.shards.items()},
                "actions": self.source.actions,
                "result_bytes": self.source.result_bytes,
                "carried": self.source.carried,
                "request": request_of(self.wish),
                "done": self.done,
            },
        )

    def check(self) -> None:
        """Forget results that are not as they were recorded; refuse a source that changed or is gone."""
        for name, identity in self.source.shards.items():
            source, target = self.wish.source / name, self.wish.staging / name
            if not source.exists() or fp8.Identity.of(source) != identity:
                raise Refusal(f"{source} changed since the conversion began; remove {self.wish.staging} to start over")
            if name in self.done and (not target.exists() or target.stat().st_size != self.done[name]["bytes"]):
                del self.done[name]


def request_of(wish: Wish) -> dict[str, Any]:
    """The options that change the result; a continued run must ask for the same."""
    return {"version": VERSION, "scheme": MARKER, "table_sha256": table_hash(), "keep": list(wish.keep)}


def refuse_quantised(folder: Path, headers: Mapping[str, Header]) -> None:
    """An input that is quantised in any way, or was converted before, is refused."""
    if (folder / fp8.STATE_FOLDER / fp8.PROVENANCE).exists():
        raise Refusal(f"{folder} was converted before (see {fp8.STATE_FOLDER}/{fp8.PROVENANCE} in it)")
    for name, header in headers.items():
        if fp8.MARKER_KEY in header.metadata:
            raise Refusal(f"{folder / name} was converted before (its header says {fp8.MARKER_KEY})")
    config = folder / "config.json"
    if not config.exists():
        raise Refusal(f"{folder} holds no config.json, which has to say how the weights are to be read")
    document = fp8.read_json(config)
    text = document.get("text_config")
    for place in (document, text if isinstance(text, dict) else {}):
        said = place.get("quantization_config")
        if said is not None:
            method = said.get("quant_method", "unknown") if isinstance(said, dict) else said
            raise Refusal(f"{config} says the weights are quantised already (quant_method {method!r})")


def examine(folder: Path, keep: tuple[str, ...]) -> fp8.Source:
    """Read every header, decide every tensor; nothing is written."""
    shards = fp8.shards_of(folder)
    identities = {name: fp8.Identity.of(folder / name) for name in shards}
    headers = fp8.read_headers(folder, shards)
    fp8.check_names(folder, headers)
    refuse_quantised(folder, headers)
    everything = [tensor for header in headers.values() for tensor in header.tensors]
    actions = decide(everything, keep)
    for pattern in keep:
        if not any(kept(tensor.name, (pattern,)) for tensor in everything if is_projection(tensor)):
            raise Refusal(f"--keep {pattern} names no projection of this checkpoint")
    by_shard: dict[str, dict[str, str]] = {}
    result_bytes: dict[str, int] = {}
    for name, header in headers.items():
        by_shard[name] = {t.name: actions[t.name] for t in header.tensors if t.name in actions}
        parts, head = layout(header, by_shard[name])
        result_bytes[name] = len(head) + sum(part.result.size for part in parts)
    return fp8.Source(folder, identities, by_shard, result_bytes, fp8.carried_files(folder, shards))


def check_room(wish: Wish, source: fp8.Source, missing: list[str]) -> None:
    """Refuse before the first byte when the result does not fit."""
    needed = sum(source.result_bytes[name] for name in missing)
    needed += sum((source.folder / name).stat().st_size for name in source.carried)
    folder = wish.target.parent
    while not folder.exists():
        folder = folder.parent
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        raise Refusal(
            f"converting {len(missing)} shards needs {fp8.human(needed)} on the file system of {wish.target}, "
            f"{fp8.human(free)} are free: {fp8.human(needed - free)} are missing. Free some room or choose another "
            "target"
        )


def open_journal(wish: Wish) -> Journal:
    """Continue the work in the staging folder, or examine the source and begin."""
    if Journal.path(wish).exists():
        journal = Journal.load(wish)
        journal.check()
    else:
        journal = Journal(wish, examine(wish.source, wish.keep), {})
    check_room(wish, journal.source, [name for name in journal.source.shards if name not in journal.done])
    journal.save()
    return journal


def carry(wish: Wish, source: fp8.Source, folder: Path) -> dict[str, Any]:
    """Copy tokenizer and code into folder; rewrite config.json and the index, which have to know of the scales."""
    headers = fp8.read_headers(wish.source, list(source.shards))
    everything = [tensor for header in headers.values() for tensor in header.tensors]
    actions = {name: action for found in source.actions.values() for name, action in found.items()}
    for name in source.carried:
        if name == "model.safetensors.index.json":
            index = fp8.read_index(wish.source)
            index.setdefault("metadata", {})["total_size"] = fp8.total_size(folder, list(source.shards))
            index["weight_map"] = {
                tensor.name: shard
                for shard, header in fp8.read_headers(folder, list(source.shards)).items()
                for tensor in header.tensors
            }
            fp8.write_json(folder / name, index)
        elif name == "config.json":
            document = fp8.read_json(wish.source / name)
            document["quantization_config"] = quantization_config(ignored_layers(everything, actions))
            fp8.write_json(folder / name, document)
        else:
            fp8.copy_file(wish.source / name, folder / name)
    return {name: fp8.sum_of(folder / name) for name in source.carried}


def provenance(wish: Wish, journal: Journal, carried: dict[str, Any]) -> dict[str, Any]:
    """What was made, from what, by what; written last, so that its presence means the result is whole."""
    return {
        "schema": 1,
        "tool": "fp8_dynamic",
        **request_of(wish),
        "validated_on_hardware": False,
        # On Gaudi2 the server scales FP8 weights once more unless it is told not to.
        "environment": {"VLLM_HPU_CONVERT_TO_FP8UZ": "false"},
        "source": str(wish.source),
        "source_fingerprint": journal.source.fingerprint,
        "source_manifest_sha256": fp8.manifest_hash(wish.source),
        "source_times": journal.source.times,
        "verified": fp8.EVERY_BYTE if all(done.get("whole") for done in journal.done.values()) else "a sample",
        "shards": {name: {key: done[key] for key in fp8.SUM} for name, done in sorted(journal.done.items())},
        "carried": carried,
    }


def run(wish: Wish, journal: Journal, missing: list[str]) -> int:
    """Convert and check the missing shards; returns the number of tensors compared."""
    compared = 0
    progress = fp8.Progress(wish.progress)
    # A weight is read twice: for its scales, then for its codes.
    progress.begin("convert", sum(work_of(journal.source, name) for name in missing))

    def finished(name: str, result: dict[str, Any]) -> None:
        nonlocal compared
        compared += result["compared"]
        journal.done[name] = result
        journal.save()

    with fp8.nothing_half(wish.staging, journal.save), Crew(max(1, min(wish.jobs, len(missing)))) as crew:
        tasks = fp8.tasks_for(wish, journal.source, missing, wish.staging, convert=True)
        crew.run(tasks, progress.advance, finished)
    progress.end()
    return compared


def work_of(source: fp8.Source, shard: str) -> int:
    """Bytes read to convert a shard: about twice its size, as nearly all of it are projections."""
    return 2 * source.shards[shard].size


def convert(wish: Wish) -> str:
    """Do what the wish says; returns the closing sentence."""
    fp8.check_places(wish)
    made = fp8.already_there(wish)
    if made:
        return fp8.look_after(wish, made)
    with fp8.only_one(wish), fp8.untouched(wish):
        journal = open_journal(wish)
        fp8.remove_unfinished(wish.staging)
        if wish.verify:
            fp8.recheck(wish, journal.source, journal.done)
            journal.save()
        missing = [name for name in journal.source.shards if name not in journal.done]
        if missing and len(missing) < len(journal.source.shards):
            print(f"continuing: {len(journal.done)} of {len(journal.source.shards)} are done", file=sys.stderr)
        compared = run(wish, journal, missing)
        carried = carry(wish, journal.source, wish.staging)
        fp8.write_json(wish.staging / fp8.STATE_FOLDER / fp8.PROVENANCE, provenance(wish, journal, carried))
        # Until the rename the journal is there: a run killed before it continues, one killed after it is done.
        wish.staging.rename(wish.target)
        fp8.fsync_folder(wish.target.parent)
        for name in (Journal.path(wish).name, *fp8.LOCKS):
            (wish.target / fp8.STATE_FOLDER / name).unlink()
    size = sum(shard["bytes"] for shard in journal.done.values())
    return f"{wish.target}: {len(journal.done)} shards, {fp8.human(size)}, {compared} tensors compared."


# --- the program -------------------------------------------------------------------------------------------


def explain(error: OSError) -> str:
    """An operating system's refusal as a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "there is no room left for the result. What is finished is kept: free some room and run the same command "
            "again"
        )
    return fp8.explain_os_error(error)


def work_on(task: dict[str, Any]) -> dict[str, Any]:
    """Convert one shard, unless it is done, and compare it."""
    source, target, actions = Path(task["source"]), Path(task["target"]), task["actions"]
    result: dict[str, Any] = {}
    if task["convert"]:
        identity = fp8.Identity(*task["identity"])
        changed = Refusal(f"{source} changed since the conversion began; remove {target.parent} to start over")
        if fp8.Identity.of(source) != identity:
            raise changed
        result = convert_shard(source, target, actions, lambda size: fp8.answer({"advance": size}))
        if fp8.Identity.of(source) != identity:
            target.unlink()
            raise changed
    result["whole"] = task["only"] is None
    result["compared"] = verify_shard(source, target, actions, task["only"])
    return result


def parse_arguments(arguments: list[str]) -> Wish:
    """The command line; argparse ends the program with status 2 when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="fp8_dynamic.py", description="Turn a bfloat16 multimodal checkpoint into dynamic FP8 for Gaudi2."
    )
    parser.add_argument("source", metavar="IN", type=Path, help="folder of the published checkpoint; never changed")
    parser.add_argument("target", metavar="OUT", type=Path, help="folder that appears when everything is done")
    parser.add_argument(
        "--jobs", type=fp8.positive, default=os.cpu_count() or 1, help="worker processes, one a shard (%(default)s)"
    )
    parser.add_argument("--verify", action="store_true", help="compute everything again and compare, not only a sample")
    parser.add_argument("--keep", action="append", default=[], metavar="PATTERN",
                        help="leave these layers as they are: o_proj, or *.layers.0.*; may be repeated")  # fmt: skip
    fp8.add_job_arguments(parser)
    given = parser.parse_args(arguments)
    return Wish(
        source=given.source.absolute(),
        target=given.target.absolute(),
        jobs=given.jobs,
        verify=given.verify,
        factor=CHANNEL,
        vendor_compatible=False,
        in_place_space=False,
        assume_unconverted=False,
        progress=given.progress,
        check=given.check,
        keep=tuple(sorted(given.keep)),
    )


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    if arguments == ["--worker"]:
        return fp8.serve_tasks(work_on, explain)
    return fp8.carry_out("fp8_dynamic", parse_arguments(arguments), fp8.is_done, convert, explain)
