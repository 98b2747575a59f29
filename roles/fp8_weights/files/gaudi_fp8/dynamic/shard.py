"""One shard of a bfloat16 checkpoint: convert it, prove it."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gaudi.base.refusal import Refusal
from gaudi.node import beneath

from ..files import open_in
from ..refusals import WrongResult
from ..safetensors import DTYPE_BITS, FP8, MARKER_KEY, Header, ShardTensor, header_of, render_header, written_header
from ..shards import ShardOutput, chunks, ended_too_early
from .tables import INFINITY, codes_of, largest, scale_pattern
from .tensors import SCALE

MARKER = "per channel, 240"
PIECE = 4 * 1024 * 1024  # bytes of the source in memory at a time, rounded to whole rows; at most one row more


@dataclass(frozen=True)
class ResultTensor:
    """A tensor of the result: where its bytes come from, and how."""

    result: ShardTensor
    source: ShardTensor
    action: str  # 'copy', 'rows', 'columns', 'scale'


def layout(header: Header, actions: Mapping[str, str]) -> tuple[list[ResultTensor], bytes]:
    """Tensors of the result in file order, and the bytes of its header.

    Wide types first, as the library orders them: a float32 behind an odd number of bytes could not be viewed.
    """
    parts: list[tuple[str, tuple[int, ...], str, ShardTensor, str]] = []
    for tensor in header.tensors:
        action = actions.get(tensor.name, "copy")
        parts.append((tensor.name, tensor.shape, tensor.dtype if action == "copy" else FP8, tensor, action))
        if action != "copy":
            channels = tensor.shape[:1] if action == "rows" else (tensor.shape[0], tensor.shape[2])
            parts.append((tensor.name + SCALE, channels, "F32", tensor, "scale"))
    parts.sort(key=lambda part: -DTYPE_BITS[part[2]])
    result: list[ResultTensor] = []
    position = 0
    for name, shape, dtype, source, action in parts:
        size = DTYPE_BITS[dtype] // 8
        for length in shape:
            size *= length
        result.append(ResultTensor(ShardTensor(name, dtype, shape, position, position + size), source, action))
        position += size
    head = render_header([part.result for part in result], {**header.metadata, MARKER_KEY: MARKER})
    return result, head


def rows_of(stream: BinaryIO, tensor: ShardTensor) -> Iterator[bytes]:
    """Pieces of whole rows of the next matrix (or expert) in the stream; never across two experts."""
    row = 2 * tensor.shape[-1]
    matrix = row * tensor.shape[-2]
    step = max(1, PIECE // row) * row
    for _ in range(tensor.shape[0] if len(tensor.shape) == 3 else 1):
        left = matrix
        while left:
            piece = stream.read(min(step, left))
            if len(piece) != min(step, left):
                raise ended_too_early(stream, tensor.name)
            left -= len(piece)
            yield piece


def scales_of(stream: BinaryIO, tensor: ShardTensor, report: Callable[[int], None]) -> array.array[int]:
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
            if done % rows:  # the maxima of this expert's rows so far count as one more row
                piece_and_maxima = piece + found[-columns:].tobytes()
                del found[-columns:]
                found.extend(largest(piece_and_maxima, columns, height + 1))
            else:
                found.extend(largest(piece, columns, height))
            done += height
        report(len(piece))
    if max(found) >= INFINITY:
        raise Refusal(
            "not_finite", f"the tensor {tensor.name!r} holds infinity or what is no number; fetch the model again"
        )
    known = {pattern: scale_pattern(pattern) for pattern in set(found)}
    return array.array("H", map(known.__getitem__, found))


def converted(stream: BinaryIO, tensor: ShardTensor, scales: array.array[int]) -> Iterator[tuple[bytes, int]]:
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
    stream: BinaryIO, header: Header, parts: list[ResultTensor], report: Callable[[int], None]
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
            for piece in chunks(stream, source.size, source.name):
                yield part.result.name, bytes(piece)
                report(len(piece))
        else:
            for codes, size in converted(stream, source, known.pop(source.name)):
                yield part.result.name, codes
                report(size)


def result_size(header: Header, actions: Mapping[str, str]) -> int:
    """Bytes of the converted shard."""
    parts, head = layout(header, actions)
    return len(head) + sum(part.result.size for part in parts)


def convert_shard(
    source: Path, target: Path, actions: Mapping[str, str], report: Callable[[int], None]
) -> dict[str, Any]:
    """Convert one shard by way of a temporary name; returns size and CRC-32 of the result."""
    with open_in(source.parent, source.name) as stream, beneath.replacing(target, target.parent, buffering=0) as raw:
        header = header_of(stream)
        parts, head = layout(header, actions)
        out = ShardOutput(raw)
        out.write(head)
        for _name, piece in pieces(stream, header, parts, report):
            out.write(piece)
        return out.close()


def verify_shard(source: Path, target: Path, actions: Mapping[str, str], only: list[str] | None) -> int:
    """Re-read both sides and prove that (chosen) tensors of target are what this conversion makes of source.

    Returns the number of tensors compared; raises Refusal with the name of the first wrong one.
    """
    with open_in(source.parent, source.name) as left, open_in(target.parent, target.name) as right:
        header = header_of(left)
        parts, head = layout(header, actions)
        written_header(right, head)
        # A weight can only be computed with its scale, so the scale is compared, too.
        chosen = [part for part in parts if only is None or part.source.name in only]
        begins = {part.result.name: part.result.begin for part in chosen}
        at, seen = "", set()
        for name, piece in pieces(left, header, chosen, lambda _size: None):
            if name != at:
                at = name
                seen.add(name)
                right.seek(len(head) + begins[name])
            if right.read(len(piece)) != piece:
                raise WrongResult(
                    "not_the_conversion", f"{target.name}: tensor {name!r} is not the conversion of its source"
                )
    return len(seen)
