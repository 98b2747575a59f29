"""Make a picture, a film and a sound for test questions: small files that need no download.

The film is an AVI of PNG pictures (MPNG), which OpenCV, vLLM's reader, decodes like any other, so no encoder is needed.
An uncompressed AVI ends the process of a server with OpenCV 5.0.0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from struct import pack
from zlib import compress, crc32

# Red, green and blue, from 0 to 255.
RED, BLUE = (255, 0, 0), (0, 0, 255)
# Pixels. The catalogue's models have patches of 28 and 32 pixels; a picture has a few of them.
SIDE, FILM_SIDE = 224, 112
FRAMES, FRAMES_A_SECOND = 8, 2
RATE, TONE = 16000, 440
"""Samples a second, and the hertz of the tone; the sound lasts a second."""


def picture(colour: Sequence[int], side: int = SIDE) -> bytes:
    """A PNG of one colour."""
    row = b"\0" + bytes(colour) * side
    header = pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", compress(row * side)), (b"IEND", b""))
    chunks = (pack(">I", len(data)) + name + data + pack(">I", crc32(name + data)) for name, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def sound() -> bytes:
    """A WAV of one tone, with one channel of 16 bits."""
    samples = (round(16000 * math.sin(2 * math.pi * TONE * place / RATE)) for place in range(RATE))
    data = b"".join(pack("<h", sample) for sample in samples)
    form = pack("<HHIIHH", 1, 1, RATE, 2 * RATE, 2, 16)
    return _chunk(b"RIFF", b"WAVE" + _chunk(b"fmt ", form) + _chunk(b"data", data))


def film() -> bytes:
    """Return an AVI that is red, then blue."""
    frames = [picture(RED if place < FRAMES // 2 else BLUE, FILM_SIDE) for place in range(FRAMES)]
    size, index = max(map(len, frames)), 0x10
    head = pack(
        *("<14I", 1_000_000 // FRAMES_A_SECOND, size * FRAMES_A_SECOND, 0, index, FRAMES, 0, 1, size),
        *(FILM_SIDE, FILM_SIDE, 0, 0, 0, 0),
    )
    stream = pack(
        *("<4s4sIHHIIIIIIII4H", b"vids", b"MPNG", 0, 0, 0, 0, 1, FRAMES_A_SECOND, 0, FRAMES, size, 0, 0),
        *(0, 0, FILM_SIDE, FILM_SIDE),
    )
    bitmap = pack("<IiiHH4sIiiII", 40, FILM_SIDE, FILM_SIDE, 1, 24, b"MPNG", 3 * FILM_SIDE**2, 0, 0, 0, 0)
    streams = _list(b"strl", _chunk(b"strh", stream) + _chunk(b"strf", bitmap))
    chunks = [_chunk(b"00dc", frame) for frame in frames]
    # Offsets of the pictures, counted from the list's own name; all are key frames.
    begins = accumulate((len(chunk) for chunk in chunks), initial=4)
    places = (pack("<4sIII", b"00dc", index, begin, len(frame)) for begin, frame in zip(begins, frames))
    body = _list(b"hdrl", _chunk(b"avih", head) + streams) + _list(b"movi", b"".join(chunks))
    return _chunk(b"RIFF", b"AVI " + body + _chunk(b"idx1", b"".join(places)))


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def _list(name: bytes, data: bytes) -> bytes:
    return _chunk(b"LIST", name + data)
