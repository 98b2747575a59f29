"""The models a simulated hub has: a tiny one with random weights, and the same in block-quantised FP8."""

from __future__ import annotations

import bisect
import json
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator import context, host
from simulator.settings import CACHE, SIMULATOR

OWNER = "simulated"
TINY = f"{OWNER}/Simulated-Tiny-Qwen2"
TINY_FP8 = f"{OWNER}/Simulated-Tiny-Qwen2-FP8"

_BUILDER = SIMULATOR / "images" / "serving" / "build_tiny_model.py"
_INDEX = "model.safetensors.index.json"
# Side of a block of weights with one scale, as DeepSeek and Qwen publish theirs.
BLOCK = 128
FP8_MAX = 448.0

Tensor = tuple[str, list[int], bytes]  # dtype, shape, data


def folders() -> dict[str, Path]:
    """Give the folder of every model by its repository; made at first use, the same bytes on every machine."""
    return {TINY: tiny(), TINY_FP8: tiny_fp8()}


def tiny() -> Path:
    """Give the folder of the tiny model."""
    return _made({"builder": context.ContextFile(_BUILDER.read_bytes())}, _build_tiny)


def tiny_fp8() -> Path:
    """Give the folder of the tiny model in block-quantised FP8, in two shards."""
    source = tiny()
    inputs = {"source": context.text(source.name), "quantiser": context.ContextFile(Path(__file__).read_bytes())}
    return _made(inputs, lambda target: quantise(source, target))


def _made(inputs: context.Files, build: Callable[[Path], None]) -> Path:
    built = CACHE / "models" / context.digest(inputs)
    with host.lock("models"):
        if not built.exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
                build(Path(scratch, "model"))
                Path(scratch, "model").rename(built)
    return built


def _build_tiny(target: Path) -> None:
    host.run([sys.executable, str(_BUILDER), str(target)])


def quantise(source: Path, target: Path) -> None:
    """Write a model's copy whose projections are FP8 codes with a float32 scale for each block."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix != ".safetensors":
            (target / path.name).write_bytes(path.read_bytes())
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
    }
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (target / "README.md").write_text(
        f"# {TINY_FP8.partition('/')[2]}\n\nSimulated: {TINY.partition('/')[2]} (random weights) in FP8 (E4M3, up to "
        f"448) with a scale for each block of {BLOCK} x {BLOCK}, as large models publish theirs.\n"
    )
    shards: list[dict[str, Tensor]] = [{}, {}]
    for name, (dtype, shape, data) in read_tensors(source / "model.safetensors").items():
        shard = shards["layers.1." in name]
        if not name.endswith("_proj.weight"):
            shard[name] = (dtype, shape, data)
            continue
        codes, scales = to_fp8(shape[0], shape[1], data)
        shard[name] = ("F8_E4M3", shape, codes)
        blocks = [-(-side // BLOCK) for side in shape]
        shard[f"{name}_scale_inv"] = ("F32", blocks, struct.pack(f"<{len(scales)}f", *scales))
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        (target / file).write_bytes(safetensors(shard))
        weight_map.update(dict.fromkeys(shard, file))
    size = sum(len(data) for shard in shards for _, _, data in shard.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (target / _INDEX).write_text(json.dumps(index, indent=1) + "\n")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header: dict[str, Any] = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], entry["shape"], raw[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]])
        for name, entry in header.items()
    }


def safetensors(tensors: dict[str, Tensor]) -> bytes:
    """Write a safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "simulated": "random weights"}}
    position = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + len(data)]}
        position += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def e4m3(code: int) -> float:
    """Give the value of a positive FP8 code: four bits of exponent with bias 7, three of mantissa."""
    exponent, mantissa = code >> 3, code & 7
    return mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


# Codes 0 to 126; 127 is not a number.
_VALUES = [e4m3(code) for code in range(127)]


def to_fp8(rows: int, columns: int, data: bytes) -> tuple[bytes, list[float]]:
    """Quantise a bfloat16 matrix: the codes, and a scale (block maximum / 448) for each block, row by row."""
    values = struct.unpack(f"<{rows * columns}f", b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2)))
    codes, scales = bytearray(rows * columns), []
    for top in range(0, rows, BLOCK):
        for left in range(0, columns, BLOCK):
            cells = [
                row * columns + column
                for row in range(top, min(top + BLOCK, rows))
                for column in range(left, min(left + BLOCK, columns))
            ]
            # Exactly what is written, so that a code times its scale is what a reader computes.
            (scale,) = struct.unpack("<f", struct.pack("<f", max(abs(values[cell]) for cell in cells) / FP8_MAX))
            scales.append(scale)
            for cell in cells:
                size = abs(values[cell]) / scale
                code = min(bisect.bisect_left(_VALUES, size), len(_VALUES) - 1)
                if code and size - _VALUES[code - 1] < _VALUES[code] - size:
                    code -= 1
                codes[cell] = code | (0x80 if values[cell] < 0 else 0)
    return bytes(codes), scales
