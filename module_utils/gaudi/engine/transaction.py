"""What an installation would do to a node's packages, from the simulation of the package manager.

An installation that removes or downgrades packages of others, changes packages on hold, or finishes a package that was
left unfinished is refused before anything is changed. One that upgrades packages of others is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ..base.refusal import Refusal

DEBIAN, RHEL = "Debian", "RedHat"

# apt-get(8): "Inst docker.io (20.10.24 ...)" is a new package, "Inst docker.io [20.10.23] (20.10.24 ...)" another
# version of an installed one; a removal is Remv, or Purg with --purge. Names may have an architecture.
_APT = re.compile(
    r"^(?P<what>Inst|Conf|Remv|Purg) (?P<name>[^\s:]+)\S*(?: \[(?P<before>[^\]]+)\])?(?: \((?P<after>\S+))?",
    re.MULTILINE,
)
_DOWNGRADED = "The following packages will be DOWNGRADED:"
_HELD = "The following held packages will be changed:"
_UNMET = "The following packages have unmet dependencies:"
_BROKEN = re.compile(r"--fix-broken install|apt-get -f install|Unmet dependencies\. Try")
_NOWHERE = re.compile(
    r"^E: (?:Unable to locate package|Package) '?(?P<apt>[^\s']+)'?(?: has no installation candidate)?\s*$"
    r"|Unable to find a match: (?P<dnf>.+)$",
    re.MULTILINE,
)
# Sections of dnf's table, and what happens to the packages in each.
_SECTIONS = {
    "Installing": "new",
    "Upgrading": "upgraded",
    "Downgrading": "downgraded",
    "Removing": "removed",
    "Reinstalling": "",
    "Skipping": "",
    "Transaction Summary": "",
}
_REPLACING = re.compile(r"^\s+replacing\s+(?P<name>\S+)\.[a-z0-9_]+\s+\S+\s*$", re.MULTILINE)
_PROBLEM = re.compile(r"^ *(?:Problem(?: \d+)?:|-) .*$", re.MULTILINE)

HELP = {
    "engine": (
        "Set container_runtime_packages to packages that fit those of the node (docker-ce, docker-ce-cli and "
        "containerd.io where containerd.io is installed), or install an engine yourself and set "
        "container_runtime_manage: false."
    ),
    "habana": "Install the vendor's runtime yourself, and leave container_runtime_habana_repository empty.",
    "driver": "See docs/driver.md.",
    "weights": "Install the package yourself in a way that keeps the others.",
}
"""What to do about a refusal, by the part of this project that asks for the packages."""


HARMS = frozenset(
    {
        *("packages_broken", "packages_do_not_fit", "packages_downgraded", "packages_on_hold", "packages_removed"),
        "packages_unfinished",
    }
)
"""Ids of the refusals that say what an installation would do to packages of others."""


@dataclass(frozen=True)
class Upgrade:
    """A package that gets a newer version. before: "" if the package manager does not print it."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Transaction:
    """Packages by what happens to them.

    unfinished: packages that an earlier installation left unfinished, and that this one would finish.
    """

    new: tuple[str, ...] = ()
    upgraded: tuple[Upgrade, ...] = ()
    downgraded: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()

    def without(self, names: Collection[str], beginnings: Sequence[str] = ()) -> Transaction:
        """Return the same without what happens to packages of these names, or with names that begin like this."""

        def kept(packages: Iterable[str]) -> tuple[str, ...]:
            return tuple(name for name in packages if name not in names and not name.startswith(tuple(beginnings)))

        upgraded = tuple(each for each in self.upgraded if kept([each.name]))
        return Transaction(
            self.new, upgraded, kept(self.downgraded), kept(self.removed), kept(self.held), kept(self.unfinished)
        )


