"""Whether driver, firmware, kernel, runtime and image of a node go with a release: all of it in one judgement.

What is compared, how much a difference matters and who says so are data (``catalog/compatibility.yml``); what a release
wants stands in its file (key ``software``). A check is made where the release has a value and the node says something.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..base.checks import Reader, question, sequence
from ..base.printable import printable
from ..cards.hl_smi import parse_version
from ..catalogue.entries import CardType
from ..faults.words import fault, remedy, with_id
from ..host.cmdline import NeededArgument
from ..image.labels import PLUGIN, release_in_name
from . import versions
from .checks import Problem
from .versions import BUILD, PATCH, RELEASE, Version

WHERE = "catalog/compatibility.yml"
OPTION = "preflight_allow_mismatch"
REFUSE, WARN = "refuse", "warn"
RUNTIME, DRIVER = "habanalabs-container-runtime", "habanalabs-dkms"
# The packages whose versions are asked for: Docker's by the names that Debian, Docker and Moby give it, and the
# vendor's driver, which rpm calls habanalabs.
DOCKERS = ("docker-ce", "docker.io", "moby-engine")
DRIVERS = (DRIVER, "habanalabs")
PACKAGES = (RUNTIME, *DRIVERS, *DOCKERS)

# Columns of a terminal, less what Ansible indents by.
WIDTH = 92
_TITLES = {"gaudi1": "first-generation Gaudi", "gaudi2": "Gaudi 2", "gaudi3": "Gaudi 3"}


@dataclass(frozen=True)
class TopologyCard:
    """A card as the topology has it; ``generation`` is None for a name that catalog/cards.yml does not know."""

    module: int | None
    name: str | None
    generation: str | None
    spi: str | None = None
    boot_fit: str | None = None


@dataclass(frozen=True)
class ImageFacts:
    """What was found in an image; None where nobody has looked."""

    plugin: str | None = None
    """Version of habana-torch-plugin, as pip writes it."""
    python: str | None = None


@dataclass(frozen=True)
class NodeFacts:
    """What was read of a node. Empty or None: it says nothing."""

    system: str = ""
    """As the vendor writes it: ubuntu22.04; of a rebuild that of its origin."""
    rebuild: bool = False
    """Whether the system only rebuilds the one that the vendor names."""
    title: str = ""
    """The system, for people."""
    kernel: str = ""
    kernel_lacks: tuple[NeededArgument, ...] = ()
    """Arguments that the running kernel needs for right answers, and was started without."""
    translated: str = ""
    """The cards whose addresses an IOMMU translates, where the release needs that it does not, as iommu.shown does."""
    translated_case: str = ""
    """Which remedy applies to them (iommu.case)."""
    translated_because: str = ""
    """Why the release needs that."""
    driver: str | None = None
    nic_drivers: frozenset[str] = frozenset()
    cards: tuple[TopologyCard, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of installed packages by name, as dpkg or rpm print them."""
    images: Mapping[str, ImageFacts] = field(default_factory=dict)
    """The images that plans run in, by reference."""
    cold: Mapping[str, str] = field(default_factory=dict)
    """Instances that skip their warm-up without compiled recipes, with the directory of these, empty where none is."""


@dataclass(frozen=True)
class Release:
    """A release: its name in the catalogue, and ``software`` of its file."""

    name: str
    software: Mapping[str, Any]


@dataclass(frozen=True)
class CompatibilityCheck:
    """One line of the catalogue; ``level`` is refuse or warn."""

    name: str
    level: str
    about: str
    source: str


@dataclass(frozen=True)
class FirmwareRule:
    """A pair of firmware that is published not to work."""

    releases: tuple[str, ...]
    generations: tuple[str, ...]
    spi_from: str
    boot_fit_to: str
    source: str


