"""The numbers of FP8 (float8_e4m3fn): value of a code, and nearest code of a value."""

from __future__ import annotations

from fractions import Fraction

MAGNITUDE = 0x7F
NAN_CODE = 0x7F
CODE_OF_240 = 0x77  # 1.875 x 2^7


def e4m3_value(code: int) -> Fraction:
    """Value of a non-negative float8_e4m3fn code (0 to 126): bias 7, subnormals in steps of 2^-9."""
    exponent, mantissa = code >> 3, code & 7
    if exponent == 0:
        return Fraction(mantissa, 512)
    return Fraction(8 + mantissa, 8) * Fraction(2) ** (exponent - 7)


_VALUES = [e4m3_value(code) for code in range(NAN_CODE)]


def nearest_e4m3(value: Fraction) -> int:
    """Code of the float8_e4m3fn number nearest to a non-negative value, ties to the even code.

    Above 464 (half a step beyond 448) there is no finite neighbour: NaN. Only bfloat16 weights above 866 in
    magnitude get there; torch 2.13 gives 448 for them.
    """
    if value > 464:
        return NAN_CODE
    low, high = 0, NAN_CODE - 1
    while low < high:  # the last code whose value is not above
        middle = (low + high + 1) // 2
        if value >= _VALUES[middle]:
            low = middle
        else:
            high = middle - 1
    if low == NAN_CODE - 1:
        return low
    below, above = value - _VALUES[low], _VALUES[low + 1] - value
    if below == above:
        return low if low % 2 == 0 else low + 1
    return low if below < above else low + 1
