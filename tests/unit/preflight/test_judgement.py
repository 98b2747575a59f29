"""What the readings of a node come to, without a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.base.places import Room
from ansible.module_utils.gaudi.host.iommu import IommuGroup
from ansible.module_utils.gaudi.preflight import checks, compatibility, judgement
from ansible.module_utils.gaudi.preflight.checks import Problem
from ansible.module_utils.gaudi.preflight.driver_first import DriverFirst
from ansible.module_utils.gaudi.preflight.judgement import (
    ContainerFacts,
    InstanceFacts,
    MissingWeights,
    PreflightFacts,
    Space,
)
from ansible.module_utils.gaudi.weights import source_plan

from tests.unit.preflight.test_modules import LEVELS, preflight

ROOT = Path(__file__).resolve().parents[3]
NO_DRIVER_COMES = DriverFirst()
ROOM = Space("/data", 10)
NODE = PreflightFacts(
    topology={"cards": [{"module_id": 0}] * 8, "findings": []},
    clock=0.0,
    os_release="ID=debian\nVERSION_ID=12\n",
    instances={"one": InstanceFacts()},
    weights={"/data/models/m": ""},
    engine=ContainerFacts(images=frozenset({"image"})),
)
PLAN: dict[str, Any] = {
    "instance": "one",
    "model": "m",
    "image": "image",
    "modules": [{"module_id": 0}],
    "listen": {"host": "127.0.0.1", "port": 30001},
    "guarded": False,
    "requires": {"weights_path": "/data/models/m", "weights_bytes": 5},
    "container": {"mounts": []},
}
FETCH = {"directory": "m", "repositories": {"huggingface": {"repository": "o/m"}}, "bytes": 30, "measured_cards": 0}


def judge(
    seen: PreflightFacts = NODE, plan: dict[str, Any] = PLAN, driver: DriverFirst = NO_DRIVER_COMES, **changes: Any
) -> dict[str, Any]:
    asked = {**DEFAULTS, **preflight(plans=[plan], controller_time=0.0), "reserved": {}, **changes}
    return judgement.judge(asked, seen, compatibility.Levels.from_document(LEVELS), driver)


DEFAULTS: dict[str, Any] = {
    "found": {},
    "habana_path": "",
    "host_nics": False,
    "how_to_get": {},
    "image_built": False,
    "image_bytes": 0,
    "image_digest": "",
    "kernel_rules": [],
    "tunes": False,
    "reboots": False,
    "software": {},
    "allow_mismatch": [],
    "card_types": {"cards": {}},
    "source_plans": {},
    "weights_root": "/data/models",
    "weights_kinds": ["huggingface"],
    "weights_sources": 1,
    "weights_reserve": 0,
    "clock_tolerance": 60.0,
    "daemon_json": "/etc/docker/daemon.json",
}


def ids(judged: dict[str, Any]) -> list[str]:
    return [problem["id"] for problem in judged["problems"]]


def test_a_node_that_has_everything_has_no_problem() -> None:
    judged = judge()
    assert (judged["problems"], judged["report"], judged["missing_weights"]) == ([], "", [])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"clock": 1e6}, "clock"),
        ({"os_release": "ID=arch\n"}, "system-unknown"),
        ({"weights": {}, "space": {"/data/models/m": Space("/data", 5)}}, "weights"),
        ({"engine": ContainerFacts(), "space": {"/var/lib/docker": ROOM}}, "disk"),
        ({"engine_problems": [Problem("daemon_json", "x")]}, "daemon_json"),
        ({"instances": {"one": InstanceFacts(keys=["bob"])}}, "keys"),
        ({"instances": {"one": InstanceFacts(lacking=["/x"])}}, "files"),
        ({"instances": {"one": InstanceFacts(unknown_host="no such name")}}, "host"),
        ({"engine": ContainerFacts(images=frozenset({"image"}), renamed={"one": "other"})}, "container"),
    ],
)
def test_each_reading_that_is_wrong_is_one_problem(changes: dict[str, Any], problem: str) -> None:
    assert ids(judge(replace(NODE, **changes), image_bytes=11)) == [problem]


def test_a_hubs_id_does_not_serve_another_repository_of_the_same_name() -> None:
    asked: dict[str, Any] = {"source_plans": {"one": [{"fetch": FETCH, "convert": None}]}}
    by_id = {**PLAN, "model": None}
    of_others = replace(NODE, instances={"one": InstanceFacts(repository="evil/m")})
    judged = judge(of_others, by_id, **asked)
    assert ids(judged) == ["weights_of_another"]
    assert "was fetched from evil/m" in judged["report"]
    assert ids(judge(replace(NODE, instances={"one": InstanceFacts(repository="o/m")}), by_id, **asked)) == []
    # A path says itself what is served.
    assert ids(judge(of_others, by_id)) == []
    # A folder that somebody brought there by hand.
    unknown = judge(NODE, by_id, **asked)
    assert ids(unknown) == ["weights_of_another"]
    assert "no record" in unknown["report"]
    assert ids(judge(NODE, by_id)) == []


@pytest.mark.parametrize("path", ["/usr/local/bin:/usr/bin:/bin", ""])
def test_a_path_without_sbin_is_refused_where_something_is_installed(path: str) -> None:
    node = replace(NODE, path=path)
    assert ids(judge(node)) == []
    assert ids(judge(node, driver=DriverFirst(first=True))) == ["path_without_sbin"]
    (problem,) = judge(replace(node, engine=ContainerFacts(silent="no engine", images=frozenset({"image"}))))[
        "problems"
    ]
    assert "secure_path" in problem["message"]
    assert ids(judge(replace(node, path=f"{path}:/sbin"), driver=DriverFirst(first=True))) == []


def test_an_engine_that_is_refused_is_not_also_told_to_be_installed_by_this_project() -> None:
    silent = replace(NODE, engine=ContainerFacts(silent="docker ps failed", images=frozenset({"image"})))
    refused = replace(silent, engine_problems=[Problem("engine_does_not_start", "docker.service has failed.")])
    told = [[line for line in judge(node)["findings"] if "docker ps failed" in line] for node in (silent, refused)]
    assert [len(lines) for lines in told] == [1, 0]


RULES = yaml.safe_load((ROOT / "catalog/host.yml").read_text(encoding="utf-8"))["kernel_arguments"]
TRANSLATED = IommuGroup("0000:33:00.0", "40", "DMA-FQ", 3, "habanalabs")
PASSED = IommuGroup("0000:34:00.0", "41", "identity", 1, "habanalabs")


def of_1_24(groups: Sequence[IommuGroup], cmdline: str = "ro quiet", **changes: Any) -> dict[str, Any]:
    """A Debian node with the release whose driver needs passthrough."""
    node = replace(NODE, kernel="6.1.0-53-amd64", groups=groups, cmdline=cmdline)
    return judge(node, kernel_rules=RULES, **{"release": "1.24.1", **changes})


def test_one_card_behind_an_iommu_that_translates_is_refused_from_1_24_on() -> None:
    judged = of_1_24([PASSED, TRANSLATED])
    assert ids(judged) == ["iommu"]
    (problem,) = judged["problems"]
    assert "found iommu_group/type DMA-FQ of 0000:33:00.0 (module 3), wanted identity" in problem["message"]
    assert "playbooks/tune_host.yml with host_tuning_reboot=if_needed" in problem["message"]
    assert ids(of_1_24([PASSED, IommuGroup("0000:35:00.0")])) == []
    assert ids(of_1_24([TRANSLATED], release="1.23")) == []
    # What the release's file says counts, whatever the release is called here.
    assert ids(of_1_24([TRANSLATED], release="ours", software={"release": "1.24.0"})) == ["iommu"]
    # What is said of intel_iommu on processors of AMD is no reason for a reboot.
    amd = judge(
        replace(NODE, groups=[TRANSLATED], cpuinfo="vendor_id : AuthenticAMD"), kernel_rules=RULES, release="1.24.1"
    )
    assert "wrong answers with no error" in amd["problems"][0]["message"]
    # Nothing is served yet; the fault is the node's.
    assert ids(of_1_24([TRANSLATED], plans=[])) == ["iommu"]


def test_the_argument_alone_settles_nothing() -> None:
    """The kernel decides; the remedy then is another one."""
    judged = of_1_24([TRANSLATED], "ro intel_iommu=on iommu=pt")
    assert ids(judged) == ["iommu"]
    assert "still translates" in judged["problems"][0]["message"]
    # And without it nothing is wrong where the kernel passes through by itself.
    assert ids(of_1_24([PASSED], "ro")) == []


def test_a_site_may_allow_it() -> None:
    judged = of_1_24([TRANSLATED], allow_mismatch=["iommu"])
    assert ids(judged) == []
    assert judged["let_through"] == [
        "iommu: found iommu_group/type DMA-FQ of 0000:33:00.0 (module 3), wanted identity, or no IOMMU"
    ]


def test_a_newer_driver_counts_where_it_stays() -> None:
    topology = {**NODE.topology, "driver_version": "1.24.1-b336d5e"}
    seen = replace(NODE, groups=[TRANSLATED], topology=topology)
    asked: dict[str, Any] = {"kernel_rules": RULES, "release": "1.23", "software": {"release": "1.23.0"}}
    assert ids(judge(seen, **asked)) == []
    assert ids(judge(seen, **asked, allow_mismatch=["driver"])) == ["iommu"]


@pytest.mark.parametrize(
    ("stops", "reboots", "refused"), [((), False, False), (("chat",), False, True), (("chat",), True, False)]
)
def test_where_host_tuning_follows_only_what_it_cannot_repair_is_refused(
    stops: tuple[str, ...], reboots: bool, refused: bool
) -> None:
    """Instances that are stopped for a driver would not come back before somebody reboots the node."""
    asked: dict[str, Any] = {"tunes": True, "reboots": reboots, "driver": DriverFirst(first=True, stops=stops)}
    assert ids(of_1_24([TRANSLATED], **asked)) == (["iommu"] if refused else [])
    # The rule of earlier releases is left to the role.
    ubuntu = replace(NODE, os_release="ID=ubuntu\nVERSION_ID=22.04\n", kernel="6.8.0-45-generic")
    assert ids(judge(ubuntu, kernel_rules=RULES, release="1.23", **asked)) == []


def test_what_is_read_of_space_is_what_is_judged() -> None:
    asked = {**DEFAULTS, "plans": [PLAN], "weights_reserve": 1}
    coming = MissingWeights({"fetch": FETCH, "convert": None, "instance": "one"}, 10, 0, exists=False, occupied=False)
    seen = replace(NODE, weights={}, engine=ContainerFacts(), coming=[coming], python="3.11")
    assert judgement.places(asked, seen) == {"/var/lib/docker", "/data/models/m", "/data/models"}
    # A configuration that cannot be read does not tell where images are; that is a problem of its own.
    assert judgement.places(asked, replace(seen, data_root="")) == {"/data/models/m", "/data/models"}
    space = dict.fromkeys(judgement.places(asked, seen), Space("/", 20))
    (problem,) = judge(replace(seen, space=space), weights_reserve=1)["problems"]
    # 30 bytes less the 10 that are there, and the reserve. The plan's own weights are those that come.
    assert problem["message"].startswith("20 bytes are free on /, but ")
    assert "20 bytes for the weights in m (/data/models/m)" in problem["message"]


def test_whatever_a_run_reads_or_brings_has_its_folder_looked_at() -> None:
    """Of a plan that is refused nothing is known; it may be because its weights' file system is away."""
    mounts = [{"source": "/data/recipes/one", "read_only": False}, {"source": "/data/models/m", "read_only": True}]
    elsewhere = {"weights_path": "/mnt/m", "weights_beside": ["/data/models/n"], "disk_bytes": 1}
    other = {**PLAN, "instance": "two", "requires": elsewhere, "container": {"mounts": mounts}}
    always = {"/var/lib/gaudi-serving": "what is known of instances and jobs", "/var/lib/docker": "images"}
    weights = {"/data/models": "weights"}
    asked = {**DEFAULTS, "plans": [PLAN, other]}
    more = {"/mnt/m": "weights of two", "/data/recipes/one": "recipes of two"}
    assert judgement.kept_in(asked, NODE) == {**always, **weights, **more}
    assert judgement.kept_in({**DEFAULTS, "plans": [{"refused": "one: no"}]}, NODE) == {**always, **weights}
    assert judgement.kept_in({**DEFAULTS, "plans": []}, NODE) == always
    moved = replace(NODE, data_root="/data/docker")
    assert "/data/docker" in judgement.kept_in({**DEFAULTS, "plans": []}, moved)
    assert "images" not in judgement.kept_in({**DEFAULTS, "plans": []}, replace(NODE, data_root="")).values()


