"""Xet storage as hf_xet asks for it: how a file is put together, and the pieces it is made of.

After the public description of the protocol (https://huggingface.co/docs/xet, version 1.1.0), as far as hf_xet 1.8.0
asks for it when it downloads. Two things are simpler: no piece is compressed, and none is shared among files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from simulator.hub.content import HubFile

PIECE = 64 * 1024  # bytes, the size the real storage aims at
HEADER = 8  # bytes before each piece
# Pieces of one xorb. Real ones have about a thousand; few make small models come in several.
PIECES = 16
SPAN = PIECE * PIECES


def ceil(size: int, unit: int) -> int:
    """How many units hold so many bytes."""
    return -(-size // unit)


def reconstruction(file: HubFile, start: int, end: int, address: Callable[[int], str]) -> dict[str, object]:
    """Which pieces of which xorbs are the bytes from start to before end, and the address of each by its number."""
    first, last = start // PIECE, ceil(end, PIECE)
    terms, places = [], {}
    for number in range(first // PIECES, ceil(last, PIECES)):
        begins = number * PIECES
        there = {"start": max(first, begins) - begins, "end": min(last, begins + PIECES) - begins}
        xorb = hashlib.sha256(f"{file.sha256}/{number}".encode()).hexdigest()
        size = min((begins + there["end"]) * PIECE, file.size) - (begins + there["start"]) * PIECE
        terms.append({"hash": xorb, "unpacked_length": size, "range": there})
        at = there["start"] * (PIECE + HEADER)
        packed = size + (there["end"] - there["start"]) * HEADER
        url_range = {"start": at, "end": at + packed - 1}
        places[xorb] = [{"range": there, "url": address(number), "url_range": url_range}]
    return {"offset_into_first_range": start - first * PIECE, "terms": terms, "fetch_info": places}


def xorb(file: HubFile, number: int) -> bytes:
    """One xorb: pieces, each after its header (version, packed size, compression, size; little-endian)."""
    with file.path.open("rb") as stream:
        stream.seek(number * SPAN)
        content = stream.read(SPAN)
    packed = bytearray()
    for at in range(0, len(content), PIECE):
        piece = content[at : at + PIECE]
        size = len(piece).to_bytes(3, "little")
        packed += b"\0" + size + b"\0" + size + piece
    return bytes(packed)
