"""Record which packages this project installed, so that removing it removes these packages and no others.

The record is written from apt's own simulation (--simulate) before the installation: so it is also right after an
interrupted run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..base.refusal import Refusal


@dataclass(frozen=True)
class Removal:
    """Packages of a part that are removed, and those that stay, each with the packages that need it."""

    going: tuple[str, ...] = ()
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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


def divide(there: Sequence[str], ours: Collection[str], removed: Callable[[Sequence[str]], Iterable[str]]) -> Removal:
    """Decide which packages of a part can be removed without a package outside of the part.

    there: the part's packages that are installed. ours: all packages of the part. removed: simulates the removal of
    packages, and returns all packages that it would remove.
    """
    if all(name in ours for name in removed(there)):
        return Removal(tuple(there))
    going: list[str] = []
    kept: dict[str, tuple[str, ...]] = {}
    for name in there:
        needing = tuple(each for each in removed([*going, name]) if each not in ours or each in kept)
        if needing:
            kept[name] = needing
        else:
            going.append(name)
    return Removal(tuple(going), kept)


def handed_over(
    record: Mapping[str, Sequence[str]], part: str, kept: Mapping[str, Iterable[str]]
) -> dict[str, list[str]]:
    """Return the record in which packages that another part needs are that part's, and are removed with it."""
    after = {name: list(names) for name, names in record.items()}
    for package, needing in kept.items():
        heir = next((name for name in after if name != part and not set(after[name]).isdisjoint(needing)), None)
        if heir is not None:
            after[part].remove(package)
            after[heir] = sorted([*after[heir], package])
    return {name: names for name, names in after.items() if names}


def stays(record: Mapping[str, Sequence[str]], kept: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what to report of packages that this project installed and that stay, for "Stays: ...".

    record: before the removal. kept: of a Removal.
    """
    known = {name for names in record.values() for name in names}
    found = []
    for package, needing in kept.items():
        others = [name for name in needing if name not in known]
        found.append(
            f"{package}, which this project installed and {', '.join(others)} of others needs"
            if others
            else f"{package}, which {', '.join(needing)} needs and which is removed with it"
        )
    return found


def not_removed(packages: Sequence[str]) -> list[str]:
    """Return what to report, for "Stays: ...", of packages on a system where none are removed."""
    names = " ".join(packages)
    return [f"packages that this project installed: {', '.join(packages)} (dnf remove {names})"] if packages else []


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
