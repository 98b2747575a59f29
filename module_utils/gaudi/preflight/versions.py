"""Parse versions of packages, drivers, images and kernels, and compare them by the numbers that both have.

A package has ``1.22.2-32`` (rpm: ``1.24.1-482.el9``), pip ``1.22.2.32``, the driver ``1.22.2-97ec1a4``. The first three
contain the build number; the driver only has a hash, which has no order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The first part in which two versions differ. RELEASE: major or minor number.
RELEASE, PATCH, BUILD = "release", "patch", "build"

# An epoch of dpkg or rpm before the version. Hashes have seven digits; builds have never had more than four.
_FORM = re.compile(r"\s*(?:\d+:)?(?P<numbers>\d{1,9}(?:\.\d{1,9})*)(?:-(?P<build>\d{1,6})(?![0-9A-Za-z]))?")
# major, minor and patch; pip has the build behind them.
_PARTS = 3


@dataclass(frozen=True)
class Version:
    """A version: its numbers, and its build if it has one."""

    numbers: tuple[int, ...]
    build: int | None = None

    @property
    def minor(self) -> str:
        """Major and minor number: 1.22."""
        return ".".join(map(str, self.numbers[:2]))


def read(text: str) -> Version | None:
    """Return the version at the start of a text; None without one."""
    match = _FORM.match(text)
    if match is None:
        return None
    numbers = tuple(int(number) for number in match["numbers"].split("."))
    return Version(numbers, None if match["build"] is None else int(match["build"]))


def vendors(text: str) -> Version | None:
    """As ``read``, for versions of the vendor's software, whose fourth number is the build."""
    version = read(text)
    if version is None or len(version.numbers) <= _PARTS:
        return version
    return Version(version.numbers[:_PARTS], version.numbers[_PARTS])


def compare(one: Version, other: Version) -> int:
    """Return -1, 0 or 1 if the first is older, equal or newer, comparing the numbers that both have."""
    for left, right in zip(one.numbers, other.numbers):
        if left != right:
            return -1 if left < right else 1
    return 0


def difference(one: Version, other: Version) -> str | None:
    """Return the first part in which two versions of the vendor's software differ; None if there is none."""
    for place, (left, right) in enumerate(zip(one.numbers, other.numbers)):
        if left != right:
            return RELEASE if place < _PARTS - 1 else PATCH
    if len(one.numbers) == len(other.numbers) and None not in (one.build, other.build) and one.build != other.build:
        return BUILD
    return None
