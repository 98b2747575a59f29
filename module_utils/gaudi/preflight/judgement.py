"""Judge a node: everything that keeps it from being set up, from the facts that were read.

``asked``: the options of the module gaudi_preflight, in all functions here; plans are the planner's documents. The
checks and their sentences are in ``checks`` and its neighbours; this module combines them, in the order of the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ..base import paths, systems
from ..base.command_line import needs_pins
from ..base.listeners import Listener
from ..base.places import Room, is_below
from ..base.printable import printable
from ..cards.foreseen import ENDED_BY_A_DRIVER
from ..catalogue.entries import CardType
from ..engine import daemon
from ..fabric.verdict import Permission
from ..host import cmdline, iommu, state
from ..serving.plan import recipe_directory
from ..weights import source_plan
from ..weights.hub_kinds import KINDS, kind_sentences, origin_sentences
from . import checks, compatibility, driver_first, handover, images, pins
from . import site as inventory
from .checks import Problem


@dataclass(frozen=True)
class Space:
    """The file system of a path, which need not exist yet: its mount point, and bytes free for root."""

    filesystem: str
    free: int


@dataclass(frozen=True)
class SpaceNeed:
    """Bytes that something will need below a path."""

    what: str
    path: str
    bytes: int


@dataclass(frozen=True)
class ContainerFacts:
    """Facts about containers and images, from the engine or from records."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Names of containers by short id."""
    silent: str = ""
    """What a question to the engine came to, where it did not answer."""
    recorded: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What was found in images when last looked at."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """What containers of instances are called that somebody renamed, by instance."""
    images: frozenset[str] = frozenset()
    """Those of the plans' images that are on the node."""


@dataclass(frozen=True)
class InstanceFacts:
    """Facts on the node that one plan depends on."""

    lacking: Sequence[str] = ()
    """Of its files beside weights, those that are not there."""
    measured: int = 0
    """The files in its folder of measurements."""
    keys: Sequence[str] = ()
    """Names of its keys that playbooks/keys.yml made."""
    user: Mapping[str, Any] | None = None
    """Who listens on its port; None where nobody but the instance itself does."""
    cut_off: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Who else listens on ports that are closed to other machines while it runs, by port."""
    recipes: bool = False
    """Whether its directory of compiled recipes holds any, or gets those of another instance before the start."""
    recipes_on: str = ""
    """The type of the file system that this directory is on, or will be, where nodes share that; else empty."""
    exchangeable: Sequence[str] = ()
    """Why users of the node could exchange code or measurements of its server, or a folder that it writes to."""
    overlapping: Sequence[tuple[str, str, str]] = ()
    """Its directories above or below others, of which a server writes to one; see checks.overlaps."""
    linked: Sequence[tuple[str, str]] = ()
    """Directories that its server writes to and that are links or lead into the system, with where they lead."""
    entered: Sequence[str] = ()
    """Folders that its server writes to and that users of the node may enter."""
    unknown_host: str = ""
    """Why its host is no address of the node, in the resolver's words."""
    code: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By folder of weights whose code it may run: files that differ from the pins, or run and are not pinned."""
    named: Sequence[str] = ()
    """Models of a hub that the configuration of its weights names."""
    repository: str = ""
    """The repository that its weights were fetched from, by their record; empty without one."""


@dataclass(frozen=True)
class MissingWeights:
    """A missing folder of weights: what remains to be done, and what is at its path now."""

    source: Mapping[str, Any]
    """As ``source_plan.missing`` gives it, with ``instance``."""
    begun: int
    """Bytes of the unfinished download."""
    made: int
    """Bytes of converted weights that are repaired."""
    exists: bool
    """Whether something lies where its download is to be."""
    occupied: bool
    """Whether that is no fetched model."""


@dataclass(frozen=True)
class PreflightFacts:
    """All facts read from a node. Texts are those of the files that the fields are named after."""

    topology: Mapping[str, Any]
    """The cards, as gaudi_topology_info returns them."""
    clock: float
    """Seconds since the epoch."""
    os_release: str = ""
    kernel: str = ""
    cmdline: str = ""
    groups: Sequence[iommu.IommuGroup] = ()
    """The IOMMU groups of the cards on the PCI bus."""
    path: str = "/usr/sbin:/usr/bin"
    """root's PATH, as tasks have it."""
    address: str = ""
    """The IPv4 address of its default route; "" without one."""
    weights_unwritable: str = ""
    """Why root may not write to the weights root; "" if it may, or if nothing is to be written there."""
    weights_shared: bool = False
    """Whether the weights root is on a file system that nodes share."""
    meminfo: str = ""
    cpuinfo: str = ""
    data_root: str = daemon.DEFAULT_DATA_ROOT
    """Where the engine keeps images; "" if its configuration cannot be read."""
    no_proxy: str = ""
    """Hosts that the running engine reaches without a proxy."""
    engine_problems: Sequence[Problem] = ()
    """Why the engine cannot be used, or its configuration cannot be changed."""
    engine_notes: Sequence[str] = ()
    """Settings of the engine that are not used."""
    lacking: Sequence[str] = ()
    """Parts of this project, such as the engine, that packages are installed for."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that a release has a word on."""
    runtime: bool = False
    """Whether the vendor's container runtime is there."""
    engine: ContainerFacts = ContainerFacts()
    listeners: Sequence[Listener] = ()
    before: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The plans on the node, by instance."""
    damaged: Sequence[tuple[str, str]] = ()
    """File and instance of each plan on the node that nobody can read."""
    up: frozenset[str] = frozenset()
    """Instances on the node that run or start, of those whose plan changes or names a card or port of another's."""
    instances: Mapping[str, InstanceFacts] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    """Weights that are on the node by path, with the command that makes them whole, empty where nobody knows one."""
    coming: Sequence[MissingWeights] = ()
    python: str = ""
    """What the downloader's Python says of itself, such as 3.11, or why it cannot be asked."""
    held_back: Sequence[Permission] = ()
    """Why the verdict on cards and links keeps plans from starting."""
    space: Mapping[str, Space] = field(default_factory=dict)
    """By path, for each of ``space_needs`` and ``recipe_space``."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Of the weights that plans on the node have, those that are not there: the file system that their path is on."""
    unmounted: Sequence[Problem] = ()
    """Which of the file systems are not mounted that ``kept_in`` lies on."""


