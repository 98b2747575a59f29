"""The least that converts: 256 KiB read, one table, written; no checksum, no fsync, no check, no sentence.

What is left of a machine's speed when Python moves the bytes and nothing is asked of them: the bound for a program that
also records, checks and resumes. Only for F8_E4M3 weights; all else, scales too, is copied.

    python3 _fp8_table.py IN OUT PROCESSES
"""

from __future__ import annotations

import json
import multiprocessing
import struct
import sys
from functools import partial
from pathlib import Path

PIECE = 256 * 1024  # bytes
# From code 16 on, x 240/448 is "code minus 7"; 0 to 15 are rounded to nearest even, NaN (127) stays.
SMALL = [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8, 8]
HALF = bytes([*SMALL, *range(9, 120), 127])
TABLE = HALF + bytes(code | 0x80 for code in HALF)


def convert(target: Path, shard: Path) -> None:
    """One shard."""
    with shard.open("rb", buffering=0) as source, (target / shard.name).open("wb", buffering=0) as out:
        length = source.read(8)
        header = source.read(struct.unpack("<Q", length)[0])
        out.write(length + header)
        tensors = json.loads(header)
        tensors.pop("__metadata__", None)
        buffer = bytearray(PIECE)
        for tensor in sorted(tensors.values(), key=lambda one: one["data_offsets"][0]):
            left = tensor["data_offsets"][1] - tensor["data_offsets"][0]
            while left:
                piece = buffer if left >= PIECE else bytearray(left)
                source.readinto(piece)
                out.write(piece.translate(TABLE) if tensor["dtype"] == "F8_E4M3" else piece)
                left -= len(piece)


def main() -> None:
    """Convert all shards, some at a time."""
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.mkdir(parents=True)
    with multiprocessing.Pool(int(sys.argv[3])) as pool:
        pool.map(partial(convert, target), sorted(source.glob("*.safetensors")), chunksize=1)


if __name__ == "__main__":
    main()
