"""Give the real vLLM for CPUs, which has no FP8 kernels, a bfloat16 copy of a small block-quantised FP8 model.

A simulated card thereby computes what the codes and scales say: a wrong conversion would be a wrong model.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Pure Python, so models of a test's size only. Bytes.
LIMIT = 16_000_000
SCALE = "_scale_inv"

Tensor = tuple[str, list[int], bytes]
"""Type, shape and content."""


def value(code: int) -> float:
    """Return what an FP8 code (E4M3: sign, four bits of exponent with bias 7, three of mantissa) stands for."""
    exponent, mantissa = code >> 3 & 15, code & 7
    size = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if code & 0x80 else size


VALUES = [value(code) for code in range(256)]


def bfloat16(number: float) -> bytes:
    """Return a number as bfloat16, rounded to the nearest, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def dequantised(shape: list[int], codes: bytes, blocks: list[int], scales: bytes) -> bytes:
    """Return a matrix as bfloat16: each code times the scale of its block."""
    rows, columns = shape
    factors = struct.unpack(f"<{len(scales) // 4}f", scales)
    high, wide = -(-rows // blocks[0]), -(-columns // blocks[1])
    return b"".join(
        bfloat16(VALUES[codes[row * columns + column]] * factors[row // high * blocks[1] + column // wide])
        for row in range(rows)
        for column in range(columns)
    )


def readable(model: Path, scratch: Path) -> Path:
    """Return the model itself, or where it is in FP8 a copy in ``scratch`` that the real vLLM can read.

    Raises ValueError for a model too large for this.
    """
    configuration = model / "config.json"
    if not configuration.is_file():
        return model
    config: dict[str, Any] = json.loads(configuration.read_text(encoding="utf-8"))
    if config.get("quantization_config", {}).get("quant_method") != "fp8":
        return model
    shards = sorted(model.glob("*.safetensors"))
    size = sum(shard.stat().st_size for shard in shards)
    if size > LIMIT:
        raise ValueError(f"the simulated server reads FP8 models of at most {LIMIT} bytes, and {model} has {size}")
    scratch.mkdir()
    for path in model.iterdir():
        if path.is_file() and path not in shards and not path.name.endswith(".index.json"):
            (scratch / path.name).write_bytes(path.read_bytes())
    del config["quantization_config"]
    (scratch / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (scratch / "model.safetensors").write_bytes(bfloat16_file(read_tensors(shards)))
    return scratch


def read_tensors(shards: list[Path]) -> dict[str, Tensor]:
    """Return every tensor of some safetensors files."""
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        raw = shard.read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        for name, entry in json.loads(raw[8:start]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[name] = (entry["dtype"], entry["shape"], raw[start + begin : start + end])
    return tensors


def bfloat16_file(tensors: Mapping[str, Tensor]) -> bytes:
    """Return a safetensors file of these tensors, those in FP8 as bfloat16 and without their scales."""
    header, data = {}, bytearray()
    for name, (dtype, shape, content) in tensors.items():
        if name.endswith(SCALE):
            continue
        kind, plain = dtype, content
        if name + SCALE in tensors:
            _, blocks, scales = tensors[name + SCALE]
            kind, plain = "BF16", dequantised(shape, content, blocks, scales)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(plain)]}
        data += plain
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)
