"""The reference formula in torch, held against a converted checkpoint; runs where torch is, in the serving image.

    python3 fp8_reference.py IN OUT NUMERATOR DENOMINATOR [--vendor-compatible]

Prints one JSON document: how many tensors were compared, by what, and which are not the formula's to the bit.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> None:
    """Compare every tensor of every shard."""
    torch: Any = importlib.import_module("torch")
    library: Any = importlib.import_module("safetensors")
    source, target = Path(arguments[0]), Path(arguments[1])
    numerator, denominator = float(arguments[2]), float(arguments[3])
    compared: dict[str, int] = {}
    wrong = []
    for shard in sorted(source.glob("*.safetensors")):
        with (
            library.safe_open(str(shard), framework="pt") as old,
            library.safe_open(str(target / shard.name), framework="pt") as new,
        ):
            names = set(old.keys())
            for name in names | set(new.keys()):
                given = old.get_tensor(name)
                kind = "untouched"
                expected = given
                if given.dtype == torch.float8_e4m3fn:
                    kind, expected = "weight", (given.float() * numerator / denominator).to(torch.float8_e4m3fn)
                elif "_scale" in name:
                    kind, expected = f"scale {given.dtype}", given.float() * denominator / numerator
                elif "--vendor-compatible" in arguments and name.endswith("proj.weight"):
                    kind, expected = "bf16 weight", (given.float() * numerator / denominator).to(torch.float8_e4m3fn)
                made = new.get_tensor(name)
                same = (made.dtype, made.shape) == (expected.dtype, expected.shape) and torch.equal(
                    made.contiguous().view(-1).view(torch.uint8), expected.contiguous().view(-1).view(torch.uint8)
                )
                compared[kind] = compared.get(kind, 0) + 1
                if not same:
                    wrong.append(name)
    print(json.dumps({"torch": torch.__version__, "compared": compared, "wrong": sorted(wrong)}))


if __name__ == "__main__":
    main(sys.argv[1:])
