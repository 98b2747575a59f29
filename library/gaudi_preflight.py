#!/usr/bin/python
"""Ansible module: report everything that keeps a node from being set up, and change nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gaudi_preflight
short_description: Report everything that keeps a node from being set up
description:
  - Reads the node (system, kernel, clock, file systems, listening ports, the engine's configuration file) and
    compares it with what a release and its planned instances need.
  - Returns every problem as sentences that say what was seen, what is needed and what to do. It never fails because
    of one, so that all nodes can be reported before any of them is changed.
author: gaudi-serving
extends_documentation_fragment: attributes.reads
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
    description: Names of checks whose mismatches are allowed.
    type: list
    elements: str
    default: []
  kernel_rules:
    description:
      - Kernel arguments as C(catalog/host.yml) has them. Where something is to be served, the running kernel must have
        those that right answers need. Of rules with C(shown_by), what counts is the type of the IOMMU groups of all
        cards, whether something is to be served or not.
    type: list
    elements: dict
    default: []
  tunes:
    description:
      - Whether the role host_tuning follows, which sets the arguments and refuses to go on without them. They are then
        judged here only where instances would be stopped for another driver and could not start again before a reboot.
    type: bool
    default: false
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
  image_base:
    description: Base image of images that are built, with its digest where it is pinned.
    type: str
    default: ""
  image_pushed:
    description: Whether one node builds the images and pushes them, and the others pull them.
    type: bool
    default: false
  inventory:
    description:
      - The site's variables as they stand in the inventory, null for one that is not set. Each is checked, and a wrong
        one is a problem that names it and says what would be right.
      - Known are C(gaudi_release), C(gaudi_expected_cards), C(gaudi_image_registry), C(gaudi_weights_root),
        C(gaudi_weights_fetch), C(gaudi_nodes_at_once), C(gaudi_nodes_pause), C(gaudi_require_pins),
        C(gaudi_serving_instances), and where the
        host is tuned
        C(host_tuning_hugepages), C(host_tuning_hugepage_size) and C(host_tuning_max_memory_share). Those that are left
        out are not checked.
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
  weights_hubs:
    description: How these hubs are reached. Each proxy is asked once if weights are fetched.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the source.
        type: str
        required: true
      address:
        description: Address, without an account.
        type: str
        required: true
      proxy:
        description: Address of the proxy, which may hold an account. Empty for none.
        type: str
        default: ''
      option:
        description: Option of the site that sets the proxy, for messages.
        type: str
        default: ''
  alone:
    description: Whether this node is the only one of the run, so that no other one gives it weights or images.
    type: bool
    default: false
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
    description: Allowed difference of the two clocks in seconds, including the delay of the connection.
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
  fabric:
    description:
      - Where the role fabric_check follows, how it measures, by the names of the options of M(fabric_check). An
        instance that it would refuse by a verdict that is neither stale nor missing is then a problem.
      - Without it the verdict is not read.
    type: dict
    default: {}
  driver:
    description:
      - Where the role gaudi_driver follows, what it is to do - C(facts), the content of C(catalog/driver.yml),
        C(suite), the C(fingerprint) of its repository's key, and the options C(replace), C(take_over), C(drain) and
        C(no_way_back), as M(gaudi_driver_info) has them.
      - Without it a node without a driver is refused.
    type: dict
    default: {}
  reboots:
    description:
      - Whether the run may reboot the node. What a reboot would lose is a problem then, and a finding otherwise.
    type: bool
    default: false
  driver_repository:
    description: The repository with its packages, which may hold a password. Empty where the node knows one.
    type: str
    default: ""
  http_proxy:
    description: Proxy for http to that repository. It may hold a password. Without one the environment's are used.
    type: str
    default: ""
  https_proxy:
    description: Proxy for https, likewise.
    type: str
    default: ""
  no_proxy:
    description: Hosts that are reached without them.
    type: str
    default: ""
  certificates:
    description: Certificates in PEM that are trusted there beside the node's own.
    type: str
    default: ""
  habana_source:
    description:
      - The repository that the role container_runtime installs the vendor's runtime from.
    type: dict
    suboptions:
      repository:
        description: Its address, without an account. Empty where there is none.
        type: str
        default: ""
      suite:
        description: Its suite. Empty means the system's codename.
        type: str
        default: ""
      fingerprint:
        description: Fingerprint of the key that signs it.
        type: str
        default: ""
  found:
    description: What was found before the node was asked, C(problems) and C(findings) as M(role_options) returns them.
    type: dict
    default: {}
  reported:
    description: RV(reported) of an earlier call in the same run. These findings are left out.
    type: list
    elements: str
    default: []
  carry_recipes:
    description: Whether the node gives compiled recipes to others of its site, and takes them from there.
    type: bool
    default: true
  daemon_json:
    description:
      - The engine's configuration file. It is only read, and refused when it cannot be merged with. An engine that is
        started with C(--config-file) has its own.
    type: path
    default: /etc/docker/daemon.json
  engine:
    description:
      - Settings that the role container_runtime merges into that file - C(live_restore), C(log_options), C(runtimes)
        and C(additions), as M(docker_daemon_json) takes them. Those that the engine does not allow are problems.
      - Without it the engine's configuration is not changed, and only checked.
    type: dict
    default: {}
  packages:
    description:
      - Where the role container_runtime follows, what is installed - C(engine), the packages that the site names,
        C(builds), whether images are built, C(manage), whether the engine is installed and configured at all,
        C(habana_path), C(habana_package), and C(rhel_repository). Without it no engine and no packages are judged.
      - An engine that instances cannot use, and an installation that would harm packages of others, are problems.
    type: dict
    default: {}
  engine_proxies:
    description:
      - Proxies of the engine by variable, which are compared with those that it has. Without any they are not judged.
    type: dict
    default: {}
  access_valid:
    description:
      - Whether proxies and certificates of the site are valid. If not, they are reported alone, and what depends on
        them is not judged - restarts of the engine, and packages of repositories.
    type: bool
    default: true
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
  description: Findings for a person, which do not prevent the setup.
  returned: always
  type: list
  elements: str
  sample: ["docker: found docker.io 20.10.24+dfsg1-1+deb12u1, wanted 25.0.1 or newer by release 1.22. ..."]
reported:
  description: O(reported) and RV(findings).
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
allowed:
  description: O(allow_mismatch), each name once. What starts an instance later asks for it again.
  returned: always
  type: list
  elements: str
  sample: [driver]
missing_weights:
  description:
    - Directories of O(source_plans) that the node lacks and this run fetches or converts, sorted. What is fetched into
      them is decided on the controller. Empty where there are problems.
  returned: always
  type: list
  elements: str
  sample: [Qwen3-8B]
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
restarts:
  description: Instances that run or start, and whose plan on the node differs from the one in O(plans).
  returned: always
  type: list
  elements: str
  sample: []
recipes:
  description:
    - Compiled recipes of the node. C(has) names an instance for each key that there are some of, C(lacks) the first
      instance of O(plans) for each key of which there are none, where that instance does not run with it. Both are
      empty without O(carry_recipes).
  returned: always
  type: dict
  sample: {"has": {"qwen3-8b-bfloat16-hl225-tp1-0123456789ab": "chat"}, "lacks": {}}
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
  description: Id of a refusal of the catalogue, which stays the same between releases; C(msg) has the sentence.
  returned: when O(levels) cannot be read
  type: str
  sample: unknown_key
node:
  description: What was read.
  returned: always
  type: dict
  sample: {"system": "Debian GNU/Linux 12 (bookworm)", "kernel": "6.1.0-18-amd64", "cards": 8,
           "address": "10.20.0.11", "weights_shared": false}
"""

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.apt import config, faults
from ansible.module_utils.gaudi.base import paths, places
from ansible.module_utils.gaudi.base.access import bypassed, proxy_of
from ansible.module_utils.gaudi.base.command_line import measured_in, needs_pins, plugins_in, runs_code, unpickles
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.listeners import Listener, parse_listeners
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.recipes import is_keyed, key_of
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.base.systems import parse_os_release
from ansible.module_utils.gaudi.cards import users as topology_users
from ansible.module_utils.gaudi.cards.users import instance_of
from ansible.module_utils.gaudi.engine import configuration, daemon, origin
from ansible.module_utils.gaudi.engine import packages as engine_packages
from ansible.module_utils.gaudi.engine.transaction import DEBIAN, RHEL
from ansible.module_utils.gaudi.fabric import asked, verdict
from ansible.module_utils.gaudi.node import (
    apt,
    beneath,
    engine_config,
    engine_look,
    folders,
    instances,
    iommu,
    links,
    package_look,
    package_states,
    storage,
    web,
)
from ansible.module_utils.gaudi.node import listening as sockets
from ansible.module_utils.gaudi.node import weight_folders as weights_folders
from ansible.module_utils.gaudi.node.documents import read as read_document
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.driver import next_boot
from ansible.module_utils.gaudi.node.driver.look import Look, index_of, kernel_is_due
from ansible.module_utils.gaudi.node.module import NodeModule, systemctl
from ansible.module_utils.gaudi.node.reader import read_containers, read_holders, read_sources, read_topology
from ansible.module_utils.gaudi.node.web import ACCESS
from ansible.module_utils.gaudi.node.weights import pinned
from ansible.module_utils.gaudi.preflight import checks, compatibility, driver_first, handover, judgement, mounts
from ansible.module_utils.gaudi.preflight import site as inventory
from ansible.module_utils.gaudi.serving import keys as serving_keys
from ansible.module_utils.gaudi.serving.plan import recipe_directory
from ansible.module_utils.gaudi.weights import record as weights
from ansible.module_utils.gaudi.weights import source_plan
from ansible.module_utils.parsing.convert_bool import boolean

