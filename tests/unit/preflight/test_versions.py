"""Versions are compared only as far as both go."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.preflight import versions
from ansible.module_utils.gaudi.preflight.versions import BUILD, PATCH, RELEASE, Version
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.lists(st.integers(0, 99), min_size=1, max_size=3).map(tuple)
BUILDS = st.none() | st.integers(0, 9999)
VERSIONS = st.builds(Version, NUMBERS, BUILDS)


@pytest.mark.parametrize(
    ("text", "numbers", "build"),
    [
        ("1.22.2-32", (1, 22, 2), 32),
        ("1.22.2.32", (1, 22, 2), 32),
        ("1.24.1-482.el9", (1, 24, 1), 482),
        ("1.24.0-1007", (1, 24, 0), 1007),
        # A hash is no build, also where it begins with digits or has nothing else.
        ("1.22.1-97ec1a4", (1, 22, 1), None),
        ("1.22.1-1234567", (1, 22, 1), None),
        ("5:29.1.5-1~ubuntu.24.04~noble", (29, 1, 5), 1),
        ("20.10.24+dfsg1-1+deb12u1", (20, 10, 24), None),
        ("6.8.0-45-generic", (6, 8, 0), 45),
    ],
)
def test_what_is_printed_is_read(text: str, numbers: tuple[int, ...], build: int | None) -> None:
    assert versions.vendors(text) == Version(numbers, build)


@pytest.mark.parametrize("text", ["", "unknown", "N/A", "v1.22"])
def test_what_is_no_version_is_none(text: str) -> None:
    assert versions.read(text) is None


@pytest.mark.parametrize(
    ("one", "other", "part"),
    [
        ("1.22.2-32", "1.22.2-97ec1a4", None),
        ("1.22.2-32", "1.22.2.32", None),
        ("1.22", "1.22.2-32", None),
        ("1.22.2-32", "1.22.2-33", BUILD),
        ("1.22.1-97ec1a4", "1.22.2-32", PATCH),
        ("1.21.2-32", "1.22.2-32", RELEASE),
        ("2.22.2", "1.22.2", RELEASE),
    ],
)
def test_two_versions_differ_in_one_part(one: str, other: str, part: str | None) -> None:
    left, right = versions.vendors(one), versions.vendors(other)
    assert left is not None
    assert right is not None
    assert versions.difference(left, right) == versions.difference(right, left) == part


@given(st.text())
def test_any_text_is_read_or_is_no_version(text: str) -> None:
    for version in (versions.read(text), versions.vendors(text)):
        assert version is None or all(number >= 0 for number in version.numbers)


@given(VERSIONS, VERSIONS)
def test_comparing_is_the_same_from_both_sides(one: Version, other: Version) -> None:
    assert versions.compare(one, other) == -versions.compare(other, one)
    assert versions.difference(one, other) == versions.difference(other, one)


@given(NUMBERS, NUMBERS, BUILDS)
def test_what_only_one_says_is_no_difference(head: tuple[int, ...], more: tuple[int, ...], build: int | None) -> None:
    short, long = Version(head), Version(head + more, build)
    assert versions.compare(short, long) == 0
    assert versions.difference(short, long) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=2))
def test_of_one_length_the_order_is_that_of_the_numbers(pair: list[tuple[int, int, int]]) -> None:
    one, other = pair
    assert versions.compare(Version(one), Version(other)) == (one > other) - (one < other)
    assert (versions.difference(Version(one), Version(other)) is None) == (one == other)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 999999))
def test_a_version_of_apt_and_of_pip_are_the_same(major: int, minor: int, patch: int, build: int) -> None:
    assert versions.vendors(f"{major}.{minor}.{patch}-{build}") == versions.vendors(f"{major}.{minor}.{patch}.{build}")
