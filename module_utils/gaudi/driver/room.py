"""How much room the packages of a driver take, by what the index of their repository says of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .offered import stanzas

# Where apt fetches to (apt.conf(5), Dir::Cache::archives), and where the packages unpack most of what they have.
ARCHIVES, UNPACKED = "/var/cache/apt/archives", "/usr"
KIB = 1024


@dataclass(frozen=True)
class Size:
    """A package's file, and what it unpacks to, in bytes."""

    file: int = 0
    unpacked: int = 0


def parse(index: str) -> dict[str, Size]:
    """Sizes by NAME=VERSION, from a repository's index or what apt-cache show prints; a field that is not there is 0.

    Size is in bytes, Installed-Size in KiB (deb-control(5), Debian policy 5.6.20).
    """
    found = {}
    for stanza in stanzas(index):
        size, unpacked = (stanza.get(field, "") for field in ("Size", "Installed-Size"))
        # A stanza without Size is of an installed package that no repository offers.
        if size.isdigit():
            found[f"{stanza.get('Package')}={stanza.get('Version')}"] = Size(
                int(size), int(unpacked) * KIB if unpacked.isdigit() else 0
            )
    return found


def of(sizes: Mapping[str, Size], name: str) -> Size:
    """The size of a package, NAME=VERSION; of NAME alone the largest that is offered."""
    if "=" in name:
        return sizes.get(name, Size())
    offered = [size for exact, size in sizes.items() if exact.partition("=")[0] == name]
    return max(offered, key=lambda size: size.unpacked, default=Size())


def wishes(
    sizes: Mapping[str, Size], comes: Sequence[str], kept: Sequence[str], there: Iterable[str], keep: str
) -> list[tuple[str, str, int]]:
    """What it is, where it goes, and its bytes: of packages that come, and of those that are kept in the folder keep.

    there: packages whose files lie on the node already. What goes when another version comes is not taken off.
    """
    here = set(there)
    asked = (
        ("the driver's packages", ARCHIVES, sum(of(sizes, name).file for name in comes if name not in here)),
        ("what they unpack to", UNPACKED, sum(of(sizes, name).unpacked for name in comes)),
        ("the packages that they replace", keep, sum(of(sizes, name).file for name in kept if name not in here)),
    )
    return [wish for wish in asked if wish[2]]
