#!/usr/bin/python
"""Ansible module: say everything that keeps a node from being set up, and change nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gaudi_preflight
short_description: Say everything that keeps a node from being set up
description:
  - Reads the node (system, kernel, clock, file systems, listening ports, the engine's configuration file) and
    compares it with what a release and its planned instances need.
  - Returns every problem as sentences that say what was seen, what is needed and what to do. It never fails because
    of one, so that all nodes can be reported before any of them is changed.
author: gaudi-serving
attributes:
  check_mode: {support: full, description: Reads only.}
  diff_mode: {support: none, description: Reads only.}
options:
  host:
    description: What the inventory calls the node; the report begins with it.
    type: str
    required: true
  release:
    description: Name of the Intel Gaudi software release.
    type: str
    required: true
  known_releases:
    description: Names of the releases of the catalogue.
    type: list
    elements: str
    required: true
  software:
    description: What the release file says of the software on the node, such as C(systems) and C(driver).
    type: dict
    default: {}
  levels:
    description: The content of C(catalog/compatibility.yml) - what is compared, and how much a difference matters.
    type: dict
    required: true
  allow_mismatch:
    description: Names of its checks that are let through.
    type: list
    elements: str
    default: []
  kernel_rules:
    description:
      - Kernel arguments as C(catalog/host.yml) has them. Where something is to be served, the running kernel must have
        those that right answers need.
    type: list
    elements: dict
    default: []
  image_digest:
    description: Digest the site pins its serving image to. Empty where it pins none; the plans may name one.
    type: str
    default: ""
  image_bytes:
    description: Room the serving image takes in the engine's storage, in bytes.
    type: int
    default: 0
  image_built:
    description: Whether the images are built on the node, from pins.
    type: bool
    default: false
  inventory:
    description:
      - The site's variables as they stand in the inventory, null for one that is not set. Each is checked, and a wrong
        one is a problem that names it and says what would be right.
      - Known are C(gaudi_release), C(gaudi_expected_cards), C(gaudi_image_registry), C(gaudi_weights_root),
        C(gaudi_weights_fetch), C(gaudi_nodes_at_once), C(gaudi_require_pins), C(gaudi_serving_instances), and where the
        host is tuned
        C(host_tuning_hugepages) and C(host_tuning_max_memory_share). Those that are left out are not checked.
    type: dict
    required: true
  topology:
    description: The C(topology) that M(gaudi_topology_info) returned. Without it the cards are read.
    type: dict
  plans:
    description: The C(plans) that M(serving_plan) returned, refused ones among them.
    type: list
    elements: dict
    default: []
  reserved:
    description: The C(reserved) that M(serving_plan) returned, instances by the module id that they hold.
    type: dict
    default: {}
  how_to_get:
    description: Where the weights of an instance come from, a sentence by instance name.
    type: dict
    default: {}
  source_plans:
    description: Where weights can be fetched from, a list by instance name, as M(serving_plan) returned it.
    type: dict
    default: {}
  weights_root:
    description: Folder of all weights.
    type: path
    default: /data/models
  weights_fetch:
    description: Whether missing weights are fetched later instead of being a problem now.
    type: bool
    default: false
  weights_sources:
    description: Number of hubs the downloader may ask.
    type: int
    default: 0
  weights_kinds:
    description: Kinds of these hubs, such as V(huggingface) and V(modelscope).
    type: list
    elements: str
    default: []
  weights_reserve:
    description: Bytes that stay free beside the weights.
    type: int
    default: 0
  weights_python:
    description: The downloader's Python.
    type: path
    default: /usr/bin/python3
  controller_time:
    description: The controller's clock when the module was sent, in seconds since the epoch.
    type: float
    required: true
  clock_tolerance:
    description: How far the two clocks may be apart, in seconds. The way to the node is part of it.
    type: float
    default: 60.0
  habana_path:
    description: The vendor's container runtime, which must be on the node already. Empty where it is installed later.
    type: str
    default: ""
  host_nics:
    description: Whether host NICs are configured on the node, so that its cards are measured over them, or need not be.
    type: bool
    default: false
  card_types:
    description: The content of C(catalog/cards.yml).
    type: dict
    default: {cards: {}}
  driver:
    description:
      - Where the role gaudi_driver follows, what it is to do - C(facts), the content of C(catalog/driver.yml),
        C(suite), and the wishes C(replace), C(take_over) and C(no_way_back), as M(gaudi_driver_info) has them.
      - Without it a node without a driver is refused.
    type: dict
    default: {}
  driver_repository:
    description: The repository with its packages, which may hold a password. Empty where the node knows one.
    type: str
    default: ""
  found:
    description: What was found before the node was asked, C(problems) and C(findings) as M(role_options) returns them.
    type: dict
    default: {}
  daemon_json:
    description: The engine's configuration file. It is only read, and refused when it cannot be merged with.
    type: path
    default: /etc/docker/daemon.json
"""

