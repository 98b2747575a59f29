"""What a node's verdict refuses is refused before anything is changed, with the words of the role fabric_check."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.driver.next_boot import NextBoot
from ansible.module_utils.gaudi.node import containers, folders
from ansible.module_utils.gaudi.node.driver import next_boot
from ansible.module_utils.gaudi.preflight import judgement

from library import gaudi_preflight
from tests.unit.host.modules import run_main
from tests.unit.library.test_fabric_check import CARD_TYPES, IMAGE, OTHER, FabricNode, check, full, node, plan
from tests.unit.preflight.test_modules import LEVELS, site
from tests.unit.preflight.test_templates import ROLES, evaluate, results, task_of

__all__ = ["node"]

HOW: dict[str, Any] = {
    "demo": {},
    "proxies": {},
    "tests": [],
    "ranks": 0,
    "host_nics": False,
    "provider": "verbs",
    "external": False,
    "external_mtu": 0,
    "external_speed": 0,
    "burn_in": [],
    "compute": True,
    "compute_mib": 0,
    "again": False,
    "drain": False,
    "required": True,
    "override": "",
}
USER = {"pid": 1, "name": "python3", "unit": None, "container": None, "container_name": None}


@pytest.fixture(autouse=True)
def bare(node: FabricNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the machine that runs the tests nothing is looked at."""
    monkeypatch.setattr(gaudi_preflight, "read_text", lambda _path: "")
    monkeypatch.setattr(next_boot, "read", lambda _module: NextBoot("", "", ""))
    monkeypatch.setattr(gaudi_preflight, "look_at_instance", lambda *_: judgement.InstanceFacts())
    monkeypatch.setattr(gaudi_preflight, "read_containers", lambda *_: ({}, {}))
    monkeypatch.setattr(folders, "space_at", lambda path: (str(path), 1 << 60))
    assert node.folder.is_dir()


def served(*modules: int, instance: str = "one", image: str = IMAGE) -> dict[str, Any]:
    made = plan(*modules, instance=instance, image=image)
    return {
        **made,
        "requires": {**made["requires"], "weights_path": "/data/models/x", "weights_bytes": 1},
        "listen": {"host": "127.0.0.1", "port": 30001},
        "container": {"name": f"vllm-{instance}"},
        "model": "x",
    }


def refused(node: FabricNode, *plans: dict[str, Any], follows: bool = True, **how: Any) -> list[str]:
    """What the preflight says of the verdict."""
    arguments = {
        "host": "n",
        "release": "1.22",
        "levels": LEVELS,
        "known_releases": ["1.22"],
        "inventory": site(gaudi_expected_cards=len(node.modules)),
        "topology": node.topology(),
        "controller_time": time.time(),
        "plans": list(plans),
        "card_types": CARD_TYPES,
        "fabric": {**HOW, **how} if follows else {},
    }
    answer = run_main("library.gaudi_preflight", arguments)
    return [each["message"] for each in answer["problems"] if each["id"].startswith("fabric_")]


def test_a_failed_verdict_refuses_with_the_words_of_the_role_before_anything_is_fetched(node: FabricNode) -> None:
    node.bandwidth = lambda modules: full(modules) * (0.5 if 5 in modules else 1)
    four = served(4, 5, 6, 7)
    said = check(plans=[four])["held_back"]
    assert "odule 5" in said[0]
    node.commands.clear()
    assert refused(node, four) == said
    assert node.measured() == []
    assert refused(node, four, follows=False) == []
    assert refused(node, served(5)) == [], "one card asks for the static checks only"


@pytest.mark.parametrize("how", [{"override": "the window is on Sunday"}, {"required": False}, {"again": True}])
def test_who_lets_it_through_or_measures_again_is_not_refused(node: FabricNode, how: dict[str, Any]) -> None:
    node.bandwidth = lambda modules: full(modules) * (0.5 if 5 in modules else 1)
    check()
    assert refused(node, served(4, 5, 6, 7))
    assert refused(node, served(4, 5, 6, 7), **how) == []


