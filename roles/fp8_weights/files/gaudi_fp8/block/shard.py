"""One shard of a block-quantised checkpoint: convert it, prove it."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gaudi.node import beneath

from ..files import open_in
from ..refusals import WrongResult
from ..safetensors import MARKER_KEY, Header, ShardTensor, header_of, render_header, written_header
from ..shards import CHUNK, REPORT_EVERY, ShardOutput, chunks
from .tables import Factor, bf16_weight_table, scaled, to_float32, weight_table
from .tensors import TensorStep


def converted(
    stream: BinaryIO, step: TensorStep, factor: Factor, table: bytes, bf16_table: bytes
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


def layout(header: Header, actions: dict[str, str], factor: Factor) -> tuple[list[TensorStep], bytes]:
    """Steps in file order and the bytes of the result's header."""
    steps = [TensorStep(tensor, actions.get(tensor.name, "copy")) for tensor in header.tensors]
    results: list[ShardTensor] = []
    position = 0
    for step in steps:
        dtype, size = step.result
        results.append(ShardTensor(step.tensor.name, dtype, step.tensor.shape, position, position + size))
        position += size
    return steps, render_header(results, {**header.metadata, MARKER_KEY: factor.name})


def result_size(header: Header, actions: dict[str, str], factor: Factor) -> int:
    """Bytes of the converted shard."""
    steps, head = layout(header, actions, factor)
    return len(head) + sum(step.result[1] for step in steps)


def convert_shard(
    source: Path, target: Path, actions: dict[str, str], factor: Factor, report: Callable[[int], None]
) -> dict[str, Any]:
    """Convert one shard into target by way of a temporary name; returns size and CRC-32 of the result.

    report is called with the source bytes done since the last call.
    """
    table = weight_table(factor)
    bf16_table = bf16_weight_table(factor) if "bf16" in actions.values() else b""
    written, read = beneath.replacing(target, target.parent, buffering=0), open_in(source.parent, source.name, 0)
    with read as stream, written as raw:
        header = header_of(stream)
        steps, head = layout(header, actions, factor)
        out = ShardOutput(raw)
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
        return out.close()


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
    with open_in(source.parent, source.name) as left, open_in(target.parent, target.name) as right:
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
                    raise WrongResult(
                        "not_the_conversion",
                        f"{target.name}: tensor {step.tensor.name!r} is not the conversion of its source",
                    )
            compared += 1
    return compared
