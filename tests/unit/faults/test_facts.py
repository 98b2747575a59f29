"""Statements about facts, on which a remedy depends."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.faults.facts import Facts


@pytest.mark.parametrize(
    ("release", "early"),
    [
        ("1.22", True),
        ("1.22-2025.11", True),
        ("1.24", True),
        ("1.24.0", True),
        ("1.24.1", False),
        ("deepseek-r1", False),
    ],
)
def test_gemma_4_is_too_early_by_the_number_of_its_release(release: str, early: bool) -> None:
    assert Facts(model="google/gemma-4-31b-it", release=release).gemma4_too_early is early
    assert Facts(model="qwen3-8b", release=release).gemma4_too_early is False
