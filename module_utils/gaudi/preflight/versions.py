"""Versions as packages, drivers, images and kernels print them, compared only as far as both go.

A package says ``1.22.2-32`` (rpm: ``1.24.1-482.el9``), pip ``1.22.2.32``, the driver ``1.22.2-97ec1a4``: of the first
three the build is known, of the last only a hash, which says nothing of what is newer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# What two versions differ in first. RELEASE is major or minor number.
RELEASE, PATCH, BUILD = "release", "patch", "build"

# An epoch of dpkg or rpm before it. Hashes have seven digits, builds have never had more than four.
_FORM = re.compile(r"\s*(?:\d+:)?(?P<numbers>\d{1,9}(?:\.\d{1,9})*)(?:-(?P<build>\d{1,6})(?![0-9A-Za-z]))?")
# major, minor and patch; pip has the build behind them.
_PARTS = 3


@dataclass(frozen=True)
class Version:
    """A version: its numbers, and its build where it says one."""

    numbers: tuple[int, ...]
    build: int | None = None

    @property
    def minor(self) -> str:
        """Major and minor number: 1.22."""
        return ".".join(map(str, self.numbers[:2]))


def read(text: str) -> Version | None:
    """The version at the start of a text; None where there is none."""
    match = _FORM.match(text)
    if match is None:
        return None
    numbers = tuple(int(number) for number in match["numbers"].split("."))
    return Version(numbers, None if match["build"] is None else int(match["build"]))


def vendors(text: str) -> Version | None:
    """As ``read``, for a version of the vendor's software: a fourth number is its build."""
    version = read(text)
    if version is None or len(version.numbers) <= _PARTS:
        return version
    return Version(version.numbers[:_PARTS], version.numbers[_PARTS])


def compare(one: Version, other: Version) -> int:
    """-1, 0 or 1 where the first is older, the same, or newer, as far as the numbers of both go."""
    for left, right in zip(one.numbers, other.numbers):
        if left != right:
            return -1 if left < right else 1
    return 0


def difference(one: Version, other: Version) -> str | None:
    """The first part in which two versions of the vendor's software differ; None where neither says another thing."""
    for place, (left, right) in enumerate(zip(one.numbers, other.numbers)):
        if left != right:
            return RELEASE if place < _PARTS - 1 else PATCH
    if len(one.numbers) == len(other.numbers) and None not in (one.build, other.build) and one.build != other.build:
        return BUILD
    return None