ARGUMENT_SPEC: dict[str, Any] = {
    "host": {"type": "str", "required": True},
    "release": {"type": "str", "required": True},
    "known_releases": {"type": "list", "elements": "str", "required": True},
    "software": {"type": "dict", "default": {}},
    "levels": {"type": "dict", "required": True},
    "allow_mismatch": {"type": "list", "elements": "str", "default": []},
    "kernel_rules": {"type": "list", "elements": "dict", "default": []},
    "tunes": {"type": "bool", "default": False},
    "image_digest": {"type": "str", "default": ""},
    "image_bytes": {"type": "int", "default": 0},
    "image_built": {"type": "bool", "default": False},
    "image_base": {"type": "str", "default": ""},
    "image_pushed": {"type": "bool", "default": False},
    "inventory": {"type": "dict", "required": True},
    "topology": {"type": "dict"},
    "plans": {"type": "list", "elements": "dict", "default": []},
    "reserved": {"type": "dict", "default": {}},
    "how_to_get": {"type": "dict", "default": {}},
    "source_plans": {"type": "dict", "default": {}},
    "weights_root": {"type": "path", "default": "/data/models"},
    "weights_fetch": {"type": "bool", "default": False},
    "weights_sources": {"type": "int", "default": 0},
    "weights_hubs": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            # It may hold a password.
            "proxy": {"type": "str", "default": "", "no_log": True},
            "option": {"type": "str", "default": ""},
        },
    },
    "alone": {"type": "bool", "default": False},
    "weights_kinds": {"type": "list", "elements": "str", "default": []},
    "weights_reserve": {"type": "int", "default": 0},
    "weights_python": {"type": "path", "default": "/usr/bin/python3"},
    "controller_time": {"type": "float", "required": True},
    "clock_tolerance": {"type": "float", "default": 60.0},
    "habana_path": {"type": "str", "default": ""},
    "fabric": {"type": "dict", "default": {}},
    "driver": {"type": "dict", "default": {}},
    "reboots": {"type": "bool", "default": False},
    "driver_repository": {"type": "str", "default": "", "no_log": True},
    **ACCESS,
    "habana_source": {
        "type": "dict",
        "options": {
            "repository": {"type": "str", "default": ""},
            "suite": {"type": "str", "default": ""},
            "fingerprint": {"type": "str", "default": ""},
        },
    },
    "packages": {"type": "dict", "default": {}},
    "found": {"type": "dict", "default": {}},
    "reported": {"type": "list", "elements": "str", "default": []},
    "carry_recipes": {"type": "bool", "default": True},
    "daemon_json": {"type": "path", "default": "/etc/docker/daemon.json"},
    "engine": {"type": "dict", "default": {}},
    # The addresses of proxies may hold a password.
    "engine_proxies": {"type": "dict", "default": {}, "no_log": True},
    "access_valid": {"type": "bool", "default": True},
    "host_nics": {"type": "bool", "default": False},
    "card_types": {"type": "dict", "default": {"cards": {}}},
}

