"""Names of jobs, which become names of units."""

from __future__ import annotations

import pytest

from filter_plugins.job_key import job_key


@pytest.mark.parametrize(
    ("folder", "key"),
    [
        ("DeepSeek-R1-0528", "deepseek-r1-0528"),
        ("Qwen2.5-7B", "qwen2.5-7b"),
        ("a__b c", "a-b-c"),
        ("../..", ""),
        ("x..y", "x.y"),
        ("ends.-", "ends"),
        ("wörter", "w-rter"),
    ],
)
def test_a_key_has_only_what_a_unit_name_may_have(folder: str, key: str) -> None:
    assert job_key(folder) == key