def servable(plans: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the plans that were not refused."""
    return [plan for plan in plans if not plan.get("refused")]


def begins_in(source: Mapping[str, Any]) -> str:
    """Return the directory where the missing part of a source plan starts."""
    return str(source["fetch"]["directory"] if source["fetch"] else source["convert"]["source"])


def mismatches(
    asked: Mapping[str, Any], seen: PreflightFacts, levels: compatibility.Levels, stopped: Sequence[str] = ()
) -> list[compatibility.Mismatch]:
    """Compare the node's versions with its release's; ``stopped``: instances that this run stops for another driver."""
    os_release = systems.parse_os_release(seen.os_release)
    plans, cards = servable(asked["plans"]), seen.topology.get("cards", [])
    words, rules = cmdline.split(seen.cmdline), asked["kernel_rules"]
    needed = cmdline.needed(rules, os_release.get("ID", ""), [seen.kernel], release=_driven_by(asked, seen))
    needed = cmdline.on_processor(needed, seen.cpuinfo)
    shown = [need for need in needed if need.shown]
    # Where host tuning follows, it sets the arguments and reboots, or the run ends before anything starts. It does not
    # help instances that were stopped for a driver with which nothing may start until somebody reboots the node.
    judged = not asked["tunes"] or (bool(stopped) and not asked["reboots"])
    translated = iommu.translating(seen.groups, words) if shown and judged else ()
    argued = [need for need in needed if not need.shown] if plans and not asked["tunes"] else []
    found = compatibility.NodeFacts(
        system=systems.vendor_system(os_release),
        rebuild=systems.is_rebuild(os_release),
        title=systems.system_title(os_release),
        kernel=seen.kernel,
        kernel_lacks=tuple(state.lacking(argued, seen.kernel, words)),
        translated=iommu.shown(translated),
        translated_case=iommu.case(words),
        translated_because=next((need.because for need in shown if need.purpose == "correctness"), ""),
        driver=seen.topology.get("driver_version"),
        nic_drivers=frozenset(card["nic_driver_version"] for card in cards if card.get("nic_driver_version")),
        cards=_cards(asked, seen),
        packages=seen.packages,
        images={plan["image"]: compatibility.image(seen.engine.recorded.get(plan["image"], {})) for plan in plans},
        cold={
            plan["instance"]: recipe_directory(plan)
            for plan in plans
            if _skips_warm_up(plan) and not seen.instances.get(plan["instance"], InstanceFacts()).recipes
        },
    )
    return compatibility.judge(found, _release(asked), levels, asked["allow_mismatch"])


def _driven_by(asked: Mapping[str, Any], seen: PreflightFacts) -> str:
    """Return the release whose driver the cards will have: a loaded one of another release stays only where allowed."""
    release = str(asked["software"].get("release") or asked["release"])
    loaded = str(seen.topology.get("driver_version") or "")
    stays = "driver" in asked["allow_mismatch"] and iommu.required(loaded)
    return loaded if stays and not iommu.required(release) else release


def _cards(asked: Mapping[str, Any], seen: PreflightFacts) -> tuple[compatibility.TopologyCard, ...]:
    """Return the node's cards in the form that the checks take."""
    cards: tuple[compatibility.TopologyCard, ...] = compatibility.cards(
        seen.topology.get("cards", []), CardType.table(asked["card_types"])
    )
    return cards


def _release(asked: Mapping[str, Any]) -> compatibility.Release:
    return compatibility.Release(asked["release"], asked["software"])


def runtime_problems(asked: Mapping[str, Any], seen: PreflightFacts) -> list[Problem]:
    """Return why no container would get a card, if no role installs the vendor's runtime."""
    return checks.check_runtime(asked["habana_path"], present=seen.runtime)


def judge(
    asked: Mapping[str, Any], seen: PreflightFacts, levels: compatibility.Levels, driver: driver_first.DriverFirst
) -> dict[str, Any]:
    """Return the result of gaudi_preflight: every problem of the node, and its findings."""
    site, wrong = inventory.read(asked["inventory"])
    differing = mismatches(asked, seen, levels, driver.stops)
    if driver.first:
        differing = driver_first.still_judged(differing, kernel=driver.kernel)
    plans = servable(asked["plans"])
    running = {name: seen.before[name] for name in handover.rivals(plans, seen.before) if name in seen.up}
    ports = {plan["instance"]: _port(plan, plans, seen, running) for plan in plans if plan.get("instance")}
    handed = handover.cards(plans, seen.topology, asked["reserved"], running)
    handed += [given for _, given in ports.values() if given is not None]
    moving, by_commit, never = _unpinned(asked, plans, seen)
    problems = [
        *(Problem(**problem) for problem in asked["found"].get("problems", [])),
        *wrong,
        *_of_site(asked, site, seen),
        *seen.unmounted,
        *checks.check_cards(seen.topology, site.expected_cards, ENDED_BY_A_DRIVER if driver.awaited else ()),
        *driver.problems,
        *(checks.check_path(seen.path) if driver.first or seen.engine.silent else []),
        *compatibility.unknown_names(asked["allow_mismatch"], levels),
        *([] if driver.awaited else runtime_problems(asked, seen)),
        *(found for plan in plans for found in _of_plan(asked, plan, seen, ports)),
        *_of_fetches(asked, seen),
        *(images.check_processor(plans, seen.cpuinfo) if asked["image_built"] else []),
        *_of_space(asked, seen, driver.rooms),
        *(Problem(answer.id, answer.sentence) for answer in seen.held_back),
        *(
            Problem("pins", said)
            for said in (
                *never,
                *(pins.refused(_without_checksums(plans, seen, moving, by_commit)) if site.require_pins else ()),
            )
        ),
    ]
    findings = [
        *asked["found"].get("findings", []),
        *driver.findings,
        *compatibility.findings(differing, asked["release"]),
        *compatibility.firmware(_cards(asked, seen), _release(asked)),
        *compatibility.other_warnings(seen.topology.get("findings", [])),
        # Why the engine does not answer is a problem already.
        *([] if seen.engine_problems else checks.silent_engine(seen.engine.silent)),
        *seen.engine_notes,
        *(_coming_finding(asked, coming, seen) for coming in seen.coming),
        *([] if site.require_pins else moving),
        *_plan_findings(asked, plans, seen, handed),
    ]
    return {
        **_told(asked, seen, problems, differing),
        "findings": findings,
        "driver_first": driver.first,
        "stop_first": handover.stopped_first(handed),
        "restarts": [name for name in handover.changed(plans, seen.before) if name in seen.up],
    }


def _told(
    asked: Mapping[str, Any],
    seen: PreflightFacts,
    problems: Sequence[Problem],
    differing: Sequence[compatibility.Mismatch],
) -> dict[str, Any]:
    """Return the problems for programs and for people, and the further results if there are none."""
    refused = compatibility.problems(differing)
    table = compatibility.report(differing, _release(asked), len(problems) + 1)
    none = not problems and not refused
    return {
        "problems": [problem.as_dict() for problem in [*problems, *refused]],
        "mismatches": [mismatch.as_dict() for mismatch in differing],
        "let_through": compatibility.let_through(differing),
        "allowed": sorted(set(asked["allow_mismatch"])),
        "missing_weights": source_plan.lacking(coming.source for coming in seen.coming) if none else [],
        "report": "" if none else checks.report(asked["host"], problems, refused, table),
        "node": {
            "system": systems.parse_os_release(seen.os_release).get("PRETTY_NAME"),
            "kernel": seen.kernel,
            "cards": len(seen.topology.get("cards", [])),
            "address": seen.address,
            "weights_shared": seen.weights_shared,
        },
    }


def _of_site(asked: Mapping[str, Any], site: inventory.Inventory, seen: PreflightFacts) -> list[Problem]:
    """Return problems with the site's variables, its requests, the clock and the system."""
    problems = [] if site.release is None else checks.check_release(site.release, asked["known_releases"])
    problems += [Problem("inventory", said) for said in pins.digest_refusals(asked["image_digest"])]
    problems += checks.check_requests(asked["plans"], bool(seen.topology.get("cards")), site.positions)
    problems += inventory.check_hugepages(site, seen.meminfo, seen.cpuinfo)
    problems += checks.check_clock(seen.clock, asked["controller_time"], asked["clock_tolerance"])
    problems += checks.check_system(systems.parse_os_release(seen.os_release))
    return problems


# Problems with a plan's port, or the handover by which it becomes free.
Port = tuple[list[Problem], Optional[handover.Handover]]


def _port(
    plan: Mapping[str, Any],
    plans: Sequence[Mapping[str, Any]],
    seen: PreflightFacts,
    running: Mapping[str, Mapping[str, Any]],
) -> Port:
    """Refuse a port in use, and a host name not of this node; return a handover if another plan frees the port."""
    found = seen.instances[plan["instance"]]
    if found.unknown_host:
        return [checks.unknown_host(plan, found.unknown_host)], None
    user = found.user or handover.about_to_listen(plan, running)
    given = handover.port(plan, user, plans)
    if given is not None:
        return [], given
    return checks.check_port(plan, user, checks.free_port(seen.listeners, int(plan["listen"]["port"]))), None


def _of_plan(
    asked: Mapping[str, Any], plan: Mapping[str, Any], seen: PreflightFacts, ports: Mapping[str, Port]
) -> list[Problem]:
    """Return problems with one planned instance."""
    problems = checks.check_name(plan)
    if problems:
        return problems
    name, coming = plan["instance"], _coming_paths(asked, seen)
    # Models that share the instance's card have weights of their own.
    beside = [{**plan, "requires": {"weights_path": path}} for path in plan["requires"].get("weights_beside", [])]
    for one, advice in ((plan, asked["how_to_get"].get(name, "")), *((each, "") for each in beside)):
        path = one["requires"]["weights_path"]
        if path not in coming:
            repair = _repair_advice(asked, one, seen) or advice
            problems += checks.check_weights(one, path in seen.weights, repair, seen.lost.get(path, ""))
    problems += _of_origin(asked, plan, seen)
    problems += _of_code(asked, plan, seen)
    problems += _of_start(asked, plan, seen)
    problems += checks.check_keys(plan, seen.instances[name].keys)
    problems += checks.check_container(plan, seen.engine.renamed.get(name))
    return problems + ports[name][0]


def _without_checksums(
    plans: Sequence[Mapping[str, Any]], seen: PreflightFacts, moving: Sequence[str], by_commit: Sequence[str]
) -> list[str]:
    """Return sentences on everything of plans that no checksum pins."""
    named = {plan["instance"]: seen.instances[plan["instance"]].named for plan in plans}
    return [*moving, *by_commit, *pins.hub_sentences(plans), *pins.named_sentences(named)]


def _of_origin(asked: Mapping[str, Any], plan: Mapping[str, Any], seen: PreflightFacts) -> list[Problem]:
    """Refuse the folder of a hub's id that may hold the weights of another repository: only the name is the same."""
    found, name, path = seen.instances[plan["instance"]].repository, plan["instance"], plan["requires"]["weights_path"]
    sources = [] if plan.get("model") else asked["source_plans"].get(name, [])
    wanted = [each["repository"] for source in sources for each in source["fetch"]["repositories"].values()]
    if not wanted or found in wanted or not (found or path in seen.weights):
        return []
    whose = f"was fetched from {printable(found)}" if found else "has no record of where it was fetched from"
    meant = printable(found) if found else "what is there"
    return [
        Problem(
            "weights_of_another",
            f"{name} is to serve {wanted[0]}, but {path} {whose}. Move that folder away, and have {wanted[0]} fetched; "
            f"or name the path as weights, if {meant} is meant.",
        )
    ]


def _of_code(asked: Mapping[str, Any], plan: Mapping[str, Any], seen: PreflightFacts) -> list[Problem]:
    """Return why a plan's server may not run the code of its weights, whether they are on the node already or not."""
    name = plan["instance"]
    unknown = pins.code_refusals(plan, asked["source_plans"].get(name, []), installed=name in seen.before)
    differing = {folder: names for folder, names in seen.instances[name].code.items() if names}
    return [
        *(Problem("code_not_pinned", said) for said in unknown),
        *(
            Problem("code_differs", pins.code_differs(name, *each))
            if needs_pins(plan)
            else Problem("pins", pins.files_differ(name, *each))
            for each in differing.items()
        ),
    ]


def _of_start(asked: Mapping[str, Any], plan: Mapping[str, Any], seen: PreflightFacts) -> list[Problem]:
    """Return problems with what a plan requires beside weights: quantisation files, measurements, host NICs."""
    found = seen.instances[plan["instance"]]
    measurements = plan["requires"].get("measurements")
    arriving = bool(measurements) and measurements["path"] in _coming_paths(asked, seen)
    problems = checks.check_start(plan, found.lacking, measurements["files"] if arriving else found.measured)
    if plan["requires"].get("host_nics") and not asked["host_nics"]:
        problems.append(checks.host_nics(plan))
    if found.recipes_on:
        problems.append(checks.shared_recipes(plan, recipe_directory(plan), found.recipes_on))
    problems += [checks.overlap(plan, *each) for each in found.overlapping]
    problems += [checks.linked(plan, *each) for each in found.linked]
    return problems + [Problem("others_may_write", f"{plan['instance']}: {said}") for said in found.exchangeable]


def _coming_paths(asked: Mapping[str, Any], seen: PreflightFacts) -> set[str]:
    """Return paths of weights that this run fetches or converts."""
    return {f"{asked['weights_root'].rstrip('/')}/{source_plan.served(coming.source)}" for coming in seen.coming}


def _repair_advice(asked: Mapping[str, Any], plan: Mapping[str, Any], seen: PreflightFacts) -> str:
    """Return how to repair weights that differ from their record; "" if that is unknown."""
    command = seen.weights.get(plan["requires"]["weights_path"], "")
    if not command:
        return ""
    known = asked["source_plans"].get(plan["instance"])
    begin = "Set gaudi_weights_fetch: true to have that repaired in the same run, or make" if known else "Make"
    return f"{begin} them whole with: {command}"


def _of_fetches(asked: Mapping[str, Any], seen: PreflightFacts) -> list[Problem]:
    """Return what prevents fetching the missing weights."""
    root = asked["weights_root"].rstrip("/")
    fetched = [coming for coming in seen.coming if coming.source["fetch"]]
    if not fetched:
        return []
    foreign = [f"{root}/{coming.source['fetch']['directory']}" for coming in fetched if coming.occupied]
    problems = checks.check_fetch(asked["weights_sources"], seen.python, foreign)
    kinds = asked["weights_kinds"]
    sentences = kind_sentences(kinds) or origin_sentences((coming.source["fetch"] for coming in fetched), kinds)
    if seen.weights_unwritable:
        problems.append(Problem("weights_storage", f"{seen.weights_unwritable}."))
    return problems + [Problem("weights_source", said) for said in sentences]


def _coming_finding(asked: Mapping[str, Any], coming: MissingWeights, seen: PreflightFacts) -> str:
    """Say what is fetched or converted, and from where."""
    source, root = coming.source, asked["weights_root"].rstrip("/")
    return checks.missing_finding(
        source["instance"],
        source_plan.origin(source["fetch"]) if source["fetch"] else None,
        f"{root}/{begins_in(source)}",
        source["fetch"]["bytes"] if source["fetch"] else 0,
        f"{root}/{source['convert']['target']}" if source["convert"] else None,
        seen.lost.get(f"{root}/{source_plan.served(source)}", ""),
    )


def _unpinned(
    asked: Mapping[str, Any], plans: Sequence[Mapping[str, Any]], seen: PreflightFacts
) -> tuple[list[str], list[str], list[str]]:
    """Return sentences on what is not pinned, on what only a commit pins, and refusals of what must be pinned.

    An existing folder is in none of them: it is repaired from its record.
    """
    fetches = [coming.source["fetch"] for coming in seen.coming if coming.source["fetch"] and not coming.exists]
    named = [plan["image"] for plan in plans]
    sentences = (
        pins.built_sentences(named, asked["image_base"], pushed=asked["image_pushed"])
        if asked["image_built"]
        else pins.image_sentences(named, asked["image_digest"])
    )
    # Without a hub, other nodes give what they have from any of them.
    kinds = asked["weights_kinds"] or list(KINDS)
    sentences += pins.repository_sentences((item for item in fetches if not item["measured_cards"]), kinds)
    return sentences, pins.checksum_sentences(fetches, kinds), pins.measurement_refusals(fetches, kinds)


def absent_images(asked: Mapping[str, Any], seen: PreflightFacts) -> list[str]:
    """Return the images that the engine lacks."""
    return sorted({plan["image"] for plan in servable(asked["plans"])} - seen.engine.images)


def space_needs(asked: Mapping[str, Any], seen: PreflightFacts) -> list[SpaceNeed]:
    """Return the space that missing images and weights need; without images if their directory is not known."""
    root, folder = asked["weights_root"].rstrip("/"), seen.data_root
    absent = absent_images(asked, seen) if folder else []
    # Images that are built here share most of their layers.
    counted = absent[:1] if asked["image_built"] else absent
    found = [SpaceNeed(f"image {image}", folder, asked["image_bytes"]) for image in counted]
    brought = _coming_paths(asked, seen)
    for plan in servable(asked["plans"]):
        path, size = plan["requires"]["weights_path"], plan["requires"].get("weights_bytes")
        if path and size and path not in brought and path not in seen.weights:
            found.append(SpaceNeed(f"the weights of {plan['instance']}", path, size))
    for coming in seen.coming:
        name = begins_in(coming.source)
        size = source_plan.room(coming.source, coming.begun, coming.made)
        found.append(SpaceNeed(f"the weights in {name}", f"{root}/{name}", size))
    if any(coming.source["fetch"] for coming in seen.coming):
        found.append(SpaceNeed("the reserve (model_weights_reserve)", asked["weights_root"], asked["weights_reserve"]))
    return found


def _skips_warm_up(plan: Mapping[str, Any]) -> bool:
    return str(plan.get("environment", {}).get("VLLM_SKIP_WARMUP", "")).lower() in ("true", "1")


def recipe_space(plan: Mapping[str, Any]) -> Iterator[SpaceNeed]:
    """Yield the space that an instance's recipe cache needs."""
    size = int(plan["requires"].get("disk_bytes") or 0)
    for mount in plan["container"].get("mounts", []) if size else ():
        if not mount["read_only"]:
            yield SpaceNeed(f"{plan['instance']}: the recipe cache", mount["source"], size)


def places(asked: Mapping[str, Any], seen: PreflightFacts) -> set[str]:
    """Return the paths whose free space must be read before ``judge``."""
    recipes = {need.path for plan in servable(asked["plans"]) for need in recipe_space(plan)}
    return recipes | {need.path for need in space_needs(asked, seen)}


def kept_in(asked: Mapping[str, Any], seen: PreflightFacts) -> dict[str, str]:
    """Return the directories that a run reads or fills, each with its purpose."""
    plans, root = servable(asked["plans"]), asked["weights_root"]
    found = {paths.STATE: "what is known of instances and jobs"}
    if seen.data_root:
        found[seen.data_root] = "images"
    if asked["plans"]:
        found[root] = "weights"
    for plan in plans:
        weights = (plan["requires"]["weights_path"], *plan["requires"].get("weights_beside", []))
        beside = {path: f"weights of {plan['instance']}" for path in weights if path and not is_below(path, root)}
        writes = {need.path: f"recipes of {plan['instance']}" for need in recipe_space(plan)}
        found.update({path: use for path, use in {**beside, **writes}.items() if not is_below(path, paths.STATE)})
    return found


def _room(need: SpaceNeed, seen: PreflightFacts) -> Room:
    space = seen.space[need.path]
    return Room(need.what, need.path, space.filesystem, need.bytes, space.free)


def _of_space(asked: Mapping[str, Any], seen: PreflightFacts, others: Sequence[Room]) -> list[Problem]:
    """Whether the engine can be configured; and whether there is disk space for missing images and weights, and for
    others.
    """
    room = checks.check_room([*others, *(_room(need, seen) for need in space_needs(asked, seen))])
    return [*seen.engine_problems, *room]


def _plan_findings(
    asked: Mapping[str, Any],
    plans: Sequence[Mapping[str, Any]],
    seen: PreflightFacts,
    handed: Sequence[handover.Handover],
) -> list[str]:
    """Return findings about the plans of this run, and about those on the node."""
    names = {plan["instance"] for plan in asked["plans"]}
    findings = [checks.damaged_plan(file, instance, instance in names) for file, instance in seen.damaged]
    findings += [
        checks.lost_weights(name, path, seen.lost[path])
        for name, plan in seen.before.items()
        if name not in names and (path := plan.get("requires", {}).get("weights_path")) in seen.lost
    ]
    findings += handover.sentences(handed)
    for plan in plans:
        findings += handover.move(plan, seen.before.get(plan["instance"]))
        findings += [f"{plan['instance']}: {warning}" for warning in plan.get("warnings", [])]
        findings += checks.media_findings(plan)
        if plan["instance"]:  # One without a name is refused by _of_plan, and nobody looked at it.
            findings += checks.cut_off_findings(plan, seen.instances[plan["instance"]].cut_off)
            findings += checks.entered_findings(plan, seen.instances[plan["instance"]].entered)
        findings += checks.room_findings([_room(need, seen) for need in recipe_space(plan)])
    return findings
