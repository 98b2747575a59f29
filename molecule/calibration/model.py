"""Write what stands for converted Qwen3-Coder weights: one FP8 tensor, the converter's record; and a data set."""

from __future__ import annotations

import json
import struct
from pathlib import Path

MODEL = Path("/data/models/Qwen3-Coder-480B-A35B-Instruct-FP8-G2")
DATASET = Path("/data/datasets/pile-10k")


def main() -> None:
    """Write both."""
    (MODEL / ".gaudi-serving").mkdir(parents=True, exist_ok=True)
    (MODEL / "config.json").write_text('{"model_type": "qwen3_moe"}\n', encoding="utf-8")
    header = json.dumps({"a.weight": {"dtype": "F8_E4M3", "shape": [8, 8], "data_offsets": [0, 64]}}).encode()
    (MODEL / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    record = {"tool": "fp8_convert", "factor": "240/448", "shards": {"model.safetensors": {}}}
    (MODEL / ".gaudi-serving" / "fp8.json").write_text(json.dumps(record) + "\n", encoding="utf-8")
    DATASET.mkdir(parents=True, exist_ok=True)
    (DATASET / "data.parquet").write_bytes(b"simulated")


if __name__ == "__main__":
    main()