EXAMPLES = r"""
- name: Look before changing anything
  gaudi_preflight:
    host: "{{ inventory_hostname }}"
    release: "1.22"
    known_releases: ["1.21", "1.22"]
    software: {systems: [ubuntu22.04], kernel_minimum: {ubuntu22.04: "5.15"}, driver: 1.22.2-32}
    levels: "{{ lookup('ansible.builtin.file', 'catalog/compatibility.yml') | from_yaml }}"
    inventory: {gaudi_release: "1.22", gaudi_expected_cards: 8, gaudi_serving_instances: "{{ instances }}"}
    topology: "{{ read.topology }}"
    plans: "{{ serving.plans }}"
    controller_time: "{{ now().timestamp() }}"
  register: preflight
"""

RETURN = r"""
problems:
  description: What keeps the node from being set up; empty when nothing does.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "disk", "message": "4.0 GiB are free on /, but 20.0 GiB for image ... are needed. ..."}]
findings:
  description: What a person should know although it keeps nothing from being set up.
  returned: always
  type: list
  elements: str
  sample: ["docker: found docker.io 20.10.24+dfsg1-1+deb12u1, wanted 25.0.1 or newer by release 1.22. ..."]
mismatches:
  description:
    - Where the node does not go with the release, in the order of the catalogue - C(check), C(level) (V(refuse) or
      V(warn)), C(found), C(wanted), C(todo), and C(allowed), whether the site lets it through. Those that are refused
      are among the problems, the others among the findings.
  returned: always
  type: list
  elements: dict
  sample: []
let_through:
  description: What is refused elsewhere and let through here by O(allow_mismatch), each with what was found and wanted.
  returned: always
  type: list
  elements: str
  sample: ["driver: found 1.20.1-bd4b1a2, wanted 1.22 (1.22.2-32)"]
missing_weights:
  description:
    - Weights that are missing, each folder once - C(fetch) (directory, repositories, bytes, measured_cards) and
      C(convert) (source, target, tool, bytes), either of which may be empty, and C(instance), the first that needs it.
  returned: always
  type: list
  elements: dict
  sample: []
driver_first:
  description:
    - Whether the driver is installed or loaded before anything is served. The plans of a node without one are for the
      cards that its PCI bus promises, and it is to be looked at again.
  returned: always
  type: bool
  sample: false
stop_first:
  description:
    - Instances that give a card or a port up to another one of the plans. They are to be stopped before the first
      instance starts; what they give up to whom is among the findings.
  returned: always
  type: list
  elements: str
  sample: []
report:
  description: The problems as one text for people; empty when there are none.
  returned: always
  type: str
  sample: "gaudi-01: 1 problem, nothing was changed. ..."
topology:
  description: The cards the node was judged by, as M(gaudi_topology_info) returns them.
  returned: always
  type: dict
  sample: {"cards": [], "driver_version": null}
refused_id:
  description: What is wrong with the catalogue, in one word that stays the same; C(msg) says it in a sentence.
  returned: when O(levels) cannot be read
  type: str
  sample: unknown_key
node:
  description: What was read.
  returned: always
  type: dict
  sample: {"system": "Debian GNU/Linux 12 (bookworm)", "kernel": "6.1.0-18-amd64", "cards": 8}
"""

