"""Tables that move FP8 codes into the range of Gaudi2."""

from __future__ import annotations

import array
import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction

from ..e4m3 import _VALUES, NAN_CODE, nearest_e4m3


@dataclass(frozen=True)
class Factor:
    """How weights shrink: weight x numerator / denominator, scales the other way round."""

    name: str
    numerator: int
    denominator: int


GAUDI2 = Factor("240/448", 240, 448)

# 236 of the 252 finite non-zero codes survive exactly, against 28 with 240/448; the result ends at 224.
EXACT_HALF = Factor("1/2", 1, 2)


def weight_table(factor: Factor) -> bytes:
    """The 256-byte table: result code of every float8_e4m3fn code, NaN staying NaN and zero its sign."""
    shrink = Fraction(factor.numerator, factor.denominator)
    half = bytes(nearest_e4m3(value * shrink) for value in _VALUES) + bytes([NAN_CODE])
    return half + bytes(code | 0x80 for code in half)


def table_hash(table: bytes) -> str:
    """Name of a table in journals and provenance."""
    return hashlib.sha256(table).hexdigest()


def to_float32(values: array.array[int]) -> array.array[float]:
    """Widen bfloat16 bit patterns (array of 'H') to float32: the upper half of the same bits."""
    wide = array.array("I", (bits << 16 for bits in values))
    return array.array("f", wide.tobytes())


def scaled(values: array.array[float], factor: Factor) -> array.array[float]:
    """Float32 x denominator / numerator, rounded to float32 after each step, in that order.

    A float32 times 448 is exact in Python's doubles and a quotient of two float32 in double precision
    rounds to float32 as if divided once, so the result has the bits of float32 arithmetic.
    """
    product = array.array("f", (value * factor.denominator for value in values))
    return array.array("f", (value / factor.numerator for value in product))


def bf16_weight_table(factor: Factor) -> bytes:
    """65536 bytes: float8_e4m3fn code of every bfloat16 pattern x numerator / denominator in float32."""
    positive = bytearray(0x8000)
    patterns = array.array("H", range(0x8000))
    product = array.array("f", (value * factor.numerator for value in to_float32(patterns)))
    shrunk = array.array("f", (value / factor.denominator for value in product))
    for pattern, value in enumerate(shrunk):
        positive[pattern] = nearest_e4m3(Fraction(value)) if math.isfinite(value) else NAN_CODE
    return bytes(positive) + bytes(code | 0x80 for code in positive)
