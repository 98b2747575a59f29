"""Small checkpoints in the shape of the published ones, written without any library."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any


def shard_bytes(entries: dict[str, tuple[str, list[int], bytes]], metadata: dict[str, str] | None = None) -> bytes:
    """A safetensors file of the given tensors: name -> (dtype, shape, data)."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    position = 0
    for name, (dtype, shape, data) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + len(data)]}
        position += len(data)
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + b"".join(data for _, _, data in entries.values())


WITHOUT_NAN = bytes(code if code & 0x7F != 0x7F else 0x7E for code in range(256))


def fp8(rng: random.Random, size: int) -> bytes:
    """Random finite codes that reach 448, as block-quantised weights do."""
    codes = bytearray(rng.randbytes(size).translate(WITHOUT_NAN))
    if size:
        codes[0] = 0x7E
    return bytes(codes)


def scales(rng: random.Random, count: int, dtype: str = "F32") -> bytes:
    """Positive scales, as float32 or bfloat16."""
    wide = struct.pack(f"<{count}f", *(rng.uniform(1e-5, 1e-2) for _ in range(count)))
    if dtype == "F32":
        return wide
    return b"".join(wide[i + 2 : i + 4] for i in range(0, len(wide), 4))


def layer(rng: random.Random, number: int, rows: int = 256, scale_dtype: str = "F32") -> dict[str, Any]:
    """The tensors of one layer: two FP8 projections with block scales, a bfloat16 norm."""
    blocks = [rows // 128, 2]
    entries: dict[str, Any] = {}
    for projection in ("self_attn.q_proj", "mlp.up_proj"):
        name = f"model.layers.{number}.{projection}.weight"
        entries[name] = ("F8_E4M3", [rows, 256], fp8(rng, rows * 256))
        entries[name + "_scale_inv"] = (scale_dtype, blocks, scales(rng, blocks[0] * blocks[1], scale_dtype))
    entries[f"model.layers.{number}.input_layernorm.weight"] = ("BF16", [256], rng.randbytes(512))
    return entries


def write(folder: Path, shards: int = 3, rows: int = 256, seed: int = 1, scale_dtype: str = "F32") -> Path:
    """A whole checkpoint with index, configuration, tokenizer, and things that must not be carried over."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    weight_map = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        entries = layer(rng, number, rows, scale_dtype)
        (folder / name).write_bytes(shard_bytes(entries, {"format": "pt"}))
        weight_map.update(dict.fromkeys(entries, name))
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map})
    )
    (folder / "config.json").write_text('{"quantization_config": {"quant_method": "fp8"}}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "code").mkdir()
    (folder / "code" / "modeling.py").write_text("# remote code\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "huge").write_bytes(b"x" * 1000)
    (folder / "pytorch_model.bin").write_bytes(b"a duplicate")
    return folder


def read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Header and data of every tensor of a shard."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    data = raw[8 + length :]
    return header, {
        name: data[slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"
    }
