"""CPU lists: every range counts, every spelling is read, nothing else is."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from ansible.module_utils.gaudi.base.cpulist import (
    MAX_CPU,
    format_cpulist,
    format_ranges,
    normalise_cpulist,
    parse_ranges,
)
from hypothesis import given
from hypothesis import strategies as st

CPUS = st.sets(st.integers(0, MAX_CPU), max_size=200)


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("0-39,80-119", ((0, 39), (80, 119))),
        ("0-39, 80-119", ((0, 39), (80, 119))),
        ("0-31\n", ((0, 31),)),
        ("0-13,28-41,56-69", ((0, 13), (28, 41), (56, 69))),
        ("0,2,4-6", ((0, 0), (2, 2), (4, 6))),
        ("7", ((7, 7),)),
        ("80-119,0-39", ((0, 39), (80, 119))),
        ("0-3,4-7,6-9", ((0, 9),)),
        ("", ()),
        (" \n", ()),
    ],
)
def test_ranges(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert parse_ranges(text) == ranges


@pytest.mark.parametrize(
    "text",
    ["x", "0-", "-3", "3-1", "0-39;80", "0,,1", "0-39,", "1 2", "0-99999999", "8192", "0x1", "٣", "1-2-3", "N/A"],
)
def test_anything_else_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_ranges(text)


def test_a_refusal_quotes_no_more_than_a_line_can_carry() -> None:
    with pytest.raises(ValueError, match="xxx") as refusal:
        parse_ranges("x" * 1_000_000)
    assert len(str(refusal.value)) < 200


@given(CPUS)
def test_what_is_written_is_read_back(cpus: set[int]) -> None:
    ranges = parse_ranges(format_cpulist(cpus))
    assert [cpu for first, last in ranges for cpu in range(first, last + 1)] == sorted(cpus)


@given(CPUS)
def test_the_kernels_form_has_no_range_that_could_be_joined(cpus: set[int]) -> None:
    ranges = parse_ranges(format_cpulist(cpus))
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(ranges))


@given(CPUS, st.sampled_from([",", ", ", " , ", ",\t"]))
def test_blanks_do_not_matter(cpus: set[int], comma: str) -> None:
    assert normalise_cpulist(format_cpulist(cpus).replace(",", comma)) == format_cpulist(cpus)


@given(st.text() | st.from_regex(r"\A[0-9, \-]{0,40}\Z"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        ranges = parse_ranges(text)
    except ValueError:
        return
    assert parse_ranges(format_ranges(ranges)) == ranges


@pytest.mark.parametrize("cpus", [[-1], [MAX_CPU + 1], [3, 9000]])
def test_a_number_no_cpu_has_is_not_written(cpus: list[int]) -> None:
    with pytest.raises(ValueError, match=str(MAX_CPU)):
        format_cpulist(cpus)
