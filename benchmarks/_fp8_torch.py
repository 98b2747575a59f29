"""The vendor's way of converting, frozen as the baseline: whole shards in torch, by name, in float32.

Runs inside an image that has torch; safetensors is its own library. IN and OUT are folders.

    python3 _fp8_torch.py IN OUT THREADS
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Convert every shard, one after the other, as the script does."""
    torch: Any = importlib.import_module("torch")
    library: Any = importlib.import_module("safetensors")
    saving: Any = importlib.import_module("safetensors.torch")
    source, target, threads = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    target.mkdir(parents=True)
    for shard in sorted(source.glob("*.safetensors")):
        result = {}
        with library.safe_open(str(shard), framework="pt") as stream:
            names = stream.keys()
            for name in names:
                tensor = stream.get_tensor(name)
                if "proj" in name and name.endswith("weight"):
                    tensor = (tensor.float() * 240.0 / 448.0).to(torch.float8_e4m3fn)
                elif "proj" in name:
                    tensor = tensor.float() * 448.0 / 240.0
                result[name] = tensor
        saving.save_file(result, str(target / shard.name))


if __name__ == "__main__":
    main()
