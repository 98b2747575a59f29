"""Converted weights against the reference formula in real torch, tensor by tensor, in the stand-in serving image.

Needs Docker, so ``make molecule`` runs it, and ``make unit`` does not:

    python -m pytest tests/fp8_torch.py
"""

from __future__ import annotations

import json
import math
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simulator import engine, images
from tests.integration.fp8 import checkpoints

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "roles" / "fp8_weights" / "files" / "fp8_convert.py"
REFERENCE = ROOT / "tests" / "fp8_reference.py"
SEED = int(os.environ.get("GAUDI_FP8_SEED", str(random.SystemRandom().randrange(10**6))))


@pytest.fixture(scope="module")
def image() -> str:
    """The image with the real vLLM, and so with torch and safetensors."""
    return images.vllm(engine.ensure(), print)


def random_checkpoint(folder: Path, seed: int) -> Path:
    """Every code, shapes from none to three dimensions, both types of scale, one for all, rows or blocks."""
    rng = random.Random(seed)
    folder.mkdir()
    every = bytes(range(256))
    for number in range(3):
        entries: dict[str, Any] = {}
        for index in range(rng.randint(3, 8)):
            shape = rng.choice([[128, 256], [1], [0, 128], [3, 64, 40], [rng.randint(1, 999), rng.randint(1, 99)]])
            size = math.prod(shape)
            dtype = "BF16" if index == 0 else rng.choice(["F32", "BF16"])
            scale_shape = rng.choice([[1], shape[:1], [rng.randint(min(side, 1), min(side, 40)) for side in shape]])
            blocks = math.prod(scale_shape)
            # Any bit pattern but infinity and NaN, whose bits no formula promises.
            bits = [rng.getrandbits(31) for _ in range(blocks)]
            wide = struct.pack(f"<{blocks}I", *(b if b >> 23 < 0xFE else b & 0x3FFFFFFF for b in bits))
            scale = wide if dtype == "F32" else b"".join(wide[i + 2 : i + 4] for i in range(0, len(wide), 4))
            name = f"model.layers.{number}.{rng.choice(['odd', 'mlp', 'proj'])}.{index}.weight"
            entries[name] = ("F8_E4M3", shape, (every + rng.randbytes(size))[:size])
            entries[name + rng.choice(["_scale_inv", "_scale"])] = (dtype, scale_shape, scale)
        entries[f"model.layers.{number}.every"] = ("F8_E4M3", [256], every)
        entries[f"model.layers.{number}.every_scale"] = ("F32", [1], struct.pack("<f", rng.uniform(1e-5, 1)))
        # Finite and below 866, above which torch itself changed its mind between releases.
        values = struct.pack("<512f", *(rng.gauss(0, 1) * 10 ** rng.randint(-4, 2) for _ in range(512)))
        bf16 = b"".join(values[i + 2 : i + 4] for i in range(0, len(values), 4))
        entries[f"model.layers.{number}.eh_proj.weight"] = ("BF16", [16, 32], bf16)
        entries[f"model.layers.{number}.norm.weight"] = ("BF16", [256], rng.randbytes(512))
        raw = checkpoints.shard_bytes(entries, {"format": "pt"})
        (folder / f"model-{number + 1:05d}-of-00003.safetensors").write_bytes(raw)
    return folder


def held_against_torch(image: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """What the reference says of folder/in and folder/out."""
    command = ["docker", "run", "--rm", "--network", "none", "-v", f"{folder}:{folder}:ro"]
    command += ["-v", f"{REFERENCE}:/reference.py:ro", image, "/opt/venv/bin/python3", "/reference.py"]
    command += [str(folder / "in"), str(folder / "out"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ([], ["240", "448"]),
        (["--exact-half"], ["1", "2"]),
        (["--vendor-compatible"], ["240", "448", "--vendor-compatible"]),
    ],
    ids=["240/448", "half", "vendor"],
)
def test_every_tensor_is_what_torch_gives(tmp_path: Path, image: str, options: list[str], arguments: list[str]) -> None:
    print(f"seed {SEED} (repeat with GAUDI_FP8_SEED={SEED})")
    source = random_checkpoint(tmp_path / "in", SEED)
    tensors = [data for shard in source.glob("*.safetensors") for data in checkpoints.read(shard)[1]]
    subprocess.run([sys.executable, str(PROGRAM), str(source), str(tmp_path / "out"), *options], check=True)
    found = held_against_torch(image, tmp_path, *arguments)
    print(found)
    assert found["wrong"] == []
    assert sum(found["compared"].values()) == len(tensors)
    kinds = {"weight", "scale torch.float32", "scale torch.bfloat16", "untouched"}
    assert set(found["compared"]) == kinds | ({"bf16 weight"} if options == ["--vendor-compatible"] else set())


def test_the_reference_sees_one_wrong_bit(tmp_path: Path, image: str) -> None:
    source = random_checkpoint(tmp_path / "in", SEED)
    subprocess.run([sys.executable, str(PROGRAM), str(source), str(tmp_path / "out")], check=True)
    shard = tmp_path / "out" / "model-00002-of-00003.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1  # the last tensor's last byte
    shard.write_bytes(content)
    assert held_against_torch(image, tmp_path, "240", "448")["wrong"] == ["model.layers.1.norm.weight"]
