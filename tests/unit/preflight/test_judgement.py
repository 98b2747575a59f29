"""What the readings of a node come to, without a node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible.module_utils.gaudi.preflight import checks, compatibility, judgement
from ansible.module_utils.gaudi.preflight.checks import Problem, Room
from ansible.module_utils.gaudi.preflight.driver_first import DriverFirst
from ansible.module_utils.gaudi.preflight.judgement import Coming, Engine, Instance, Seen, Space
from ansible.module_utils.gaudi.weights import source_plan

from tests.unit.preflight.test_modules import LEVELS, preflight

NO_DRIVER_COMES = DriverFirst()
ROOM = Space("/data", 10)
NODE = Seen(
    topology={"cards": [{"module_id": 0}] * 8, "findings": []},
    clock=0.0,
    os_release="ID=debian\nVERSION_ID=12\n",
    instances={"one": Instance()},
    weights={"/data/models/m": ""},
    engine=Engine(images=frozenset({"image"})),
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
    seen: Seen = NODE, plan: dict[str, Any] = PLAN, driver: DriverFirst = NO_DRIVER_COMES, **changes: Any
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
        ({"os_release": "ID=arch\n"}, "system_unknown"),
        ({"weights": {}, "space": {"/data/models/m": Space("/data", 5)}}, "weights"),
        ({"engine": Engine(), "space": {"/var/lib/docker": ROOM}}, "disk"),
        ({"engine_problems": [Problem("daemon_json", "x")]}, "daemon_json"),
        ({"instances": {"one": Instance(keys=["bob"])}}, "keys"),
        ({"instances": {"one": Instance(lacking=["/x"])}}, "files"),
        ({"instances": {"one": Instance(unknown_host="no such name")}}, "host"),
        ({"engine": Engine(images=frozenset({"image"}), renamed={"one": "other"})}, "container"),
    ],
)
def test_each_reading_that_is_wrong_is_one_problem(changes: dict[str, Any], problem: str) -> None:
    assert ids(judge(replace(NODE, **changes), image_bytes=11)) == [problem]


@pytest.mark.parametrize("path", ["/usr/local/bin:/usr/bin:/bin", ""])
def test_a_path_without_sbin_is_refused_where_something_is_installed(path: str) -> None:
    node = replace(NODE, path=path)
    assert ids(judge(node)) == []
    assert ids(judge(node, driver=DriverFirst(first=True))) == ["path_without_sbin"]
    (problem,) = judge(replace(node, engine=Engine(silent="no engine", images=frozenset({"image"}))))["problems"]
    assert "secure_path" in problem["message"]
    assert ids(judge(replace(node, path=f"{path}:/sbin"), driver=DriverFirst(first=True))) == []


def test_what_is_read_of_space_is_what_is_judged() -> None:
    asked = {**DEFAULTS, "plans": [PLAN], "weights_reserve": 1}
    coming = Coming({"fetch": FETCH, "convert": None, "instance": "one"}, 10, 0, exists=False, occupied=False)
    seen = replace(NODE, weights={}, engine=Engine(), coming=[coming], python="3.11")
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
    seen = replace(NODE, engine=Engine(), space={"/var/lib/docker": Space("/", 20)})
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