@dataclass(frozen=True)
class Levels:
    """What ``catalog/compatibility.yml`` says."""

    checks: tuple[CompatibilityCheck, ...]
    firmware_rules: tuple[FirmwareRule, ...]

    @classmethod
    def from_document(cls, document: object) -> Levels:
        """Read the file's content; raises Refusal with file and key."""
        top = Reader(document, WHERE, ("schema", "checks", "firmware_rules"))
        checks = []
        for place, entry in enumerate(sequence(top.raw("checks"), f"{WHERE}: checks")):
            reader = Reader(entry, f"{WHERE}: checks[{place}]", ("name", "level", "about", "source"))
            level = reader.choice("level", (REFUSE, WARN))
            checks.append(
                CompatibilityCheck(reader.choice("name", JUDGES), level, reader.text("about"), reader.text("source"))
            )
        rules = []
        for place, entry in enumerate(sequence(top.raw("firmware_rules"), f"{WHERE}: firmware_rules")):
            known = ("releases", "generations", "spi_from", "boot_fit_to", "source")
            reader = Reader(entry, f"{WHERE}: firmware_rules[{place}]", known)
            rules.append(
                FirmwareRule(
                    reader.texts("releases", required=True),
                    reader.texts("generations", required=True),
                    reader.text("spi_from"),
                    reader.text("boot_fit_to"),
                    reader.text("source"),
                )
            )
        return cls(tuple(checks), tuple(rules))


@dataclass(frozen=True)
class Row:
    """What was seen, what is wanted, and what to do."""

    found: str
    wanted: str
    todo: str


@dataclass(frozen=True)
class Mismatch:
    """A row with the check it is of; ``allowed`` where the site lets it through."""

    check: CompatibilityCheck
    row: Row
    allowed: bool = False

    @property
    def refused(self) -> bool:
        """Whether the node is not set up because of it."""
        return self.check.level == REFUSE and not self.allowed

    def as_dict(self) -> dict[str, Any]:
        """All of it as a mapping that survives JSON."""
        return {"check": self.check.name, "level": self.check.level, "allowed": self.allowed, **asdict(self.row)}

    @property
    def sentence(self) -> str:
        """All of it in one line."""
        return f"{self.short}. {self.row.todo}"

    @property
    def short(self) -> str:
        """What differs, without what to do."""
        return fault(self.check.name).sentence.format(found=self.row.found, wanted=self.row.wanted)


def cards(topology: Iterable[Mapping[str, Any]], types: Mapping[str, CardType]) -> tuple[TopologyCard, ...]:
    """The cards of a topology, with what catalog/cards.yml knows of them."""
    found = []
    for card in topology:
        name = card.get("name")
        kind = types.get(name or "")
        generation = None if kind is None else kind.generation
        found.append(TopologyCard(card.get("module_id"), name, generation, card.get("firmware"), card.get("boot_fit")))
    return tuple(found)


def image(recorded: Mapping[str, Any]) -> ImageFacts:
    """What the record of a node's images says of one; anything else than text counts as not said."""
    packages = recorded.get("packages")
    plugin = packages.get(PLUGIN) if isinstance(packages, Mapping) else None
    python = recorded.get("python")
    return ImageFacts(plugin if isinstance(plugin, str) else None, python if isinstance(python, str) else None)


def other_warnings(topology_findings: Iterable[Mapping[str, str]]) -> list[str]:
    """The warnings of a topology that are not judged here."""
    judged = ("nic-driver-mismatch",)
    return [
        each["message"] for each in topology_findings if each["severity"] == "warning" and each.get("id") not in judged
    ]


def judge(found: NodeFacts, release: Release, levels: Levels, allowed: Collection[str]) -> list[Mismatch]:
    """Everything about a node that does not go with a release, in the order of the catalogue."""
    allowed = allowed_checks(allowed)
    return [
        Mismatch(check, row, allowed=check.name in allowed)
        for check in levels.checks
        for row in JUDGES[check.name](found, release, levels)
    ]


def allowed_checks(names: Iterable[str]) -> set[str]:
    """The names of the checks that a site allows; earlier ones had underscores, which sites may still have."""
    return {name.replace("_", "-") for name in names}


