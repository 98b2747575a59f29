"""Record which packages this project installed, so that removing it removes these packages and no others.

The record is written from apt's own simulation (--simulate) before the installation: so it is also right after an
interrupted run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ..base.refusal import Refusal


def removal(packages: Sequence[str], *, simulate: bool) -> list[str]:
    """Return the command that removes packages with their configuration, or simulates that."""
    return ["apt-get", *(["--simulate"] if simulate else []), "--yes", "--quiet", "purge", *packages]


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