# The address whose route Ansible's fact default_ipv4 asks for.
ANYWHERE = "8.8.8.8"
# The engine's client waits as long as the engine does.
ANSWERS_WITHIN = ("timeout", "--kill-after=5", "20")
# Files of adapters, and of models that guess, beside which code may lie; of others of a plan only the file is read.
OF_MODELS = ("adapter_config.json", "config.json")
# What the role serving_image records of the images of the node.
IMAGES = Path(paths.STATE) / "images.json"


def read_text(path: str) -> str:
    """Return a file's text; "" if it is missing. Process names are arbitrary text."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def look(module: AnsibleModule) -> judgement.PreflightFacts:
    """Read all facts for the judgement; changes nothing."""
    params = module.params
    plans = judgement.servable(params["plans"])
    named = [plan for plan in plans if plan.get("instance")]
    engine = look_at_engine(module, plans)
    listeners = [listener for table in ("tcp", "tcp6") for listener in parse_listeners(read_text(f"/proc/net/{table}"))]
    before = weights_folders.plans_on_node(weights_folders.PLANS)
    asked_for = {*handover.rivals(plans, before), *handover.changed(plans, before)}
    coming = look_at_missing(params)
    identified, damaged = identify_engine(module)
    seen = judgement.PreflightFacts(
        topology=params["topology"] or read_cards(module),
        clock=time.time(),
        os_release=read_text("/etc/os-release"),
        kernel=read_text("/proc/sys/kernel/osrelease").strip(),
        cmdline=read_text("/proc/cmdline"),
        groups=iommu.read_groups(),
        path=module.connection_path,
        address=default_address(),
        weights_unwritable=str(storage.unwritable(Path(params["weights_root"])) or "") if coming else "",
        weights_shared=bool(weights_folders.shared_by_nodes(params["weights_root"], read_text("/proc/self/mountinfo"))),
        meminfo=read_text("/proc/meminfo"),
        cpuinfo=read_text("/proc/cpuinfo"),
        **look_at_configuration(module, identified),
        packages=package_versions(module),
        runtime=bool(params["habana_path"]) and os.access(params["habana_path"], os.X_OK),
        engine=engine,
        listeners=listeners,
        before=before,
        damaged=[(str(file), file.parent.name) for file in weights_folders.damaged_plans(weights_folders.PLANS)],
        up=frozenset(name for name in asked_for if instances.is_up(module, name)),
        instances={
            plan["instance"]: replace(
                look_at_instance(params, engine, plan, listeners),
                overlapping=checks.overlaps(
                    plan,
                    [*(each for each in named if each is not plan), *before.values()],
                    params["weights_root"],
                    os.path.realpath,
                ),
            )
            for plan in named
        },
        weights={path: weights_folders.repair_command(Path(path)) for path in weights_there(plans)},
        lost=look_where_lost(before),
        coming=coming,
        python=python_version(module) if any(one.source["fetch"] for one in coming) else "",
    )
    fetches = any(one.source["fetch"] for one in coming)
    packages = look_at_packages(module, identified, fetches=fetches) if identified else {}
    seen = replace(
        seen,
        engine_problems=[*damaged, *packages.get("engine_problems", []), *seen.engine_problems],
        engine_notes=[*packages.get("engine_notes", []), *seen.engine_notes],
        lacking=packages.get("lacking", []),
    )
    space = {path: judgement.Space(*folders.space_at(Path(path))) for path in judgement.places(params, seen)}
    return replace(seen, space=space, unmounted=look_at_mounts(module, seen))


def default_address() -> str:
    """Return the IPv4 address of the default route, as Ansible's facts do; nothing is sent. "" without such a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ANYWHERE, 53))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def look_at_mounts(module: AnsibleModule, seen: judgement.PreflightFacts) -> list[checks.Problem]:
    """Return file systems below this run's folders that are not mounted; mounted ones may hang, so none is read."""
    mounted = mounts.points(read_text("/proc/self/mountinfo"))
    wanted = [*mounts.of_fstab(read_text(mounts.FSTAB)), *mounts.of_units(systemctl(module, *mounts.SHOW))]
    absent = [replace(mount, point=os.path.realpath(mount.point)) for mount in wanted if mount.point not in mounted]
    kept = {os.path.realpath(path): use for path, use in judgement.kept_in(module.params, seen).items()}
    lacking: list[checks.Problem] = mounts.problems((one for one in absent if one.point not in mounted), kept)
    return lacking


