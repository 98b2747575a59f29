"""Which packages came to a node with ours, so that these and no others go when ours do.

What apt would do is asked of apt itself (--simulate), before it does it: a run that is cut off leaves a record that is
right all the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..base.refusal import Refusal

# Inst docker.io (20.10.24 ...) is new, Inst docker.io [20.10.23] (20.10.24 ...) is there already; a removal is Remv, or
# Purg with --purge. Names may carry an architecture.
_NEW = re.compile(r"^Inst (?P<name>[^\s:]+)\S* \(", re.MULTILINE)
_GOES = re.compile(r"^(?:Remv|Purg) (?P<name>[^\s:]+)", re.MULTILINE)


def simulation(words: Sequence[str], packages: Sequence[str]) -> list[str]:
    """The command that says what installing some packages would do; words: further options of apt-get."""
    return ["apt-get", "--simulate", "--quiet", "--no-install-recommends", *words, "install", *packages]


def removal(packages: Sequence[str], *, simulate: bool) -> list[str]:
    """The command that removes packages with their configuration, or says what that would do."""
    return ["apt-get", *(["--simulate"] if simulate else []), "--yes", "--quiet", "purge", *packages]


def new_of(simulated: str) -> list[str]:
    """The packages that a simulated installation brings, but for those that it upgrades."""
    return list(dict.fromkeys(match["name"] for match in _NEW.finditer(simulated)))


def going_of(simulated: str) -> list[str]:
    """The packages that a simulated removal takes away."""
    return list(dict.fromkeys(match["name"] for match in _GOES.finditer(simulated)))


def noted(record: Mapping[str, Sequence[str]], part: str, packages: Iterable[str]) -> dict[str, list[str]]:
    """The record with further packages of a part, which stay those of the part that brought them first."""
    known = {name for names in record.values() for name in names}
    found = [*record.get(part, ()), *(name for name in packages if name not in known)]
    return {**{name: list(names) for name, names in record.items()}, **({part: sorted(found)} if found else {})}


def without(record: Mapping[str, Sequence[str]], part: str) -> dict[str, list[str]]:
    """The record when a part is gone."""
    return {name: list(names) for name, names in record.items() if name != part}


def needed_by_others(going: Iterable[str], ours: Collection[str]) -> Refusal | None:
    """Why packages cannot go: others that were not brought with them need them."""
    others = [name for name in going if name not in ours]
    if not others:
        return None
    return Refusal(
        "packages_needed_by_others",
        f"With the packages that came with ours, {', '.join(others)} would go as well, which we did not bring. Remove "
        f"{'them' if len(others) > 1 else 'it'} first, or keep what is there.",
    )
