"""Record which packages this project installed, so that removing it removes these packages and no others.

The record is written from apt's own simulation (--simulate) before the installation: so it is also right after an
interrupted run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..base.refusal import Refusal

# "Inst docker.io (20.10.24 ...)" is a new package, "Inst docker.io [20.10.23] (20.10.24 ...)" an upgrade; a removal is
# Remv, or Purg with --purge. Names may have an architecture.
_NEW = re.compile(r"^Inst (?P<name>[^\s:]+)\S* \(", re.MULTILINE)
_GOES = re.compile(r"^(?:Remv|Purg) (?P<name>[^\s:]+)", re.MULTILINE)


def simulation(words: Sequence[str], packages: Sequence[str]) -> list[str]:
    """Return the command that simulates an installation; words: further options of apt-get."""
    return ["apt-get", "--simulate", "--quiet", "--no-install-recommends", *words, "install", *packages]


def removal(packages: Sequence[str], *, simulate: bool) -> list[str]:
    """Return the command that removes packages with their configuration, or simulates that."""
    return ["apt-get", *(["--simulate"] if simulate else []), "--yes", "--quiet", "purge", *packages]


def new_of(simulated: str) -> list[str]:
    """Return the packages that a simulated installation adds, without upgrades."""
    return list(dict.fromkeys(match["name"] for match in _NEW.finditer(simulated)))


def going_of(simulated: str) -> list[str]:
    """The packages that a simulated removal takes away."""
    return list(dict.fromkeys(match["name"] for match in _GOES.finditer(simulated)))


def noted(record: Mapping[str, Sequence[str]], part: str, packages: Iterable[str]) -> dict[str, list[str]]:
    """Add packages to a part's record; a package stays with the part that first installed it."""
    known = {name for names in record.values() for name in names}
    found = [*record.get(part, ()), *(name for name in packages if name not in known)]
    return {**{name: list(names) for name, names in record.items()}, **({part: sorted(found)} if found else {})}


def without(record: Mapping[str, Sequence[str]], part: str) -> dict[str, list[str]]:
    """Return the record without a part."""
    return {name: list(names) for name, names in record.items() if name != part}


def needed_by_others(going: Iterable[str], ours: Collection[str]) -> Refusal | None:
    """Return the refusal if other packages, which this project did not install, would be removed too."""
    others = [name for name in going if name not in ours]
    if not others:
        return None
    return Refusal(
        "packages_needed_by_others",
        f"With the packages that came with ours, {', '.join(others)} would go as well, which we did not bring. Remove "
        f"{'them' if len(others) > 1 else 'it'} first, or keep what is there.",
    )