def look_at_engine(module: AnsibleModule, plans: Sequence[Mapping[str, Any]]) -> judgement.ContainerFacts:
    """Query the engine for running containers and images, and read the image record."""
    complaints: list[str] = []
    names, renamed = read_containers(module, complaints)
    recorded: Mapping[str, Mapping[str, Any]] = {}
    with contextlib.suppress(Damaged):
        recorded = (read_json(IMAGES, {"images": {str: dict}}) or {"images": {}})["images"]
    docker = None if complaints else module.get_bin_path("docker")
    there = {
        image
        for image in {plan["image"] for plan in plans}
        if (image in recorded if docker is None else has_image(module, docker, image))
    }
    return judgement.ContainerFacts(names, "; ".join(complaints), recorded, renamed, frozenset(there))


def identify_engine(module: AnsibleModule) -> tuple[engine_look.NodeEngine | None, list[checks.Problem]]:
    """Return the engine as the role container_runtime identifies it, or why it cannot; None without that role."""
    given = module.params["packages"]
    if not given:
        return None, []
    try:
        release = read_text("/etc/os-release")
        return engine_look.look(module, release, given["engine"], builds=boolean(given["builds"])), []
    except Damaged as damage:
        return None, [checks.Problem("record_damaged", f"{damage}. Move it away: then no package counts as ours.")]


def image_to_inspect(params: Mapping[str, Any]) -> str:
    """Return the image that the role fabric_check inspects in each run and cannot do without; "" for none."""
    fabric = params["fabric"]
    needed = fabric and boolean(fabric["required"]) and not fabric["override"]
    return asked.measuring_image(judgement.servable(params["plans"])) if needed else ""


def look_at_configuration(module: AnsibleModule, identified: engine_look.NodeEngine | None) -> dict[str, Any]:
    """Return where the engine keeps images, and what keeps its configuration from being changed."""
    by_others = identified.report["by_others"] if identified else None
    asked, found = module.params["engine"], engine_config.read_engine(module, ANSWERS_WITHIN, by_others)
    path, refused = module.params["daemon_json"], ""
    known: dict[str, Any] = {
        "data_root": found.info.get("DockerRootDir", ""),
        "no_proxy": found.info.get("NoProxy", ""),
    }
    if identified and identified.origin.refusal:
        # It is refused as a whole: what its configuration would need is not the cause.
        return known
    try:
        path, refused = configuration.config_file(found, path), "daemon_json"
        file = engine_config.read_config(path)
        existing = daemon.parse(daemon.decode(file.raw, path, found.version), path)
        known["data_root"] = daemon.data_root(found.info, found.flags, existing)
        refused = ""
        if engine_config.lacks_init(found) and (
            needs := configuration.needs_init(found, existing, image_to_inspect(module.params))
        ):
            advice = configuration.init_advice(*engine_look.init_package(module))
            lacking = configuration.without_init(found, needs, advice)
            known["engine_problems"] = [checks.Problem(lacking.id, str(lacking))]
        if not asked:
            configuration.check_suitable(found, existing, path)
            return known
        live = asked.get("live_restore")
        given = {**asked, "live_restore": None if live is None else boolean(live)}
        requested = configuration.RequestedConfiguration(
            **given, proxies=configuration.written_proxies(module.params["engine_proxies"])
        )
        decision = configuration.decide(found, existing, requested, path)
        changed = daemon.changed_keys(existing, decision.merged)
        file.check_writable(changed)
        late = daemon.drift(found.info, decision.compared)
        if module.params["engine_proxies"]:
            late += configuration.stale_proxies(found, requested)
        if found.info and module.params["access_valid"]:
            keys = sorted({*changed, *late})
            engine_config.check_apply(module, found, existing, decision, keys, path, ANSWERS_WITHIN)
    except Refusal as refusal:
        problems = [*known.get("engine_problems", []), checks.Problem(refused or refusal.id, str(refusal))]
        return {**known, "engine_problems": problems}
    return {**known, "engine_notes": decision.notes}


