"""Disk space that the driver's packages take, from their repository's index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .offered import stanzas

# Download directory (apt.conf(5), Dir::Cache::archives), and where the packages unpack most of their files.
ARCHIVES, UNPACKED = "/var/cache/apt/archives", "/usr"
KIB = 1024


@dataclass(frozen=True)
class Size:
    """Bytes of a package's file, and bytes that it unpacks to."""

    file: int = 0
    unpacked: int = 0


def parse(index: str) -> dict[str, Size]:
    """Sizes by NAME=VERSION, from a repository's index or what apt-cache show prints; a field that is not there is 0.

    Size is in bytes, Installed-Size in KiB (deb-control(5), Debian policy 5.6.20).
    """
    found = {}
    for stanza in stanzas(index):
        size, unpacked = (stanza.get(field, "") for field in ("Size", "Installed-Size"))
        # A stanza without Size describes an installed package that no repository offers.
        if size.isdigit():
            found[f"{stanza.get('Package')}={stanza.get('Version')}"] = Size(
                int(size), int(unpacked) * KIB if unpacked.isdigit() else 0
            )
    return found


def of(sizes: Mapping[str, Size], name: str) -> Size:
    """Return the size of a package, NAME=VERSION; for NAME alone, of the largest version on offer."""
    if "=" in name:
        return sizes.get(name, Size())
    offered = [size for exact, size in sizes.items() if exact.partition("=")[0] == name]
    return max(offered, key=lambda size: size.unpacked, default=Size())


def space_demands(
    sizes: Mapping[str, Size], comes: Sequence[str], kept: Sequence[str], there: Iterable[str], keep: str
) -> list[tuple[str, str, int]]:
    """Return (what, path, bytes) of packages to install, and of replaced packages to keep in the folder ``keep``.

    there: packages whose files are on the node already. Space that the old version frees is not subtracted.
    """
    here = set(there)
    asked = (
        ("the driver's packages", ARCHIVES, sum(of(sizes, name).file for name in comes if name not in here)),
        ("what they unpack to", UNPACKED, sum(of(sizes, name).unpacked for name in comes)),
        ("the packages that they replace", keep, sum(of(sizes, name).file for name in kept if name not in here)),
    )
    return [need for need in asked if need[2]]