def test_the_role_says_how_is_measured_as_the_role_that_measures_is_told() -> None:
    """By the options of that role, with the commit of hccl_demo that the site pins before the release's."""
    defaults = yaml.safe_load((ROLES / "fabric_check/defaults/main.yml").read_text(encoding="utf-8"))
    options = {**defaults, "serving_image_pins": {"hccl_demo": {"commit": "new"}}}
    options |= {f"serving_image_{name}": "" for name in ("ref", "build", "name", "base", "way", "lock")}
    options |= {"serving_image_parts": [], "serving_image_constraints": [], "fabric_check_external_mtu": "9000"}
    release = {"pins": {"hccl_demo": {"repository": "r", "commit": "old"}}}
    for serving, demo in (({"release": release}, {"repository": "r", "commit": "new"}), ({}, {"commit": "new"})):
        known = results("preflight", role_options={"options": {**options, "preflight_fabric": True}})
        measured = task_of("preflight", "read", "gaudi_preflight")["gaudi_preflight"]["fabric"]
        told = evaluate("preflight", measured, **{**known, "preflight_serving": serving})
        assert told == {**HOW, "demo": demo, "external_mtu": 9000}


def test_a_card_that_computes_wrongly_is_refused_until_a_reboot_has_it_checked_again(node: FabricNode) -> None:
    """As of an IOMMU that is set right: nothing is known before the role has checked."""
    node.computes, node.wrong = True, [5]
    said = check(plans=[served(5)], compute=True, compute_program="print()")["held_back"]
    assert "Module 5 computes wrong numbers" in said[0]
    assert refused(node, served(5)) == said
    assert refused(node, served(4)) == []
    node.boot = "boot-2"
    assert refused(node, served(5)) == []
    node.users = {5: [USER]}
    assert refused(node, served(5)) == said
    assert len(node.computed) == 1


def test_a_running_instance_goes_on(node: FabricNode) -> None:
    node.bandwidth = lambda modules: full(modules) * (0.5 if 5 in modules else 1)
    check()
    node.active = "active"
    assert refused(node, served(4, 5, 6, 7)) == []


def test_what_is_missing_damaged_or_stale_is_work_to_come(node: FabricNode) -> None:
    four = served(4, 5, 6, 7)
    assert refused(node, four) == []
    (node.folder / "acceptance.json").write_text("{")
    assert refused(node, four) == []
    node.bandwidth = lambda modules: full(modules) * (0.5 if 5 in modules else 1)
    check()
    assert refused(node, four)
    node.driver = "1.23.0-2eae87a"
    assert refused(node, four) == []
    node.users = {0: [USER]}
    assert refused(node, four) == [], "the cards may be free by then"
    assert check(plans=[four])["held_back"]


@pytest.mark.parametrize("changes", [{"image": False}, {"others": {OTHER: "sha256:9"}}])
def test_an_image_that_is_to_come_or_another_one_makes_it_stale(node: FabricNode, changes: dict[str, Any]) -> None:
    node.bandwidth = lambda modules: full(modules) * (0.5 if 5 in modules else 1)
    check()
    for name, value in changes.items():
        setattr(node, name, value)
    assert refused(node, served(4, 5, 6, 7, image=OTHER if "others" in changes else IMAGE)) == []


def test_a_fault_that_is_still_there_is_refused_and_one_that_is_gone_is_not(node: FabricNode) -> None:
    node.down = [(5, 9)]
    said = check(plans=[served(4, 5)])["held_back"]
    node.image = False
    assert refused(node, served(4, 5)) == said, "no image is needed to know that"
    node.down = []
    assert refused(node, served(4, 5)) == []


def test_cards_across_groups_are_refused_where_the_groups_were_measured(node: FabricNode) -> None:
    node.name, node.tells_ports = "HL-338", False
    said = check(plans=[served(2, 5)])["held_back"]
    assert refused(node, served(2, 5)) == said
    assert "several groups" in said[0]


def test_an_image_that_nobody_can_look_into_is_left_to_the_role(
    node: FabricNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.bandwidth = lambda modules: full(modules) * (0.5 if 5 in modules else 1)
    check()
    monkeypatch.setattr(containers, "run_limited", lambda *_: (1, "", "no runtime"))
    assert refused(node, served(4, 5, 6, 7)) == []