def _system(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    supported = release.software.get("systems", ())
    if found.system and supported and (found.rebuild or found.system not in supported):
        yield Row(found.title or found.system, ", ".join(supported), remedy("system"))


def _kernel(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    oldest = release.software.get("kernel_minimum", {}).get(found.system)
    if oldest is not None and _order(found.kernel, oldest) < 0:
        yield Row(found.kernel, f"{oldest} or newer on {found.system}", remedy("kernel"))


def _kernel_untested(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    newest = release.software.get("kernel_newest", {}).get(found.system)
    if newest is not None and _order(found.kernel, newest) > 0:
        todo = remedy("kernel-untested", newest=newest)
        yield Row(found.kernel, f"{newest}, the newest tested on {found.system}", todo)


def _iommu(found: NodeFacts, _release: Release, _levels: Levels) -> Iterator[Row]:
    if found.translated:
        todo = remedy("iommu", found.translated_case, because=found.translated_because)
        yield Row(f"iommu_group/type {found.translated}", "identity, or no IOMMU", todo)
    if found.kernel_lacks:
        arguments = " ".join(need.argument for need in found.kernel_lacks)
        todo = remedy("iommu", because=found.kernel_lacks[0].because)
        yield Row(f"kernel {found.kernel} started without them", f"{arguments} on its command line", todo)


def _order(seen: str, limit: str) -> int:
    """-1, 0 or 1 as in ``versions.compare``; 0 where one of them is no version."""
    one, other = versions.read(seen), versions.read(limit)
    return 0 if one is None or other is None else versions.compare(one, other)


def _differing(seen: str | None, wanted: object) -> str | None:
    """What a version of the vendor's differs in from the release's; what cannot be read is of another release."""
    if not seen or not isinstance(wanted, str):
        return None
    one, other = versions.vendors(seen), versions.vendors(wanted)
    if other is None:
        return None
    return RELEASE if one is None else versions.difference(one, other)


def _minor(version: object) -> str:
    read = versions.vendors(str(version))
    return str(version) if read is None else read.minor


def _packaged(found: NodeFacts, names: Iterable[str]) -> tuple[str, str]:
    """The first of some packages that is installed, with its version; empty where none is."""
    return next(((name, found.packages[name]) for name in names if name in found.packages), ("", ""))


def _driver(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    wanted = release.software.get("driver")
    if _differing(found.driver, wanted) != RELEASE:
        return
    name, version = _packaged(found, DRIVERS)
    if name and _differing(version, wanted) != RELEASE:
        todo = remedy("driver", "installed", package=f"{name} {version}")
    else:
        todo = remedy("driver", driver=wanted, minor=_minor(found.driver))
    yield Row(str(found.driver), f"{_minor(wanted)} ({wanted})", todo)


def _driver_build(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    wanted = release.software.get("driver")
    name, version = _packaged(found, DRIVERS)
    todo = remedy("driver-build", driver=wanted)
    if _differing(found.driver, wanted) == PATCH:
        yield Row(str(found.driver), str(wanted), todo)
    elif found.driver and _differing(version, wanted) == BUILD:
        yield Row(f"{name} {version}", str(wanted), todo)


def _nic_driver(found: NodeFacts, _release: Release, _levels: Levels) -> Iterator[Row]:
    other = sorted(nic for nic in found.nic_drivers if _differing(nic, found.driver) is not None)
    if other:
        yield Row(", ".join(other), f"{found.driver}, as the compute driver", remedy("nic-driver"))


def _runtime(found: NodeFacts, release: Release, check: str, parts: Collection[str]) -> Iterator[Row]:
    wanted, version = release.software.get("driver"), found.packages.get(RUNTIME)
    if _differing(version, wanted) in parts:
        yield Row(f"{RUNTIME} {version}", str(wanted), remedy(check, package=f"{RUNTIME} {wanted}"))


def _runtime_package(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    yield from _runtime(found, release, "runtime-package", (RELEASE,))


def _runtime_package_build(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    yield from _runtime(found, release, "runtime-package-build", (PATCH, BUILD))


def _docker(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    wanted, (name, version) = release.software.get("docker"), _packaged(found, DOCKERS)
    if name and isinstance(wanted, str) and _order(version, wanted) < 0:
        yield Row(f"{name} {version}", f"{wanted} or newer", remedy("docker"))


def _image(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    wanted = release.software.get("release")
    for reference, image in found.images.items():
        # What is in it says more than its name.
        seen = image.plugin or release_in_name(reference)
        if _differing(seen, wanted) in (RELEASE, PATCH):
            what = f"{PLUGIN} {seen} in" if image.plugin else f"{seen} in the name of"
            yield Row(f"{what} {reference}", str(wanted), remedy("image"))


def _image_python(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    wanted = release.software.get("python", ())
    for reference, image in found.images.items():
        if image.python and wanted and all(_order(image.python, each) for each in wanted):
            yield Row(f"Python {image.python} in {reference}", " or ".join(wanted), remedy("image-python"))


def _warm_up(found: NodeFacts, _release: Release, _levels: Levels) -> Iterator[Row]:
    for instance, directory in found.cold.items():
        cache = f"the empty recipe cache {directory}" if directory else "no recipe cache"
        seen = f"skip_warmup of {instance} with {cache}"
        yield Row(seen, "a recipe cache that a warm-up has filled", remedy("warm-up"))


def _card_type(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    wanted = release.software.get("generations", ())
    strange = {card.name: card.generation for card in found.cards if card.generation and wanted}
    names = [
        f"{name} ({_TITLES.get(generation, generation)})"
        for name, generation in strange.items()
        if generation not in wanted
    ]
    if names:
        titles = " or ".join(_TITLES.get(each, each) for each in wanted)
        yield Row(", ".join(sorted(names)), titles, remedy("card-type"))


def _firmware(found: NodeFacts, release: Release, _levels: Levels) -> Iterator[Row]:
    for generation, wanted in release.software.get("spi", {}).items():
        other = {}
        for card in found.cards:
            spi = _firmware_version(card.spi)
            if card.generation == generation and spi is not None and _behind(spi, wanted):
                other[card] = _shown(card.spi)
        for seen, where in _by_modules(other):
            yield Row(f"SPI {seen} on {where}", f"SPI {wanted}", remedy("firmware"))


def firmware(cards: Iterable[TopologyCard], release: Release) -> list[str]:
    """The SPI firmware of cards beside the release's, where both are known; what differs is a mismatch of its own."""
    wanted = release.software.get("spi", {})
    known = {card: _firmware_version(card.spi) for card in cards if card.generation in wanted}
    right = {
        card: _fits(_shown(card.spi), wanted[card.generation], release.name)
        for card, spi in known.items()
        if spi is not None and not _behind(spi, wanted[card.generation])
    }
    return [f"SPI firmware on {where}: {seen}." for seen, where in _by_modules(right)]


def _fits(seen: str, wanted: str, release: str) -> str:
    if seen == wanted:
        return f"{seen}, that of release {release}"
    return f"{seen}, newer than that of release {release} ({wanted}), which is fine"


def _behind(spi: Version, wanted: str) -> bool:
    """Whether SPI firmware is older than the release's, or of another minor number."""
    other = versions.read(wanted)
    return other is not None and (versions.difference(spi, other) == RELEASE or versions.compare(spi, other) < 0)


def _firmware_rule(found: NodeFacts, release: Release, levels: Levels) -> Iterator[Row]:
    name = str(release.software.get("release", ""))
    for rule in levels.firmware_rules:
        if not name or not any(_order(name, each) == 0 for each in rule.releases):
            continue
        pairs = {
            card: f"SPI {_shown(card.spi)} with Boot FIT {_shown(card.boot_fit)}"
            for card in found.cards
            if card.generation in rule.generations and _is_pair(card, rule)
        }
        wanted = f"Boot FIT newer than {rule.boot_fit_to}, or SPI older than {rule.spi_from} ({rule.source})"
        for seen, where in _by_modules(pairs):
            yield Row(f"{seen} on {where}", wanted, remedy("firmware-rule"))


def _is_pair(card: TopologyCard, rule: FirmwareRule) -> bool:
    spi, fit = _firmware_version(card.spi), _firmware_version(card.boot_fit)
    lowest, highest = versions.read(rule.spi_from), versions.read(rule.boot_fit_to)
    if spi is None or fit is None or lowest is None or highest is None:
        return False
    return versions.compare(spi, lowest) >= 0 and versions.compare(fit, highest) <= 0


def _firmware_version(text: str | None) -> Version | None:
    """The release in ``hl-gaudi2-1.18.0-fw-53.1.1-sec-9``; None where there is none."""
    try:
        return versions.read(parse_version(text or "").release)
    except ValueError:
        return None


def _shown(text: str | None) -> str:
    """``1.18.0-fw-53.1.1`` of ``hl-gaudi2-1.18.0-fw-53.1.1-sec-9``."""
    version = parse_version(text or "")
    return f"{version.release}-fw-{version.firmware}"


def _by_modules(seen: Mapping[TopologyCard, str]) -> Iterator[tuple[str, str]]:
    """What was seen, each once, with the modules it was seen on."""
    for each in dict.fromkeys(seen.values()):
        modules = [str(card.module) for card, other in seen.items() if other == each]
        yield each, f"module{'s' if len(modules) > 1 else ''} {', '.join(modules)}"


Judge = Callable[[NodeFacts, Release, Levels], Iterator[Row]]
# Every name that the catalogue can give a level.
JUDGES: Mapping[str, Judge] = {
    "system": _system,
    "kernel": _kernel,
    "kernel-untested": _kernel_untested,
    "iommu": _iommu,
    "driver": _driver,
    "driver-build": _driver_build,
    "nic-driver": _nic_driver,
    "runtime-package": _runtime_package,
    "runtime-package-build": _runtime_package_build,
    "docker": _docker,
    "image": _image,
    "image-python": _image_python,
    "warm-up": _warm_up,
    "card-type": _card_type,
    "firmware": _firmware,
    "firmware-rule": _firmware_rule,
}


def unknown_names(allowed: Iterable[str], levels: Levels) -> list[Problem]:
    """A problem for each name in preflight_allow_mismatch that no check has."""
    known = [check.name for check in levels.checks]
    problems = []
    for name in allowed:
        if name.replace("_", "-") not in known:
            near = question(difflib.get_close_matches(name, known, n=1))
            said = f"{OPTION} names {name!r}, and no check is called so.{near} Known: {', '.join(known)}."
            problems.append(Problem("option", said))
    return problems


def problems(mismatches: Iterable[Mismatch]) -> list[Problem]:
    """Those that keep the node from being set up, by the name of their check."""
    return [Problem(each.check.name, each.sentence) for each in mismatches if each.refused]


def let_through(mismatches: Iterable[Mismatch]) -> list[str]:
    """What would be refused, and is let through by the site."""
    return [each.short for each in mismatches if each.allowed and each.check.level == REFUSE]


def checked(sentence: str, short: str) -> str:
    """Return a sentence about what was let through, with the id of its check; short: as let_through() returns it."""
    return with_id(sentence, short.partition(":")[0])


def remembered(instances: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each mismatch that an instance was set up with; ``instances`` as vllm_service_info has them."""
    return [
        checked(f"{found['instance']} runs although {printable(said)} ({OPTION})", said)
        for found in instances
        for said in found["let_through"]
    ]


def findings(mismatches: Iterable[Mismatch], release: str) -> list[str]:
    """What a person should know of a node that is set up: what is let through, and what only differs."""
    return [
        with_id(
            f"{each.short} by release {release}; let through by {OPTION}."
            if each.allowed
            else f"{each.short} by release {release}. {each.row.todo}",
            each.check.name,
        )
        for each in mismatches
        if not each.refused
    ]


def report(mismatches: Sequence[Mismatch], release: Release, first: int) -> list[str]:
    """The mismatches of a node that is not ready, refused ones numbered from ``first``, in lines of WIDTH columns."""
    if not mismatches:
        return []
    lines = [f"Against release {release.name} ({release.software.get('driver', '?')}):"]
    number = first
    for each in mismatches:
        mark = f"{number}." if each.refused else "-"
        said = "" if each.refused else f" (let through by {OPTION})" if each.allowed else " (a warning)"
        lines.append(f"  {mark} [{each.check.name}]{said}")
        for name, text in (("found", each.row.found), ("wanted", each.row.wanted), ("do", each.row.todo)):
            begin = f"       {name:<8}"
            indent = " " * len(begin)
            lines += textwrap.wrap(
                text,
                WIDTH,
                initial_indent=begin,
                subsequent_indent=indent,
                break_on_hyphens=False,
                break_long_words=False,
            )
        number += each.refused
    if number > first:
        lines.append(f"  What is known to do no harm here is let through by its name: {OPTION}: [NAME].")
    return lines
