"""The arithmetic of the converter against what torch gave."""

from __future__ import annotations

import array
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from gaudi_fp8.block.tables import EXACT_HALF, GAUDI2, bf16_weight_table, scaled, weight_table
from gaudi_fp8.e4m3 import CODE_OF_240, e4m3_value

RECORDED = json.loads((Path(__file__).parents[2] / "integration/fp8/recorded/torch.json").read_text())


@pytest.mark.parametrize("factor", [GAUDI2, EXACT_HALF], ids=lambda factor: factor.name)
def test_all_256_codes_are_what_torch_gives(factor: Any) -> None:
    assert weight_table(factor).hex() == RECORDED[f"table {factor.name}"]


def test_the_result_ends_at_240_and_keeps_nan() -> None:
    table = weight_table(GAUDI2)
    assert max(code & 0x7F for code in table if code & 0x7F != 0x7F) == CODE_OF_240
    assert (table[0x7F], table[0xFF]) == (0x7F, 0xFF)
    assert (table[0], table[0x80]) == (0, 0x80)


def test_from_code_16_up_the_table_is_code_minus_7() -> None:
    table = weight_table(GAUDI2)
    assert all(table[code] == code - 7 for code in range(16, 0x7F))


def test_half_keeps_236_of_252_codes_exactly() -> None:
    table = weight_table(EXACT_HALF)
    finite = [code for code in range(256) if code & 0x7F not in (0, 0x7F)]
    exact = [c for c in finite if e4m3_value(table[c] & 0x7F) * 2 == e4m3_value(c & 0x7F)]
    assert (len(exact), len(finite)) == (236, 252)


def test_scales_have_the_bits_of_float32_arithmetic() -> None:
    given_bits = [int(pair[0], 16) for pair in RECORDED["scales"]]
    values = array.array("f", struct.pack(f"<{len(given_bits)}I", *given_bits))
    result = struct.unpack(f"<{len(given_bits)}I", scaled(values, GAUDI2).tobytes())
    assert [f"{bits:08x}" for bits in result] == [pair[1] for pair in RECORDED["scales"]]


def test_bf16_weights_become_what_torch_gives() -> None:
    table = bf16_weight_table(GAUDI2)
    assert [[pattern, table[pattern]] for pattern, _ in RECORDED["bf16"]] == RECORDED["bf16"]