def wanted_packages(module: AnsibleModule, engine: engine_look.NodeEngine, *, fetches: bool) -> dict[str, list[str]]:
    """Return the packages that are missing for this run, by the part that installs them, the driver left out."""
    params, given = module.params, module.params["packages"]
    family, manage = engine_packages.family_of(read_text("/etc/os-release")), boolean(given["manage"])
    wanted = {"engine": engine.missing if manage else [], "habana": [], "weights": []}
    if manage and (params["habana_source"] or {}).get("repository") and not os.access(given["habana_path"], os.X_OK):
        wanted["habana"] = package_states.missing(module, family, [given["habana_package"]])
    if fetches:
        of_fetch = engine_packages.of_fetches(
            family, params["weights_python"], params["weights_kinds"], alone=params["alone"]
        )
        wanted["weights"] = package_states.missing(module, family, of_fetch)
    return wanted


def look_outside(
    module: AnsibleModule, driver: driver_first.DriverFirst, seen: judgement.PreflightFacts
) -> tuple[list[Refusal], list[str]]:
    """Return what a proxy of the site keeps from this node, as refusals and as findings.

    In check mode, repositories of others that cannot be read are findings as well.
    """
    denied = any(problem.id == "repository_behind_proxy" for problem in driver.problems)
    if denied or not module.params["access_valid"]:
        return [], []
    refusals, findings = look_at_repositories(module, driver, seen.lacking)
    # One proxy that serves no request would be reported for each purpose.
    blocked = [] if refusals else [*blocked_hubs(module, seen), *blocked_registry(module, seen)]
    if module.params["alone"]:
        return [*refusals, *blocked], findings
    # Another node of the run may have the weights or the image, and gives them.
    return refusals, [*findings, *map(str, blocked)]


def blocked_hubs(module: AnsibleModule, seen: judgement.PreflightFacts) -> list[Refusal]:
    """Return why no hub can be asked for the weights that are fetched to this node; nothing if one of them may be."""
    if not any(one.source["fetch"] for one in seen.coming):
        return []
    found = []
    for hub in module.params["weights_hubs"]:
        why = blocked(module, hub["address"], config.AptProxy(hub["proxy"], hub["option"]))
        if not why:
            return []
        found.append(Refusal("weights_behind_proxy", f"{why} Weights of this run are fetched from {hub['name']}."))
    return found


def blocked_registry(module: AnsibleModule, seen: judgement.PreflightFacts) -> list[Refusal]:
    """Return why the engine cannot pull an image that it lacks through the proxies that the site sets for it."""
    params, found = module.params, {}
    if params["image_built"] or not (params["engine"] and params["packages"]):
        return []
    for image in judgement.absent_images(params, seen):
        registry = image.partition("/")[0]
        proxies = params["engine_proxies"]
        proxy = proxy_of(f"https://{registry}", "", proxies.get("HTTPS_PROXY", ""), proxies.get("NO_PROXY", ""))
        # Without a point or a port it is a path of Docker Hub, whose mirrors an engine may have.
        if not re.search("[.:]", registry) or bypassed(registry.partition(":")[0], seen.no_proxy):
            continue
        option = "container_runtime_https_proxy, or gaudi_https_proxy without it"
        if why := blocked(module, f"https://{registry}/v2/", config.AptProxy(proxy, option)):
            found[why] = Refusal("image_behind_proxy", f"{why} The image {image} is pulled from there.")
    return list(found.values())


def blocked(module: AnsibleModule, address: str, proxy: config.AptProxy) -> str:
    """Ask an address through a proxy once; return why the proxy does not let the request through, "" if it does."""
    if not proxy.address.startswith("http://"):
        # None, or of a kind that this module cannot ask.
        return ""
    access = dict.fromkeys(("http_proxy", "https_proxy"), proxy.address)
    why = web.error_of(address, {**access, "certificates": module.params["certificates"]})
    return faults.blocked(why, proxy, urlsplit(address).hostname or "")


def look_at_repositories(
    module: AnsibleModule, driver: driver_first.DriverFirst, parts: Collection[str]
) -> tuple[list[Refusal], list[str]]:
    """Return why packages cannot be fetched, and in check mode repositories of others that cannot be read.

    parts: which parts of this project lack packages. Nothing is asked if none does, and the driver is there.
    """
    params = module.params
    if not (parts or driver.first):
        return [], []
    source = (params["habana_source"] or {}) if "habana" in parts else {}
    repository = source.get("repository", "")
    rhel = params["packages"].get("rhel_repository", "") if "engine" in parts else ""
    of_driver = params["driver_repository"] if driver.first else ""
    debian = engine_packages.family_of(read_text("/etc/os-release")) == DEBIAN
    coming = [repository, of_driver, "" if debian else rhel]
    try:
        refusal = apt.unusable_proxy(module, [address for address in coming if address], params)
        if refusal is not None:
            return [refusal], []
        # A run names them when it reads the lists that it installs from.
        if not (module.check_mode and debian):
            return [], []
        return [], package_look.unread(module, repository, source.get("suite", ""), "container_runtime_habana", params)
    except Refusal as found:
        return [found], []


def look_at_packages(module: AnsibleModule, engine: engine_look.NodeEngine, *, fetches: bool) -> dict[str, list[Any]]:
    """Return why the engine or the packages of this run are refused, and notes on the engine. Nothing is installed."""
    params, given = module.params, module.params["packages"]
    os_release = read_text("/etc/os-release")
    family, manage = engine_packages.family_of(os_release), boolean(given["manage"])
    refusals = engine_look.refusals(module, engine, manage=manage, habana_path=given["habana_path"])
    wanted = wanted_packages(module, engine, fetches=fetches)
    notes = [origin.note(engine.report)] if engine.report["by_others"] and manage else []
    try:
        if family and any(wanted.values()) and not refusals and params["access_valid"]:
            notes += package_look.foresee(
                module,
                family,
                wanted,
                engine_look.brought(),
                lambda: read_indexes(module, family, os_release, wanted),
                params,
            )
    except Refusal as refusal:
        refusals = [refusal]
    problems = [checks.Problem(each.id, str(each)) for each in refusals]
    lacking = [part for part, names in wanted.items() if names]
    return {"engine_problems": problems, "engine_notes": notes, "lacking": lacking}


