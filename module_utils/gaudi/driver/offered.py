"""What a node's package repositories offer, so that a version that none of them has is refused before any change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..base.refusal import Refusal
from .facts import DEB, ReleasePackages


def query(format: str, names: Sequence[str]) -> list[str]:
    """Return the command that lists every offered version of some packages; parse() reads its output.

    It prints nothing for a package that is in no repository, and still ends with status 0.
    """
    if format == DEB:
        return ["apt-cache", "madison", *names]
    return ["dnf", "--quiet", "repoquery", "--queryformat=%{name} | %{version}-%{release} |\\n", *names]


def parse(listed: str) -> dict[str, tuple[str, ...]]:
    """Versions on offer by package, in the order of the listing, from lines of ``NAME | VERSION | ORIGIN``."""
    found: dict[str, list[str]] = {}
    for line in listed.splitlines():
        columns = [column.strip() for column in line.split("|")]
        # Lines of source packages install nothing.
        if len(columns) < 3 or not columns[0] or not columns[1] or columns[2].endswith(" Sources"):
            continue
        versions = found.setdefault(columns[0], [])
        if columns[1] not in versions:
            versions.append(columns[1])
    return {name: tuple(versions) for name, versions in found.items()}


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yield the stanzas of a repository's index or of apt-cache show as fields; of a long field only its first line."""
    for block in re.split(r"\n\s*\n", text):
        lines = (line.partition(":") for line in block.splitlines() if line[:1] not in (" ", "\t"))
        if fields := {key: value.strip() for key, colon, value in lines if colon}:
            yield fields


def of_index(text: str) -> dict[str, tuple[str, ...]]:
    """Versions by package of a repository's index (its file Packages)."""
    found: dict[str, list[str]] = {}
    for fields in stanzas(text):
        if "Package" in fields and "Version" in fields:
            found.setdefault(fields["Package"], []).append(fields["Version"])
    return {package: tuple(versions) for package, versions in found.items()}


def together(one: Mapping[str, Sequence[str]], other: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Merge two listings, each version once."""
    return {name: tuple(dict.fromkeys((*one.get(name, ()), *other.get(name, ())))) for name in {**one, **other}}


def refusal(offered: Mapping[str, Sequence[str]], wanted: ReleasePackages, names: Sequence[str]) -> Refusal | None:
    """Return why packages cannot be installed in the release's version; None if all are offered."""
    nowhere = [name for name in names if name not in offered]
    if nowhere:
        return Refusal(
            "driver_package_not_offered",
            f"No package repository of this node has {', '.join(nowhere)}. Set gaudi_driver_repository to the vendor's "
            "repository or a mirror of it, and look at its suite (gaudi_driver_suite).",
        )
    other = {name: offered[name] for name in names if wanted.version not in offered[name]}
    if other:
        seen = "; ".join(f"{name} {', '.join(found[:4])}" for name, found in other.items())
        return Refusal(
            "driver_version_not_offered",
            f"The package repositories of this node do not have version {wanted.version} of {', '.join(other)}. They "
            f"have {seen}. Use a mirror that keeps it, or set gaudi_release to a release that is there.",
        )
    return None


def headers_refusal(offered: Mapping[str, Sequence[str]], names: Sequence[str], kernel: str) -> Refusal | None:
    """Why the driver cannot be built for a kernel: its headers are neither on the node nor on offer."""
    nowhere = [name for name in names if name not in offered]
    if not nowhere:
        return None
    return Refusal(
        "kernel_headers_not_offered",
        f"Kernel {kernel} has no headers on this node, and no package repository has {', '.join(nowhere)}, so that "
        "DKMS cannot build the driver. Boot a kernel of the distribution, or add the repository that its kernel is "
        "from.",
    )


def way_back_refusal(offered: Mapping[str, Sequence[str]], present: Mapping[str, str]) -> Refusal | None:
    """Return why the packages to be replaced (versions by name) could not be reinstalled; None if they can."""
    gone = [f"{name} {version}" for name, version in present.items() if version not in offered.get(name, ())]
    if not gone:
        return None
    return Refusal(
        "no_way_back",
        f"No package repository of this node has {', '.join(gone)} any more, so that the present driver could not be "
        "brought back where the new one does not come up. Use a mirror that keeps it, or set gaudi_driver_no_way_back: "
        "true.",
    )
