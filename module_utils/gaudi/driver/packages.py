"""Which of the vendor's packages are on a node, in which state, held against those that a release wants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..preflight import versions
from .facts import DEB, ReleasePackages

# States, in this order: none of the vendor's packages; all right; some missing, none wrong; all of one older version;
# of one newer version; of several versions; unfinished.
ABSENT, RIGHT, INCOMPLETE = "absent", "right", "incomplete"
OLDER, NEWER, MIXED, BROKEN = "older", "newer", "mixed", "broken"

# dpkg(1): states that are neither installed nor removed. A package with only its configuration left counts as removed.
_GONE = {"not-installed", "config-files"}
# States of a package that dpkg has not finished. One that only waits for a trigger counts as finished.
_UNFINISHED = {"half-installed", "unpacked", "half-configured"}
_REINSTALL, _LEAVING = "reinstreq", "half-configured"
_DPKG = "${Package} ${db:Status-Want} ${db:Status-Status} ${db:Status-Eflag} ${Version}\\n"
_RPM = "%{NAME} install installed ok %{VERSION}-%{RELEASE}\\n"
_WANTS = {"unknown", "install", "hold", "deinstall", "purge"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*(:[a-z0-9]+)?")


@dataclass(frozen=True)
class DriverPackage:
    """A package as dpkg or rpm lists it.

    ``held``: on hold. ``torn``: dpkg was interrupted while unpacking it (reinst-required), and must unpack it again
    before it can configure it. ``leaving``: the interruption was in its own removal script.
    """

    name: str
    version: str
    whole: bool = True
    held: bool = False
    torn: bool = False
    leaving: bool = False


def query(format: str, patterns: Iterable[str]) -> list[str]:
    """The command that lists packages by pattern as parse() reads it; its status is not 0 where nothing matches."""
    if format == DEB:
        return ["dpkg-query", "--show", f"--showformat={_DPKG}", *patterns]
    return ["rpm", "--query", "--all", f"--queryformat={_RPM}", *patterns]


def parse(listed: str) -> dict[str, DriverPackage]:
    """The packages that are there, by name, from lines of ``NAME WANT STATUS ERROR VERSION``; others are passed
    over.
    """
    found = {}
    for line in listed.splitlines():
        words = line.split()
        # What rpm says of a package that it does not know has five words as well.
        if len(words) != 5 or words[1] not in _WANTS or not _NAME.fullmatch(words[0]) or words[2] in _GONE:
            continue
        name, want, status, error, version = words
        whole, torn = (status, error) == ("installed", "ok"), error == _REINSTALL
        leaving = torn and status == _LEAVING
        found[name] = DriverPackage(name, version, whole=whole, held=want == "hold", torn=torn, leaving=leaving)
    return found


def unfinished(listed: str, passed_over: Iterable[str]) -> tuple[str, ...]:
    """Return packages that dpkg did not finish, from such lines of all packages, except the names in ``passed_over``.

    A package that was never completely installed may have no version.
    """
    names: dict[str, None] = {}
    for line in listed.splitlines():
        words = line.split()
        if len(words) >= 4 and (words[2] in _UNFINISHED or words[3] == _REINSTALL) and _NAME.fullmatch(words[0]):
            names[words[0]] = None
    return tuple(name for name in names if name not in set(passed_over))


@dataclass(frozen=True)
class PackageComparison:
    """The result of comparing installed with wanted packages: one of the states above, and the packages behind it.

    ``differing``: installed in another version, by name. ``missing``: wanted and not installed. ``unfinished``:
    half-installed. ``held``: on hold, in whatever version.
    """

    state: str
    differing: Mapping[str, str]
    missing: tuple[str, ...]
    unfinished: tuple[str, ...]
    held: tuple[str, ...]

    @property
    def seen(self) -> str:
        """The other versions for people: 1.21.3-57, with the packages where there are several."""
        by_version: dict[str, list[str]] = {}
        for name, version in self.differing.items():
            by_version.setdefault(version, []).append(name)
        if len(by_version) == 1:
            return next(iter(by_version))
        return "; ".join(f"{version} ({', '.join(names)})" for version, names in sorted(by_version.items()))


def order(one: str, other: str) -> int | None:
    """-1, 0 or 1 where the first of two of the vendor's versions is older, the same, or newer; builds count.

    None where one of them cannot be read. A hash in the place of a build says nothing of what is newer.
    """
    left, right = versions.vendors(one), versions.vendors(other)
    if left is None or right is None:
        return None
    numbers = versions.compare(left, right)
    if numbers or left.build is None or right.build is None:
        return numbers
    return (left.build > right.build) - (left.build < right.build)


def judge(found: Mapping[str, DriverPackage], wanted: ReleasePackages) -> PackageComparison:
    """Compare the vendor's packages on a node with those of a release."""
    ours = {name: found[name] for name in wanted.packages if name in found}
    unfinished = tuple(name for name, package in ours.items() if not package.whole)
    differing = {name: package.version for name, package in ours.items() if package.version != wanted.version}
    missing = tuple(name for name in wanted.packages if name not in ours)
    held = tuple(name for name, package in ours.items() if package.held)
    orders = {order(package.version, wanted.version) for package in ours.values()}
    if unfinished:
        state = BROKEN
    elif not ours:
        state = ABSENT
    elif not differing:
        state = INCOMPLETE if missing else RIGHT
    elif orders == {-1}:
        state = OLDER
    else:
        state = NEWER if orders == {1} else MIXED
    return PackageComparison(state, differing, missing, unfinished, held)