def test_an_instance_that_nothing_is_planned_for_and_that_has_lost_its_weights_is_a_finding() -> None:
    """A mount hides them, and it serves on until it starts again."""
    left = {"requires": {"weights_path": "/data/models/m"}}
    seen = replace(NODE, before={"one": left, "left": left, "old": {}}, lost={"/data/models/m": "the file system x"})
    (said,) = (line for line in judge(seen)["findings"] if "not at" in line)
    assert said.startswith("left: its weights are not at /data/models/m (no config.json there), and it could not start")
    assert "the path is on the file system x. " in said


def test_the_driver_s_packages_and_an_image_are_added_up() -> None:
    seen = replace(NODE, engine=ContainerFacts(), space={"/var/lib/docker": Space("/", 20)})
    driver = DriverFirst(rooms=(Room("the driver's packages", "/var/cache/apt/archives", "/", 12, 20),))
    (problem,) = judge(seen, driver=driver, image_bytes=9)["problems"]
    assert problem["message"].startswith("20 bytes are free on /, but 12 bytes for the driver's packages")


def test_one_folder_that_two_instances_need_is_brought_once() -> None:
    source = {"fetch": FETCH, "convert": None}
    wanted = {"one": [source], "two": [source]}
    assert [found["instance"] for found in source_plan.all_missing(wanted, set())] == ["one"]
    assert source_plan.all_missing(wanted, {"m"}) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, True),
        ({"listen": {"host": "127.0.0.1"}}, False),
        ({"listen": {"host": "localhost"}}, False),
        ({"ask": {}}, False),
        ({"arguments": ["--allowed-media-domains", "pictures.example.org"]}, False),
        ({"arguments": ["--allowed-media-domains=pictures.example.org"]}, False),
    ],
)
def test_a_multimodal_server_that_fetches_any_address_for_other_machines_is_a_finding(
    changes: dict[str, Any], said: bool
) -> None:
    plan = {**PLAN, "ask": {"media": {"image": 1}}, "arguments": ["--port", "8000"], **changes}
    plan["listen"] = {**PLAN.get("listen", {}), "host": "0.0.0.0", **changes.get("listen", {})}
    findings = [finding for finding in checks.media_findings(plan) if "--allowed-media-domains" in finding]
    assert bool(findings) is said
    assert [finding for finding in judge(NODE, plan)["findings"] if finding in findings] == findings
