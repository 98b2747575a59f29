"""Arithmetic of bfloat16 weights and FP8 codes with a scale for every channel, by tables and long integers."""

from __future__ import annotations

import array
import functools
import hashlib
import struct
from fractions import Fraction

from ..e4m3 import nearest_e4m3

FP8_MAX = 240
CODE_OF_MAX = 0x77
TINY = 0x322C  # 1e-8 as bfloat16, which is what torch adds to a bfloat16 tensor
SIGN = 0x8000
INFINITY = 0x7F80  # bfloat16; what is above is no number
CODE_OF_ONE, BINADE = 0x38, 8  # and codes in one binade of FP8
FRACTION = 128  # patterns of a bfloat16 in one binade

# Quotients below 2^-12 are zero in FP8, and none reaches 2^9: a scale is at least its channel's maximum / 243.
LOWEST, HIGHEST = -12, 9
NEGATIVE = bytes(code | 0x80 for code in range(256))  # a code's sign set


def float32(value: float) -> float:
    """The float32 nearest to a double; a sum or quotient of two float32 comes out as if rounded once."""
    result: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return result


def bfloat16(value: float) -> int:
    """Pattern of the bfloat16 nearest to a non-negative float32, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def value_of(pattern: int) -> float:
    """Value of a bfloat16 pattern."""
    result: float = struct.unpack("<f", struct.pack("<I", pattern << 16))[0]
    return result


def scale_pattern(largest: int) -> int:
    """Bfloat16 pattern of the scale of a channel whose largest magnitude has the given pattern."""
    moved = bfloat16(float32(value_of(largest) + value_of(TINY)))
    return bfloat16(float32(value_of(moved) / FP8_MAX))


@functools.cache
def _codes() -> bytes:
    """FP8 codes of the bfloat16 numbers from 2^LOWEST to 2^HIGHEST, cut at 240."""
    first = (127 + LOWEST) * FRACTION
    values = (Fraction(value_of(first + step)) for step in range((HIGHEST - LOWEST) * FRACTION))
    return bytes(nearest_e4m3(min(value, Fraction(FP8_MAX))) for value in values)


@functools.lru_cache(maxsize=FRACTION)
def _binades(fraction: int) -> bytes:
    """Codes of w / scale for a scale 1.fraction x 2^0 and w from 2^(LOWEST + 1) to 2^HIGHEST.

    The rounding of a quotient does not depend on exponents, so that one binade of it serves all.
    """
    codes = _codes()
    quotients = [
        bfloat16(float32((FRACTION + step) / (FRACTION + fraction))) - 127 * FRACTION for step in range(FRACTION)
    ]
    return bytes(
        codes[quotient + (exponent - LOWEST) * FRACTION]
        for exponent in range(LOWEST + 1, HIGHEST)
        for quotient in quotients
    )


@functools.lru_cache(maxsize=256)
def table_of(scale: int) -> bytes:
    """65536 bytes: FP8 code of every bfloat16 pattern divided by a scale; w beyond 2^9 scales give 240."""
    exponent, fraction = divmod(scale, FRACTION)
    zeros = (exponent + LOWEST + 1) * FRACTION
    positive = (bytes(zeros) + _binades(fraction)).ljust(SIGN, bytes([CODE_OF_MAX]))[:SIGN]
    return positive + positive.translate(NEGATIVE)


@functools.cache
def table_hash() -> str:
    """Names the arithmetic in journals and provenance: all tables of scales with exponent 0, hashed."""
    text = b"".join(_binades(fraction) for fraction in range(FRACTION))
    return hashlib.sha256(text).hexdigest()


@functools.lru_cache(maxsize=256)
def addends(scale: int) -> tuple[bytes, bytes, bytes]:
    """Tables for the upper and the lower byte of a bfloat16 whose sum is the code, and which upper bytes are rare.

    Codes count on through the binades and a quotient's rounding does not depend on its exponent, so the code of a
    normal FP8 number is 8 for each binade plus a number of 0 to 16 that only the fraction decides. Rare are the
    subnormal ones, below 1/15000 of a channel's maximum: for them the sum is wrong and table_of is asked.
    """
    exponent, fraction = divmod(scale, FRACTION)
    one = CODE_OF_ONE - BINADE
    unit = _binades(fraction)[-(LOWEST + 1) * FRACTION :][:FRACTION]
    lower = bytes(BINADE * (low // FRACTION) + unit[low % FRACTION] - one for low in range(256))
    sums = [one + BINADE * (2 * high - exponent) for high in range(128)]
    rare = [value + lower[0] < BINADE or value > CODE_OF_MAX for value in sums]
    upper = bytes(0 if never else value for value, never in zip(sums, rare))
    return upper + upper.translate(NEGATIVE), lower, bytes(rare) * 2


def codes_of(upper: bytes, lower: bytes, scale: int) -> bytes:
    """FP8 codes of the bfloat16 numbers with these upper and lower bytes, all of one channel."""
    table_upper, table_lower, rare = addends(scale)
    # One addition for all: no sum reaches 256, so nothing is carried into a neighbour.
    total = int.from_bytes(upper.translate(table_upper), "little") + int.from_bytes(
        lower.translate(table_lower), "little"
    )
    codes = bytearray(total.to_bytes(len(upper), "little"))
    marks = upper.translate(rare)
    at = marks.find(1)
    while at >= 0:
        codes[at] = table_of(scale)[upper[at] << 8 | lower[at]]
        at = marks.find(1, at + 1)
    return bytes(codes)


@functools.lru_cache(maxsize=64)
def _lanes(pattern: bytes, count: int) -> int:
    return int.from_bytes(pattern * count, "little")


def largest(piece: bytes, unit: int, count: int) -> array.array[int]:
    """Largest magnitudes, as bfloat16 patterns: position by position over count vectors of unit numbers each.

    Halves are compared as two long integers of 15-bit lanes, which is ten times as fast as number by number.
    """
    values = int.from_bytes(piece, "little") & _lanes(b"\xff\x7f", unit * count)
    while count > 1:
        count = (count + 1) // 2
        lanes = unit * count
        flags = _lanes(b"\x00\x80", lanes)
        low, high = values & _lanes(b"\xff\xff", lanes), values >> 16 * lanes
        larger = ((low | flags) - high) & flags  # the flag of a lane survives where low >= high
        values = high ^ ((low ^ high) & (larger - (larger >> 15)))
    return array.array("H", values.to_bytes(2 * unit, "little"))