import contextlib
import dataclasses
import os
import shutil
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.listeners import Listener, parse_listeners
from ansible.module_utils.gaudi.base.measured import MEASURED, measured_files
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards import users as topology_users
from ansible.module_utils.gaudi.cards.foreseen import ENDED_BY_A_DRIVER
from ansible.module_utils.gaudi.catalogue.entries import CardType
from ansible.module_utils.gaudi.engine import daemon as docker_daemon
from ansible.module_utils.gaudi.engine import packages as engine_packages
from ansible.module_utils.gaudi.host import cmdline
from ansible.module_utils.gaudi.host import state as host_state
from ansible.module_utils.gaudi.node import folders, listening
from ansible.module_utils.gaudi.node import weight_folders as weights_folders
from ansible.module_utils.gaudi.node.containers import systemctl
from ansible.module_utils.gaudi.node.documents import read, read_json
from ansible.module_utils.gaudi.node.driver_look import Look, lost_at_reboot
from ansible.module_utils.gaudi.node.reader import read_containers, read_holders, read_sources, read_topology
from ansible.module_utils.gaudi.preflight import checks as preflight
from ansible.module_utils.gaudi.preflight import compatibility, driver_first, handover, images, pins
from ansible.module_utils.gaudi.preflight import site as inventory
from ansible.module_utils.gaudi.serving import keys
from ansible.module_utils.gaudi.weights import record as weights
from ansible.module_utils.gaudi.weights import source_plan
from ansible.module_utils.gaudi.weights.hub_kinds import kind_sentences

ARGUMENT_SPEC: dict[str, Any] = {
    "host": {"type": "str", "required": True},
    "release": {"type": "str", "required": True},
    "known_releases": {"type": "list", "elements": "str", "required": True},
    "software": {"type": "dict", "default": {}},
    "levels": {"type": "dict", "required": True},
    "allow_mismatch": {"type": "list", "elements": "str", "default": []},
    "kernel_rules": {"type": "list", "elements": "dict", "default": []},
    "image_digest": {"type": "str", "default": ""},
    "image_bytes": {"type": "int", "default": 0},
    "image_built": {"type": "bool", "default": False},
    "inventory": {"type": "dict", "required": True},
    "topology": {"type": "dict"},
    "plans": {"type": "list", "elements": "dict", "default": []},
    "reserved": {"type": "dict", "default": {}},
    "how_to_get": {"type": "dict", "default": {}},
    "source_plans": {"type": "dict", "default": {}},
    "weights_root": {"type": "path", "default": "/data/models"},
    "weights_fetch": {"type": "bool", "default": False},
    "weights_sources": {"type": "int", "default": 0},
    "weights_kinds": {"type": "list", "elements": "str", "default": []},
    "weights_reserve": {"type": "int", "default": 0},
    "weights_python": {"type": "path", "default": "/usr/bin/python3"},
    "controller_time": {"type": "float", "required": True},
    "clock_tolerance": {"type": "float", "default": 60.0},
    "habana_path": {"type": "str", "default": ""},
    "driver": {"type": "dict", "default": {}},
    "driver_repository": {"type": "str", "default": "", "no_log": True},
    "found": {"type": "dict", "default": {}},
    "daemon_json": {"type": "path", "default": "/etc/docker/daemon.json"},
    "host_nics": {"type": "bool", "default": False},
    "card_types": {"type": "dict", "default": {"cards": {}}},
}

# What the role serving_image records of the images of the node.
IMAGES = Path(paths.STATE) / "images.json"


def read_text(path: str) -> str:
    """Return a file's text, or nothing when there is no such file. A process calls itself what it likes."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def existing_parent(path: str) -> str:
    """Return the nearest directory above ``path`` that exists: where a new file would take its room."""
    here = Path(path)
    while not here.exists():
        here = here.parent
    return str(here)


def mount_point(path: str) -> str:
    """Return the mount point of an existing path."""
    here = Path(path).resolve()
    while not here.is_mount():
        here = here.parent
    return str(here)


def room(what: str, path: str, wanted: int) -> preflight.Room:
    """Put a wish for space beside what the file system has for root's programs."""
    parent = existing_parent(path)
    return preflight.Room(what, path, mount_point(parent), wanted, shutil.disk_usage(parent).free)


@dataclass(frozen=True)
class Engine:
    """What is known of containers and images, by the engine or without it."""

    names: Mapping[str, str]
    """Names of containers by short id."""
    silent: str
    """What a question to the engine came to, where it did not answer."""
    recorded: Mapping[str, Mapping[str, Any]]
    """What was found in images when last looked at; whether they are there only where the engine does not answer."""
    renamed: Mapping[str, str]
    """What containers of instances are called that somebody renamed, by instance."""