def read_indexes(
    module: AnsibleModule, family: str, os_release: str, wanted: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return what repositories contain that this run will add, as package_look.private_lists takes it."""
    params, source = module.params, module.params["habana_source"] or {}
    repository = source["repository"] if wanted["habana"] else ""
    if family == RHEL:
        there = {"gaudi-serving-engine": params["packages"]["rhel_repository"], "gaudi-serving-habana": repository}
        return {name: url for name, url in there.items() if url}
    if not repository:
        return {}
    suite = source["suite"] or parse_os_release(os_release).get("VERSION_CODENAME", "")
    # First: it starts programs, and within through() the environment has the proxy's account.
    variables, _proxy = apt.coming(module, repository, params)
    with contextlib.suppress(Refusal), web.through(repository, params):
        return {"habana": index_of(repository, suite, variables)}
    return {}


def has_image(module: AnsibleModule, docker: str, image: str) -> bool:
    """Tell whether the engine already has an image."""
    code, _out, _err = module.run_command([docker, "image", "inspect", "--format", "{{.Id}}", image])
    return bool(code == 0)


def package_versions(module: AnsibleModule) -> dict[str, str]:
    """Query the system's package database for packages whose versions a release names."""
    query = engine_packages.query(engine_packages.family_of(read_text("/etc/os-release")), compatibility.PACKAGES)
    if not query or module.get_bin_path(query[0]) is None:
        return {}
    _code, out, _err = module.run_command(query)
    versions: dict[str, str] = engine_packages.versions(out)
    return versions


def keys_made(instance: str) -> list[str]:
    """Return names of an instance's keys from playbooks/keys.yml; for a damaged file a sentence about it."""
    try:
        held = read_document(Path(paths.INSTANCES) / instance / paths.KEYS_FILE, serving_keys.read) or []
    except Damaged as damage:
        return [str(damage)]
    return [key.name for key in held if key.origin == serving_keys.PLAYBOOK]


def writers_of(folder: Path, refuse: Callable[[Path], None]) -> str:
    """Return why users other than root may write to a folder; "" if they may not."""
    try:
        refuse(folder)
    except (Refusal, OSError) as why:
        return printable(str(why))
    return ""


def linked_directories(written: Iterable[Path]) -> list[tuple[str, str]]:
    """Return directories that are links, or lead into a directory of the system, with where they lead."""
    found = []
    for folder in written:
        real = os.path.realpath(folder)
        if folder.is_symlink() or (real != str(folder) and places.is_of_system(real)):
            found.append((str(folder), printable(real)))
    return found


def look_at_instance(
    params: Mapping[str, Any], engine: judgement.ContainerFacts, plan: Mapping[str, Any], listeners: Sequence[Listener]
) -> judgement.InstanceFacts:
    """Look for what a plan requires beside weights, and for the user of its port."""
    requires, measurements = plan["requires"], plan["requires"].get("measurements")
    written = [Path(mount["source"]) for mount in plan["container"].get("mounts", []) if not mount["read_only"]]
    # A container may change the mode of its own folder, which the role restores.
    writers = [writers_of(folder.parent, beneath.refuse_writers) for folder in written]
    code = look_at_code(params, plan)
    # Users could exchange files after their comparison with the pins, and code that nothing is compared with.
    guarded = [
        *map(Path, code),
        *([Path(measurements["path"])] if measurements else []),
        *map(Path, [*measured_in(plan), *plugins_in(plan)]),
    ]
    weights = Path(requires["weights_path"]) if requires["weights_path"] else None
    if weights is not None and (runs_code(plan) or unpickles(plan)):
        guarded += [
            *weights_folders.of_plan(plan),
            *(Path(file).parent for file in requires.get("files") or [] if Path(file).name in OF_MODELS),
        ]
    writers += [writers_of(folder, beneath.refuse_writers_within) for folder in dict.fromkeys(guarded)]
    user, unknown = None, ""
    try:
        user = port_user(engine, plan, listeners)
    except socket.gaierror as error:
        unknown = str(error.strerror)
    return judgement.InstanceFacts(
        lacking=[path for path in requires.get("files") or [] if not Path(path).is_file()],
        measured=(
            weights_folders.measurement_files(Path(measurements["path"]), len(plan["modules"])) if measurements else 0
        ),
        keys=keys_made(plan["instance"]),
        user=user,
        cut_off=cut_off_users(engine, plan, listeners),
        recipes=folders.recipes_to_be_had(recipe_directory(plan)),
        recipes_on=weights_folders.shared_by_nodes(recipe_directory(plan), read_text("/proc/self/mountinfo")),
        exchangeable=[why for why in writers if why],
        linked=linked_directories(written),
        entered=[str(folder) for folder in written if not is_keyed(str(folder)) and folders.users_may_enter(folder)],
        unknown_host=unknown,
        code=code,
        named=weights_folders.models_named(Path(requires["weights_path"])) if requires["weights_path"] else (),
        repository=weights_folders.repository_of(Path(requires["weights_path"])) if requires["weights_path"] else "",
    )


def look_at_code(params: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """Compare the files of weights that are there with their pins.

    Only for a plan whose server runs code of its weights or reads pickled tensors, or where the site requires pins.
    """
    compared = needs_pins(plan) or inventory.read(params["inventory"])[0].require_pins
    sources = params["source_plans"].get(plan["instance"], []) if compared else []
    return {
        known["folder"]: pinned.not_as_pinned(Path(known["folder"]), known["repositories"], known["written"])
        for known in source_plan.pinned_folders(sources, params["weights_root"])
        if Path(known["folder"]).is_dir()
    }


def port_user(
    engine: judgement.ContainerFacts, plan: Mapping[str, Any], listeners: Sequence[Listener]
) -> dict[str, Any] | None:
    """Return the process that holds a plan's port, or None if the port is free or the instance itself has it.

    Raises socket.gaierror if the node cannot resolve the host that the instance listens on.
    """
    host, port = plan["listen"]["host"], int(plan["listen"]["port"])
    addresses = dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    for address in addresses:
        for listener in checks.blocking_listeners(listeners, address, port):
            user = user_of(engine, next(sockets.holders_of(listener.inode), None))
            if not topology_users.is_own(user, plan["instance"]):
                return user
    return None


def cut_off_users(
    engine: judgement.ContainerFacts, plan: Mapping[str, Any], listeners: Sequence[Listener]
) -> dict[int, dict[str, Any]]:
    """Return, by port, who listens on ports that are closed to other machines while a plan's instance runs."""
    users = {
        listener.port: user_of(engine, next(sockets.holders_of(listener.inode), None))
        for listener in checks.in_closed_ports(plan, listeners)
    }
    # Another instance may give up its cards in this run, and with them its ports.
    return {port: user for port, user in users.items() if user["pid"] and instance_of(user) is None}


def user_of(engine: judgement.ContainerFacts, pid: int | None) -> dict[str, Any]:
    """Describe a process: its name, its unit, its container."""
    user: dict[str, Any] = topology_users.new_user()
    if pid is None:
        return user
    unit, container = topology_users.owner_of(read_text(f"/proc/{pid}/cgroup"), read_text("/proc/1/cgroup"))
    name = engine.names.get(container) if container else None
    comm = printable(read_text(f"/proc/{pid}/comm").strip())
    return {**user, "pid": pid, "name": comm, "unit": unit, "container": container, "container_name": name}


def weights_there(plans: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return paths of the plans' weights that exist on the node with their configuration."""
    asked = {str(path) for plan in plans if plan["requires"]["weights_path"] for path in weights_folders.of_plan(plan)}
    return {path for path in asked if Path(path, "config.json").is_file()}


def look_where_lost(before: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """For weights that plans on the node use and that are missing: the file system that their path is on now."""
    plans = [plan for plan in before.values() if plan.get("requires", {}).get("weights_path")]
    there = weights_there(plans)
    lost = {path for plan in plans for path in weights_folders.of_plan(plan) if str(path) not in there}
    return {str(path): weights_folders.lies_on(path) for path in sorted(lost)}


def look_at_missing(params: Mapping[str, Any]) -> list[judgement.MissingWeights]:
    """Find which weights are missing, and what is at their paths instead; nothing if the run does not fetch weights."""
    if not params["weights_fetch"]:
        return []
    root = Path(params["weights_root"])
    folders.revalidate_directory(root)
    whole = {
        name
        for sources in params["source_plans"].values()
        for source in sources
        for name in source_plan.directories(source)
        if weights_folders.is_whole(root / name, source["fetch"]["measured_cards"])
    }
    found = []
    for source in source_plan.all_missing(params["source_plans"], whole):
        name, convert = judgement.begins_in(source), source["convert"]
        found.append(
            judgement.MissingWeights(
                source,
                begun=weights_folders.bytes_below(root / f"{name}{weights.STAGING_SUFFIX}"),
                made=weights_folders.bytes_below(root / convert["target"]) if convert else 0,
                exists=(root / name).exists(),
                occupied=weights_folders.is_occupied(root / name),
            )
        )
    return found


def python_version(module: AnsibleModule) -> str:
    """Return the version of the downloader's Python, such as 3.11, or its path with the error."""
    path = module.params["weights_python"]
    program = module.get_bin_path(path)
    if program is None:
        return f"{path}, which is not on the node"
    asked = [program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    code, out, _err = module.run_command(asked)
    return str(out.strip()) if code == 0 else f"{path}, which ends with status {code}"


def read_cards(module: AnsibleModule) -> dict[str, Any]:
    """Read the current cards, with findings."""
    topology: dict[str, Any] = read_topology(module)
    topology["findings"] += read_holders()[1]
    return topology


def look_at_recipes(module: AnsibleModule, before: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return keys of compiled recipes that the node has, and those that it lacks for starts of this run.

    An instance that runs with its recipes at their place has compiled its own, or will.
    """
    if not module.params["carry_recipes"]:
        return {"has": {}, "lacks": {}}
    has = folders.keys_with_recipes(Path(paths.RECIPES))
    lacks: dict[str, str] = {}
    for plan in judgement.servable(module.params["plans"]):
        folder = recipe_directory(plan)
        key = key_of(folder)
        if key and key not in {**has, **lacks}:
            same = recipe_directory(before.get(plan["instance"], {})) == folder
            if not (same and instances.is_up(module, plan["instance"])):
                lacks[key] = plan["instance"]
    return {"has": has, "lacks": lacks}


def look_at_sources(params: Mapping[str, Any], *, driver_first: bool) -> tuple[list[Refusal], list[str]]:
    """Return why the node's own source for a repository of this run could not be used, and repositories without one.

    driver_first: whether the driver is to be installed, so that its repository is needed.
    """
    of_driver = {**params["driver"], "repository": params["driver_repository"]} if driver_first else {}
    of_runtime = params["habana_source"] if boolean(params["packages"].get("manage", True)) else {}
    refusals, coming = [], []
    for source in (of_driver, of_runtime or {}):
        if repository := source.get("repository"):
            try:
                if not apt.existing_source(repository, source.get("suite", ""), source.get("fingerprint", "")):
                    coming.append(repository)
            except Refusal as refusal:
                refusals.append(refusal)
    return refusals, coming


def look_at_driver(
    module: AnsibleModule, seen: judgement.PreflightFacts, mismatches: Sequence[compatibility.Mismatch]
) -> driver_first.DriverFirst:
    """Say what the driver of a node needs, if the role gaudi_driver follows and may have something to do."""
    params, foreseen = module.params, bool(seen.topology.get("foreseen"))
    options, lacks_runtime = params["driver"], bool(judgement.runtime_problems(params, seen))
    kernel = bool(options) and kernel_is_due(options.get("kernel", ""), reboots=options.get("reboots", False))
    if not options or not driver_first.may_be_due(foreseen, options["replace"], mismatches, lacks_runtime, kernel):
        return driver_first.DriverFirst()
    given = {**options, "software": params["software"], "repository": params["driver_repository"]}
    given.update({name: params[name] for name in ("http_proxy", "https_proxy", "no_proxy", "certificates")})
    try:
        look = Look(
            module,
            {**given, "offered": params["access_valid"], "hold_kernel": False},
            read_sources(module, links=False),
        )
        decided, (not_offered, kernel_packages) = look.judgement(), look.offers()
    except Refusal as refusal:
        refused: driver_first.DriverFirst = driver_first.refused([refusal], foreseen=foreseen)
        return refused
    unbootable, reported = look.boot(decided)
    refusals = [*look.kernel_refusals(), *decided.refusals, *unbootable, *not_offered]
    stopped = look.found.instances if decided.replaces else ()
    told: driver_first.DriverFirst = driver_first.told(
        look.wanted.version,
        decided.steps.as_dict(),
        refusals,
        kernel_packages,
        stopped,
        foreseen=foreseen,
        replace=options["replace"],
        kernel=look.kernel_sentence() if kernel else "",
    )
    # Packages, images and weights may share a file system.
    told = replace(told, rooms=tuple(look.rooms), findings=(*told.findings, *reported)) if told.first else told
    # The reboot into another kernel stops all instances.
    booted = kernel and told.first and options.get("reboots", False)
    return replace(told, stops=look.found.instances) if booted else told


def look_at_acceptance(module: AnsibleModule, expected_cards: int | None) -> list[verdict.Permission]:
    """Return plans that a valid verdict keeps from starting, as the role fabric_check would decide; changes nothing.

    If the verdict lets all of them start, nothing more is read. Decisions that need a measurement are left to that
    role.
    """
    params = module.params
    plans = judgement.servable(params["plans"])
    before, _damage = links.last_verdict()
    given = {**params["fabric"], "card_types": params["card_types"], "expected_cards": expected_cards, "plans": plans}
    if not params["fabric"] or before is None or not asked.may_refuse(before, plans, links.policy(given)):
        return []
    given["image"] = asked.measuring_image(plans)
    try:
        node = links.look(module, given, build=False)
        judged = asked.foreseen(links.work(node, given), plans, node.others, settled=True)
    except Refusal:
        return []
    answers = links.answers(module, node, before, given, judged)
    return [answer for answer in answers if not answer.allowed]


def main() -> None:
    """Read the node, judge it, return every problem."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        levels = compatibility.Levels.from_document(module.params["levels"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    seen = look(module)
    driver = look_at_driver(module, seen, judgement.mismatches(module.params, seen, levels))
    refusals, coming = look_at_sources(module.params, driver_first=driver.first)
    unreached = apt.unreached_by_owner(module, coming, module.params) if module.params["access_valid"] else []
    kept_away, said = look_outside(module, driver, seen)
    driver = driver_first.with_sources(driver, [*refusals, *kept_away], [*unreached, *said])
    driver = driver_first.with_reboot(driver, next_boot.read(module).loses_driver, reboots=module.params["reboots"])
    if not driver.first:
        cards = inventory.read(module.params["inventory"])[0].expected_cards
        seen = replace(seen, held_back=look_at_acceptance(module, cards))
    judged = judgement.judge(module.params, seen, levels, driver)
    recipes = look_at_recipes(module, seen.before)
    reported = module.params["reported"]
    judged["findings"] = [sentence for sentence in judged["findings"] if sentence not in reported]
    reported = [*reported, *judged["findings"]]
    module.exit_json(changed=False, topology=seen.topology, recipes=recipes, reported=reported, **judged)


if __name__ == "__main__":
    main()
