"""Bytes of shards: read in pieces, written and checksummed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gaudi.base.refusal import Refusal

from .files import open_in

# Bytes of one step. Source and result stay in a core's second-level cache, and the result is smaller than 128 KiB, from
# which on the C library asks the system for memory every time.
CHUNK = 96 * 1024
REPORT_EVERY = 256 * CHUNK
WRITE_BEHIND = 40 * CHUNK  # bytes after which the disk is told to begin writing; 12 times as many make it wait
SUM = {"bytes": int, "crc32": str}


def _exactly(stream: BinaryIO, buffer: memoryview, name: str) -> None:
    """Fill the buffer, or raise Refusal: what a shrinking file lacks must not become zeros."""
    filled = 0
    while filled < len(buffer):
        count = stream.readinto(buffer[filled:])  # type: ignore[attr-defined]
        if not count:
            raise ended_too_early(stream, name)
        filled += count


def ended_too_early(stream: BinaryIO, name: str) -> Refusal:
    """Why the rest of a tensor cannot be read."""
    return Refusal(
        "source_changed",
        f"the source changed while it was read: {name!r} ends too early in {getattr(stream, 'name', 'it')}; "
        "fetch the model again and start over",
    )


def chunks(stream: BinaryIO, size: int, name: str) -> Iterator[bytearray]:
    """The next size bytes in pieces. All pieces share one buffer: use a piece before asking for the next."""
    buffer = bytearray(CHUNK)
    left = size
    while left:
        piece = buffer if left >= CHUNK else bytearray(left)
        _exactly(stream, memoryview(piece), name)
        yield piece
        left -= len(piece)


def quickest_crc32() -> Callable[[bytes | bytearray, int], int]:
    """CRC-32 as libdeflate computes it, in a fifth of zlib's time, where that library is; else as zlib does.

    The sums are the same. Many packages bring libdeflate (libtiff is one); nothing here needs it.
    """
    try:
        import ctypes

        compute = ctypes.CDLL("libdeflate.so.0").libdeflate_crc32
    except (ImportError, OSError, AttributeError):  # a Python without ctypes, no such library, or another one
        return zlib.crc32
    compute.restype, compute.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)

    def crc32(data: bytes | bytearray, before: int) -> int:
        if not data:
            return before
        where = data if isinstance(data, bytes) else ctypes.addressof(ctypes.c_char.from_buffer(data))
        done: int = compute(before, where, len(data))
        return done

    return crc32


crc32 = quickest_crc32()


class ShardOutput:
    """The shard being written: counted, checksummed, and on its way to the disk while the next piece is computed.

    CRC-32 finds every accidental change a disk or a copy makes; SHA-256 would double the time.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.checksum = self.written = self.sent = 0

    def write(self, data: bytes | bytearray) -> None:
        """Append all of data."""
        self.checksum = crc32(data, self.checksum)
        done = self.stream.write(data)
        while done < len(data):  # a disk that is nearly full may take less than it is given
            done += self.stream.write(memoryview(data)[done:])
        self.written += done
        if self.written - self.sent >= WRITE_BEHIND:
            # "Not needed soon" makes Linux start writing these pages at once: the disk and the processor work side by
            # side, and little is left for fsync.
            os.posix_fadvise(self.stream.fileno(), self.sent, self.written - self.sent, os.POSIX_FADV_DONTNEED)
            self.sent = self.written

    def close(self) -> dict[str, Any]:
        """Wait until everything is on the disk; returns size and checksum."""
        os.fsync(self.stream.fileno())
        return {"bytes": self.written, "crc32": f"{self.checksum:08x}"}


def sum_of(path: Path) -> dict[str, Any]:
    """Size and CRC-32 of a file, as they are recorded."""
    checksum = size = 0
    with open_in(path.parent, path.name, buffering=0) as stream:
        while piece := stream.read(16 * CHUNK):
            checksum = crc32(piece, checksum)
            size += len(piece)
    return {"bytes": size, "crc32": f"{checksum:08x}"}