def simulation(family: str, packages: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """Return the command that simulates an installation. options: further options of the package manager."""
    if family == RHEL:
        # Never a question, and nothing is changed: the answer is no.
        return ["dnf", "--assumeno", "--color=never", *options, "install", *packages]
    return ["apt-get", "--simulate", "--quiet", "--no-install-recommends", *options, "install", *packages]


def parse(family: str, printed: str) -> Transaction:
    """Read the output of a simulation, also of a removal by apt-get."""
    return _of_dnf(printed) if family == RHEL else _of_apt(printed)


def _of_apt(printed: str) -> Transaction:
    found: dict[str, list[str]] = {name: [] for name in ("Inst", "Conf", "Remv", "Purg", "new")}
    other: dict[str, Upgrade] = {}
    for match in _APT.finditer(printed):
        name = match["name"]
        found[match["what"]].append(name)
        if match["what"] == "Inst" and match["before"]:
            other[name] = Upgrade(name, match["before"], match["after"] or "")
        elif match["what"] == "Inst":
            found["new"].append(name)
    downgraded = _listed(printed, _DOWNGRADED)
    return Transaction(
        new=_once(found["new"]),
        upgraded=tuple(each for name, each in other.items() if name not in downgraded and each.after != each.before),
        downgraded=downgraded,
        removed=_once(found["Remv"] + found["Purg"]),
        held=_listed(printed, _HELD),
        unfinished=_once(name for name in found["Conf"] if name not in found["Inst"]),
    )


def _listed(printed: str, heading: str) -> tuple[str, ...]:
    """Packages of a list below its heading; its lines are indented."""
    _, there, rest = printed.partition(f"{heading}\n")
    lines = re.match(r"(?: .*\n?)*", rest) if there else None
    return _once(name.rstrip("*").partition(":")[0] for name in (lines[0].split() if lines else []))


def _of_dnf(printed: str) -> Transaction:
    found: dict[str, list[str]] = {"new": [], "upgraded": [], "downgraded": [], "removed": [], "": []}
    section, continued = "", False
    versions: dict[str, str] = {}
    for line in printed.splitlines():
        heading = next((name for name in _SECTIONS if re.match(rf"{name}\b.*(?::$|^Transaction)", line)), None)
        if heading is not None or line.startswith(("Transaction Summary", "=")):
            section, continued = _SECTIONS.get(heading or "", ""), False
            continue
        words = line.split()
        if not section or not line.startswith(" ") or not words or words[0] == "replacing":
            continue
        # A long name has a line of its own; the columns follow on the next.
        if not continued:
            found[section].append(words[0])
        columns = words if continued else words[1:]
        if len(columns) > 1:
            versions.setdefault(found[section][-1], columns[1])
        continued = len(words) == 1 and not continued
    return Transaction(
        new=_once(found["new"]),
        upgraded=tuple(Upgrade(name, "", versions.get(name, "")) for name in _once(found["upgraded"])),
        downgraded=_once(found["downgraded"]),
        removed=_once([*found["removed"], *(match["name"] for match in _REPLACING.finditer(printed))]),
    )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def upgrades(transaction: Transaction, requested: Sequence[str]) -> list[str]:
    """Return the warning about upgrades, if there are any.

    transaction: without packages that this project installed. requested: the packages that are to be installed.
    """
    if not transaction.upgraded:
        return []
    listed = ", ".join(
        f"{each.name} ({each.before} to {each.after})" if each.before else f"{each.name} (to {each.after})"
        for each in transaction.upgraded
    )
    return [
        f"Installing {' and '.join(requested)} upgrades {listed}, which this project did not install. To keep these "
        "versions, stop here and put the packages on hold (apt-mark hold, dnf versionlock): the run is then refused."
    ]


def held_among(holds: Iterable[str], printed: str) -> list[str]:
    """Return packages on hold that are named in a list of unmet dependencies. holds: lines of apt-mark showhold."""
    return [name for name in holds if re.search(rf"(?<![\w.+-]){re.escape(name)}(?![\w.+-])", _unmet(printed))]


def on_hold(packages: Sequence[str], held: Sequence[str]) -> Refusal:
    """Return the refusal of packages that need another version of a package on hold."""
    return Refusal(
        "packages_on_hold",
        f"Installing {' and '.join(packages)} would change {', '.join(held)}, which is on hold. Release it "
        f"(apt-mark unhold {' '.join(held)}), or install the packages yourself.",
    )


def cannot(printed: str, packages: Sequence[str], help: str) -> Refusal | None:
    """Return why the package manager finds no way to install packages; None if its output names no such reason."""
    nowhere = [name for match in _NOWHERE.finditer(printed) for name in (match["apt"] or match["dnf"]).split()]
    if nowhere:
        return Refusal(
            "packages_not_offered",
            f"No package repository of this node has {', '.join(dict.fromkeys(nowhere))}, which has to be installed. "
            f"Add a repository that has it. {help}",
        )
    if _BROKEN.search(printed):
        return Refusal(
            "packages_broken",
            f"Packages of this node do not fit together, so that nothing can be installed: {_unmet(printed)}. Repair "
            "that first (apt-get --fix-broken install).",
        )
    if _UNMET in printed:
        return Refusal(
            "packages_do_not_fit",
            f"{', '.join(packages)} cannot be installed beside the packages of this node: {_unmet(printed)}. {help}",
        )
    problems = [match[0].strip(" -") for match in _PROBLEM.finditer(printed)]
    if problems:
        return Refusal(
            "packages_do_not_fit",
            f"{', '.join(packages)} cannot be installed beside the packages of this node: {'; '.join(problems[:6])}. "
            f"{help}",
        )
    return None


def _unmet(printed: str) -> str:
    """The lines of apt's list of unmet dependencies."""
    _, _, rest = printed.partition(f"{_UNMET}\n")
    lines = [" ".join(line.split()) for line in rest.splitlines() if line.startswith(" ")]
    return "; ".join(lines[:6]) or "see apt-get check"


def refusal(transaction: Transaction, cause: Callable[[str], Sequence[str]], help: str) -> Refusal | None:
    """Return why an installation is refused; None if it does no harm.

    transaction: without packages that this project installed. cause: names of the requested packages that have the
    effect on a package.
    """
    if transaction.removed:
        first = transaction.removed[0]
        return Refusal(
            "packages_removed",
            f"Installing {' and '.join(cause(first))} would remove {', '.join(transaction.removed)}, which this "
            f"project did not install. {help}",
        )
    if transaction.downgraded:
        first = transaction.downgraded[0]
        return Refusal(
            "packages_downgraded",
            f"Installing {' and '.join(cause(first))} would downgrade {', '.join(transaction.downgraded)}, which this "
            f"project did not install. {help}",
        )
    if transaction.held:
        first = transaction.held[0]
        return on_hold(cause(first), transaction.held)
    if transaction.unfinished:
        return Refusal(
            "packages_unfinished",
            f"{', '.join(transaction.unfinished)} of this node is not completely installed (dpkg --audit), and "
            "every installation would complete it. Complete it (dpkg --configure --pending) or remove it, then run "
            "again.",
        )
    return None