def look_at_engine(module: AnsibleModule) -> Engine:
    """Ask the engine which containers run, and read what was written down of images."""
    complaints: list[str] = []
    names, renamed = read_containers(module, complaints)
    recorded: Mapping[str, Mapping[str, Any]] = {}
    with contextlib.suppress(Damaged):
        recorded = (read_json(IMAGES, {"images": {str: dict}}) or {"images": {}})["images"]
    return Engine(names, "; ".join(complaints), recorded, renamed)


def package_versions(module: AnsibleModule) -> dict[str, str]:
    """Ask the system's package database for the packages that a release has a word on."""
    query = engine_packages.versions_query(
        engine_packages.family_of(read_text("/etc/os-release")), compatibility.PACKAGES
    )
    if not query or module.get_bin_path(query[0]) is None:
        return {}
    _code, out, _err = module.run_command(query)
    versions: dict[str, str] = engine_packages.versions(out)
    return versions


def read_levels(module: AnsibleModule) -> compatibility.Levels:
    """What the catalogue says of checks; end the module with what is wrong with it."""
    try:
        levels: compatibility.Levels = compatibility.Levels.from_document(module.params["levels"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    return levels


def judged(
    module: AnsibleModule,
    levels: compatibility.Levels,
    topology: Mapping[str, Any],
    engine: Engine,
    plans: Sequence[Mapping[str, Any]],
) -> list[compatibility.Mismatch]:
    """Read what a release has a word on, and compare."""
    params, os_release = module.params, preflight.parse_os_release(read_text("/etc/os-release"))
    found = compatibility.Found(
        system=preflight.vendor_system(os_release),
        title=os_release.get("PRETTY_NAME", ""),
        kernel=running_kernel(),
        kernel_lacks=tuple(kernel_lacks(params["kernel_rules"], os_release.get("ID", "")) if plans else ()),
        driver=topology.get("driver_version"),
        nic_drivers=frozenset(
            card["nic_driver_version"] for card in topology.get("cards", []) if card.get("nic_driver_version")
        ),
        cards=compatibility.cards(topology.get("cards", []), CardType.table(params["card_types"])),
        packages=package_versions(module),
        images={plan["image"]: compatibility.image(engine.recorded.get(plan["image"], {})) for plan in plans},
    )
    mismatches: list[compatibility.Mismatch] = compatibility.judge(
        found, compatibility.Release(params["release"], params["software"]), levels, params["allow_mismatch"]
    )
    return mismatches


def kernel_lacks(rules: Sequence[Mapping[str, Any]], system: str) -> list[cmdline.Needed]:
    """What the running kernel was started without, of the arguments that right answers need."""
    kernel = running_kernel()
    needed = cmdline.needed(rules, system, [kernel])
    lacks: list[cmdline.Needed] = host_state.lacking(needed, kernel, cmdline.split(read_text("/proc/cmdline")))
    return lacks


def running_kernel() -> str:
    """The release of the kernel that runs."""
    return read_text("/proc/sys/kernel/osrelease").strip()


def user_of(engine: Engine, pid: int | None) -> dict[str, Any]:
    """Return who a process is: its name, its unit, its container."""
    user: dict[str, Any] = topology_users.new_user()
    if pid is None:
        return user
    unit, container = topology_users.owner_of(read_text(f"/proc/{pid}/cgroup"), read_text("/proc/1/cgroup"))
    name = engine.names.get(container) if container else None
    comm = printable(read_text(f"/proc/{pid}/comm").strip())
    return {**user, "pid": pid, "name": comm, "unit": unit, "container": container, "container_name": name}


def port_user(engine: Engine, plan: Mapping[str, Any], listeners: Sequence[Listener]) -> dict[str, Any] | None:
    """Return who keeps a plan's port from being bound, or None when nobody but the instance itself does.

    Raises socket.gaierror when the node does not know the host the instance is to listen on.
    """
    host, port = plan["listen"]["host"], int(plan["listen"]["port"])
    addresses = dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    for address in addresses:
        for listener in preflight.blocking_listeners(listeners, address, port):
            user = user_of(engine, next(listening.holders_of(listener.inode), None))
            if not topology_users.is_own(user, plan["instance"]):
                return user
    return None


def image_present(module: AnsibleModule, engine: Engine, image: str) -> bool:
    """Tell whether the engine, if there is one, already has an image."""
    docker = module.get_bin_path("docker")
    if docker is None or engine.silent:
        return image in engine.recorded
    code, _out, _err = module.run_command([docker, "image", "inspect", "--format", "{{.Id}}", image])
    return bool(code == 0)


def running_plans(
    module: AnsibleModule, plans: Sequence[Mapping[str, Any]], before: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The plans on the node that name a card or port of another one of these, and whose instances run or start."""
    up = ("active", "activating", "reloading")
    return {
        name: before[name]
        for name in handover.rivals(plans, before)
        if systemctl(module, "show", f"vllm-{name}.service", "--property=ActiveState").strip().partition("=")[2] in up
    }


def check_listen(
    engine: Engine,
    plan: Mapping[str, Any],
    plans: Sequence[Mapping[str, Any]],
    running: Mapping[str, dict[str, Any]],
) -> tuple[list[preflight.Problem], list[handover.Handover]]:
    """Refuse a port that is taken, and a host name that is none of this node's; say which of ``plans`` gives it up."""
    listeners = parse_listeners(read_text("/proc/net/tcp"))
    listeners += parse_listeners(read_text("/proc/net/tcp6"))
    try:
        user = port_user(engine, plan, listeners)
    except socket.gaierror as error:
        return [preflight.unknown_host(plan, str(error.strerror))], []
    user = user or handover.about_to_listen(plan, running)
    given = handover.port(plan, user, plans)
    if given is not None:
        return [], [given]
    return preflight.check_port(plan, user, preflight.free_port(listeners, int(plan["listen"]["port"]))), []


def check_plan(
    module: AnsibleModule, engine: Engine, plan: Mapping[str, Any], advice: str, coming: Collection[str]
) -> list[preflight.Problem]:
    """Check what one planned instance needs of this node; ``coming`` are paths that are there later."""
    problems: list[preflight.Problem] = preflight.check_name(plan)
    if not problems:
        # Models that share the instance's card lie beside its own.
        beside = [{**plan, "requires": {"weights_path": path}} for path in plan["requires"].get("weights_beside", [])]
        for one, said in ((plan, advice), *((each, "") for each in beside)):
            path = one["requires"]["weights_path"]
            if path not in coming:
                problems += preflight.check_weights(one, weights_present(one), mend_advice(module, one) or said)
        problems += check_start(module, plan, coming)
        problems += preflight.check_keys(plan, keys_made(plan["instance"]))
        problems += preflight.check_container(plan, engine.renamed.get(plan["instance"]))
    return problems


def check_start(module: AnsibleModule, plan: Mapping[str, Any], coming: Collection[str]) -> list[preflight.Problem]:
    """Look for what a plan asks for beside weights: quantisation files, measurements, host NICs."""
    params, requires = module.params, plan["requires"]
    lacking = [path for path in requires.get("files") or [] if not Path(path).is_file()]
    measurements = requires.get("measurements")
    found = measurement_files(Path(measurements["path"]), len(plan["modules"])) if measurements else 0
    if measurements and measurements["path"] in coming:
        found = measurements["files"]
    problems: list[preflight.Problem] = preflight.check_start(plan, lacking, found)
    if requires.get("host_nics") and not params["host_nics"]:
        problems.append(preflight.host_nics(plan))
    return problems


def keys_made(instance: str) -> list[str]:
    """The names of an instance's keys that playbooks/keys.yml made; of a damaged file that it is."""
    file = Path(paths.INSTANCES) / instance / paths.KEYS_FILE
    try:
        held = read(file, keys.read) or []
    except Damaged as damage:
        return [str(damage)]
    return [key.name for key in held if key.origin == keys.PLAYBOOK]


def measurement_files(folder: Path, cards: int) -> int:
    """Count the files that are there of a measurement set for so many cards."""
    return sum((folder / name).is_file() for name in measured_files(MEASURED, cards))


def mend_advice(module: AnsibleModule, plan: Mapping[str, Any]) -> str:
    """Say what makes weights whole that are there and not as their record says; empty where that is not known."""
    command = weights_folders.mend(Path(plan["requires"]["weights_path"])) if weights_present(plan) else ""
    brought = "Set gaudi_weights_fetch: true to have that mended in the same run, or m"
    known = module.params["source_plans"].get(plan["instance"])
    return f"{brought if known else 'M'}ake them whole with: {command}" if command else ""


def weights_present(plan: Mapping[str, Any]) -> bool:
    """Tell whether a plan's weights are on the node, as far as their configuration shows."""
    path = plan["requires"]["weights_path"]
    return bool(path) and Path(path, "config.json").is_file()


def whole(folder: Path, measured_cards: int) -> bool:
    """Tell whether a folder is as it was fetched, or is somebody's own model or set of measurements."""
    described = weights_folders.describe(folder) if folder.is_dir() else {"status": "absent"}
    if described["status"] != "unknown":
        return described["status"] in ("whole", "converted")
    if measured_cards:
        return measurement_files(folder, measured_cards) == 3 * measured_cards
    return (folder / "config.json").is_file()


def missing_weights(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Weights that are missing, each folder once; none where nobody asked for them."""
    root = Path(params["weights_root"])
    folders.revalidate_directory(root)
    found: dict[str, dict[str, Any]] = {}
    for instance, sources in params["source_plans"].items() if params["weights_fetch"] else ():
        for source in sources:
            names = {source_plan.served(source), source["fetch"]["directory"]}
            there = {name for name in names if whole(root / name, source["fetch"]["measured_cards"])}
            todo = source_plan.missing(source, there)
            if todo is not None:
                found.setdefault(source_plan.served(source), {**todo, "instance": instance})
    return list(found.values())


def check_missing(
    module: AnsibleModule, missing: Sequence[Mapping[str, Any]]
) -> tuple[list[preflight.Problem], list[preflight.Room], list[str]]:
    """What keeps missing weights from being fetched, the room they take, and what a person should know."""
    root, fetches = Path(module.params["weights_root"]), [source["fetch"] for source in missing if source["fetch"]]
    rooms, findings = [], []
    for source in missing:
        name = source["fetch"]["directory"] if source["fetch"] else source["convert"]["source"]
        begun = weights_folders.bytes_below(root / f"{name}{weights.STAGING_SUFFIX}")
        made = weights_folders.bytes_below(root / source["convert"]["target"]) if source["convert"] else 0
        rooms.append(room(f"the weights in {name}", str(root / name), source_plan.room(source, begun, made)))
        origin = source_plan.origin(source["fetch"]) if source["fetch"] else None
        target = str(root / source["convert"]["target"]) if source["convert"] else None
        size = source["fetch"]["bytes"] if source["fetch"] else 0
        findings.append(preflight.missing_finding(source["instance"], origin, str(root / name), size, target))
    if not fetches:
        return [], rooms, findings
    rooms.append(room("the reserve (model_weights_reserve)", str(root), module.params["weights_reserve"]))
    foreign = [str(root / item["directory"]) for item in fetches if occupied(root / item["directory"])]
    problems = preflight.check_fetch(
        module.params["weights_sources"], python_version(module, module.params["weights_python"]), foreign
    )
    problems += [preflight.Problem("weights_source", said) for said in kind_sentences(module.params["weights_kinds"])]
    return problems, rooms, findings


def unpinned(
    params: Mapping[str, Any], plans: Sequence[Mapping[str, Any]], missing: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """Say what would be taken by a name that can move, and of it what is never taken so.

    A folder that is there is mended by its record.
    """
    root = Path(params["weights_root"])
    fetches = [
        source["fetch"] for source in missing if source["fetch"] and not (root / source["fetch"]["directory"]).exists()
    ]
    # The tag of an image that is built here stands for all that went into it.
    named = [] if params["image_built"] else [plan["image"] for plan in plans]
    sentences: list[str] = pins.image_sentences(named, params["image_digest"])
    kinds = params["weights_kinds"]
    sentences += pins.repository_sentences((item for item in fetches if not item["measured_cards"]), kinds)
    return sentences, pins.measurement_refusals(fetches, kinds)


def occupied(folder: Path) -> bool:
    """Tell whether something that is no fetched model lies where one is to be."""
    if not folder.is_dir():
        return folder.exists()
    return any(folder.iterdir()) and not (folder / weights.MANIFEST).exists()


def python_version(module: AnsibleModule, path: str) -> str:
    """Return a Python's version such as 3.11, or path and what kept it from answering."""
    program = module.get_bin_path(path)
    if program is None:
        return f"{path}, which is not on the node"
    asked = [program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    code, out, _err = module.run_command(asked)
    return str(out.strip()) if code == 0 else f"{path}, which ends with status {code}"


def check_space(
    module: AnsibleModule,
    engine: Engine,
    plans: Sequence[Mapping[str, Any]],
    size: int,
    weights_rooms: Sequence[preflight.Room],
    coming: Collection[str],
) -> list[preflight.Problem]:
    """Check that there is room for images and weights that are not there; and that the engine can be configured."""
    path = module.params["daemon_json"]
    text = read_text(path)
    try:
        docker_daemon.parse(text, path)
    except Refusal as refusal:
        return [preflight.Problem("daemon_json", str(refusal))]
    missing = sorted({plan["image"] for plan in plans if not image_present(module, engine, plan["image"])})
    # Images that are built here have most of their layers in common.
    counted = missing[:1] if module.params["image_built"] else missing
    rooms = [room(f"image {image}", docker_daemon.data_root(text), size) for image in counted]
    rooms += [
        room(f"the weights of {plan['instance']}", plan["requires"]["weights_path"], plan["requires"]["weights_bytes"])
        for plan in plans
        if plan["requires"].get("weights_bytes")
        and plan["requires"]["weights_path"] not in (None, *coming)
        and not weights_present(plan)
    ]
    rooms += weights_rooms
    problems: list[preflight.Problem] = preflight.check_room(rooms)
    return problems


def recipe_rooms(plan: Mapping[str, Any]) -> list[preflight.Room]:
    """What an instance writes to beside its weights: the cache of compiled recipes."""
    wanted = int(plan["requires"].get("disk_bytes") or 0)
    places = [mount["source"] for mount in plan["container"].get("mounts", []) if not mount["read_only"]]
    return [room(f"{plan['instance']}: the recipe cache", place, wanted) for place in places if wanted]


def plan_findings(
    asked: Sequence[Mapping[str, Any]],
    plans: Sequence[Mapping[str, Any]],
    handed: Sequence[handover.Handover],
    before: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """What a person should know of the plans, and of those that are on the node.

    ``asked`` has refused ones as well; ``before`` are the plans on the node, by instance.
    """
    names = {plan["instance"] for plan in asked}
    findings = [
        preflight.damaged_plan(str(file), file.parent.name, file.parent.name in names)
        for file in weights_folders.damaged_plans(weights_folders.PLANS)
    ]
    findings += handover.sentences(handed)
    for plan in plans:
        findings += handover.move(plan, before.get(plan["instance"]))
        findings += [f"{plan['instance']}: {warning}" for warning in plan.get("warnings", [])]
        findings += preflight.room_findings(recipe_rooms(plan))
    return findings


def read_cards(module: AnsibleModule) -> dict[str, Any]:
    """The cards as they are now, with what is odd about them."""
    topology: dict[str, Any] = read_topology(module)
    topology["findings"] += read_holders()[1]
    return topology


def look_at_driver(
    module: AnsibleModule,
    topology: Mapping[str, Any],
    mismatches: Sequence[compatibility.Mismatch],
    *,
    lacks_runtime: bool,
    lost: str,
) -> driver_first.DriverFirst:
    """Say what the driver of a node needs, where the role that brings it follows and there may be something to do."""
    params, foreseen = module.params, bool(topology.get("foreseen"))
    wishes = params["driver"]
    if not wishes or not driver_first.may_be_due(
        foreseen, wishes["replace"], mismatches, lacks_runtime=lacks_runtime, lost_at_reboot=bool(lost)
    ):
        return driver_first.DriverFirst(findings=(lost,) if lost else ())
    given = {**wishes, "software": params["software"], "repository": params["driver_repository"]}
    try:
        look = Look(module, {**given, "offered": True, "hold_kernel": False}, read_sources(module, links=False))
        decided, (not_offered, kernel_packages) = look.judgement(), look.offers()
    except Refusal as refusal:
        return driver_first.DriverFirst(problems=(preflight.Problem(refusal.id, str(refusal)),))
    steps = {step.id: step.items for step in decided.steps}
    refusals = [*decided.refusals, *not_offered]
    told: driver_first.DriverFirst = driver_first.told(
        look.wanted.version, steps, refusals, kernel_packages, foreseen=foreseen, replace=wishes["replace"]
    )
    return told if told.first or not lost else dataclasses.replace(told, findings=(*told.findings, lost))


def check_driver(
    module: AnsibleModule,
    topology: Mapping[str, Any],
    engine: Engine,
    plans: Sequence[Mapping[str, Any]],
    expected_cards: int | None,
) -> tuple[list[preflight.Problem], driver_first.DriverFirst, list[compatibility.Mismatch]]:
    """What is wrong with cards and runtime, what comes of the driver, and what does not go with the release."""
    params, levels = module.params, read_levels(module)
    mismatches = judged(module, levels, topology, engine, plans)
    habana = params["habana_path"]
    no_runtime = preflight.check_runtime(habana, present=bool(habana) and os.access(habana, os.X_OK))
    lost = lost_at_reboot(module)
    driver = look_at_driver(module, topology, mismatches, lacks_runtime=bool(no_runtime), lost=lost)
    problems = preflight.check_cards(topology, expected_cards, ENDED_BY_A_DRIVER if driver.first else ())
    problems += driver.problems
    problems += compatibility.unknown_names(params["allow_mismatch"], levels)
    if driver.first:
        return problems, driver, driver_first.still_judged(mismatches)
    return problems + no_runtime, driver, mismatches


def main() -> None:
    """Read the node, compare, return every problem."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, topology = module.params, module.params["topology"] or read_cards(module)
    os_release = preflight.parse_os_release(read_text("/etc/os-release"))
    clock = time.time()
    found = params["found"]
    problems = [preflight.Problem(**problem) for problem in found.get("problems", [])]
    site, wrong = inventory.read(params["inventory"])
    problems += wrong
    if site.release is not None:
        problems += preflight.check_release(site.release, params["known_releases"])
    problems += [preflight.Problem("inventory", said) for said in pins.digest_refusals(params["image_digest"])]
    problems += preflight.check_requests(params["plans"], bool(topology.get("cards")), site.positions)
    problems += inventory.check_hugepages(site, read_text("/proc/meminfo"))
    problems += preflight.check_clock(clock, params["controller_time"], params["clock_tolerance"])
    problems += preflight.check_system(os_release)
    plans = [plan for plan in params["plans"] if not plan.get("refused")]
    engine = look_at_engine(module)
    of_the_driver, driver, mismatches = check_driver(module, topology, engine, plans, site.expected_cards)
    problems += of_the_driver
    missing = missing_weights(params)
    coming = {f"{params['weights_root'].rstrip('/')}/{source_plan.served(source)}" for source in missing}
    weights_problems, rooms, weights_findings = check_missing(module, missing)
    before = weights_folders.plans_on_node(weights_folders.PLANS)
    running = running_plans(module, plans, before)
    handed = handover.cards(plans, topology, params["reserved"], running)
    refused = compatibility.problems(mismatches)
    for plan in plans:
        problems += check_plan(module, engine, plan, params["how_to_get"].get(plan["instance"], ""), coming)
        taken, given = check_listen(engine, plan, plans, running) if plan.get("instance") else ([], [])
        problems, handed = problems + taken, handed + given
    problems += weights_problems
    if params["image_built"]:
        problems += images.check_processor(plans, read_text("/proc/cpuinfo"))
    problems += check_space(module, engine, plans, params["image_bytes"], rooms, coming)
    moving, never = unpinned(params, plans, missing)
    problems += [preflight.Problem("pins", said) for said in never]
    problems += [preflight.Problem("pins", said) for said in (pins.refused(moving) if site.require_pins else ())]
    findings = list(found.get("findings", []))
    findings += driver.findings
    findings += compatibility.findings(mismatches, params["release"])
    findings += compatibility.other_warnings(topology.get("findings", []))
    findings += preflight.silent_engine(engine.silent) + weights_findings + ([] if site.require_pins else moving)
    findings += plan_findings(params["plans"], plans, handed, before)
    node = {
        "system": os_release.get("PRETTY_NAME"),
        "kernel": running_kernel(),
        "cards": len(topology.get("cards", [])),
    }
    release = compatibility.Release(params["release"], params["software"])
    table = compatibility.report(mismatches, release, len(problems) + 1)
    module.exit_json(
        changed=False,
        problems=[problem.as_dict() for problem in [*problems, *refused]],
        findings=findings,
        mismatches=[mismatch.as_dict() for mismatch in mismatches],
        let_through=compatibility.let_through(mismatches),
        missing_weights=[] if problems or refused else missing,
        driver_first=driver.first,
        stop_first=handover.stopped_first(handed),
        report=preflight.report(params["host"], problems, refused, table) if problems or refused else "",
        node=node,
        topology=topology,
    )


if __name__ == "__main__":
    main()
