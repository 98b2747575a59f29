"""Record what torch makes of bfloat16 weights: run in an image that has torch, the result goes to torch.json.

    docker run --rm -i --entrypoint /opt/venv/bin/python3 IMAGE - < record.py > torch.json

``quantise`` is the formula of the vendor's dynamic_quant_multimodal_for_gaudi2.py (vllm-hpu-extension 46ac3189),
written down anew: everything in the dtype of the weights.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import random
import struct
from typing import Any

torch: Any = importlib.import_module("torch")
FINITE = 0x7F80


def quantise(weight: Any) -> tuple[Any, Any]:
    """Codes (uint8) and float32 scales of a matrix or of fused experts."""
    scale = ((weight.abs().max(dim=1).values + 1e-8) / 240.0).to(weight.dtype)
    cut = torch.clamp(weight / scale.unsqueeze(1), -240.0, 240.0)
    return cut.to(torch.float8_e4m3fn).view(torch.uint8), scale.float()


def patterns(values: list[int]) -> Any:
    """A bfloat16 tensor of bit patterns."""
    return torch.tensor([v - 65536 if v >= 32768 else v for v in values], dtype=torch.int16).view(torch.bfloat16)


def bits(tensor: Any) -> list[int]:
    """Bit patterns of a bfloat16 tensor."""
    return [int(v) & 0xFFFF for v in tensor.view(torch.int16).flatten()]


def weights(rng: random.Random, shape: list[int]) -> Any:
    """Normal numbers with a few large ones, one channel of zeros."""
    count = 1
    for length in shape:
        count *= length
    values = [rng.gauss(0, 0.02) * (40 if rng.random() < 0.01 else 1) for _ in range(count)]
    tensor = torch.tensor(values).to(torch.bfloat16).reshape(shape)
    tensor[0, 0 if len(shape) == 2 else slice(None)] = 0.0
    return tensor


def main() -> None:
    """Print the record."""
    finite = [*range(FINITE), *range(0x8000, 0x8000 + FINITE)]
    everything = patterns(finite)
    magnitudes = patterns(list(range(FINITE)))
    scale_patterns = bits(quantise(magnitudes.unsqueeze(1))[1].to(torch.bfloat16))
    tables = {}
    for scale in sorted(
        {exponent * 128 + fraction for exponent in (92, 110, 118, 127, 200) for fraction in range(128)}
    ):
        cut = torch.clamp(everything / patterns([scale]), -240.0, 240.0)
        codes = bytes(cut.to(torch.float8_e4m3fn).view(torch.uint8).tolist())
        tables[str(scale)] = hashlib.sha256(codes).hexdigest()[:16]
    rng = random.Random(5)
    tensors = []
    for shape in ([24, 96], [1, 7], [3, 40, 24], [2, 1, 5]):
        weight = weights(rng, shape)
        codes, scale = quantise(weight)
        tensors.append(
            {
                "shape": shape,
                "weight": struct.pack(f"<{weight.numel()}H", *bits(weight)).hex(),
                "codes": bytes(codes.flatten().tolist()).hex(),
                "scale shape": list(scale.shape),
                "scale": struct.pack(f"<{scale.numel()}f", *scale.flatten().tolist()).hex(),
            }
        )
    record = {
        "provenance": f"torch {torch.__version__}, recorded/record.py",
        "scales of all finite magnitudes": hashlib.sha256(struct.pack(f"<{FINITE}H", *scale_patterns)).hexdigest(),
        "tables": tables,
        "tensors": tensors,
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
