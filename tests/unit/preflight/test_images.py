"""What a node must have for the images that its plans run in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.preflight.images import check_processor
from ansible.template import trust_as_template

from filter_plugins.image_recipes import hosts_in, image_recipes, image_refusals
from tests.unit.image.made import document, made
from tests.unit.preflight.test_templates import evaluate, results, task_of

ROOT = Path(__file__).resolve().parents[3]
WITH, WITHOUT = "processor\t: 0\nflags\t\t: fpu avx avx2 bmi1\n", "processor\t: 0\nflags\t\t: fpu avx\n"


def plan(instance: str, *parts: str) -> dict[str, Any]:
    return {"instance": instance, "requires": {"image": list(parts)}}


def test_pictures_on_a_processor_without_avx2_are_refused() -> None:
    plans = [plan("pictures", "numactl", "pillow_simd"), plan("text", "numactl")]
    (problem,) = check_processor(plans, WITHOUT)
    assert problem.id == "processor"
    assert problem.message.startswith("pictures: the image has Pillow-SIMD")
    assert check_processor(plans, WITH) == []
    assert check_processor(plans[1:], WITHOUT) == []


def test_a_processor_that_lists_no_flags_is_not_judged() -> None:
    assert check_processor([plan("pictures", "pillow_simd")], "CPU part : 0xd0c\n") == []


def test_plans_with_the_same_needs_share_an_image() -> None:
    plans = [plan("one", "numactl"), plan("two", "numactl"), plan("three", "numactl", "audio"), {"refused": "no"}]
    recipes = image_recipes(plans, document(), {"name": "x/vllm"}, "mirror.example.com")
    assert [recipe["reference"] for recipe in recipes] == [
        f"x/vllm:{made(needs=needs).tag}" for needs in (("numactl",), ("numactl", "audio"))
    ]
    assert {recipe["base"] for recipe in recipes} == {made(registry="mirror.example.com").base_reference}


def recipes_of(**given: Any) -> Any:
    """What the role builds on a node."""
    return evaluate("serving_image", task_of("serving_image", "build", "node_job")["loop"], **given)


def looked(**found: Any) -> dict[str, Any]:
    """What was found of an image before anything is pulled or built."""
    return {task_of("serving_image", "look", "serving_image")["register"]: {"results": [found]}}


@pytest.mark.parametrize(
    ("site", "registry"),
    [({"gaudi_image_registry": "mirror.example.com"}, "mirror.example.com"), ({}, "vault.habana.ai")],
)
def test_the_base_is_not_asked_of_the_registry_that_credentials_are_for(site: dict[str, str], registry: str) -> None:
    """That may be another one, which built images are pushed to."""
    given: dict[str, Any] = {
        **site,
        "inventory_hostname": "one",
        "serving_image_build": True,
        "serving_image_registry": "pushed.example.com",
        "serving_image_release": document(),
        "ansible_play_hosts": ["one"],
        **looked(item=made().reference, pulled=True, current=False),
    }
    (recipe,) = recipes_of(**given)
    assert recipe["base"] == made(registry=registry).base_reference


@pytest.mark.parametrize(("push", "pulled", "built"), [(False, True, 1), (False, False, 0), (True, False, 1)])
def test_an_image_that_is_there_is_looked_into_and_not_built(push: bool, pulled: bool, built: int) -> None:
    """One that was loaded from a file: nobody looked into it yet. Where images are pushed, the registry may lack it."""
    reference = f"registry.example.com/gaudi/vllm:{made().tag}"
    given = {
        "serving_image_plans": [],
        "serving_image_release": document(),
        "serving_image_build": True,
        "serving_image_push": push,
        "serving_image_name": "registry.example.com/gaudi/vllm",
        "ansible_play_hosts": ["one"],
        "inventory_hostname": "one",
        **looked(item=reference, pulled=pulled, current=False),
    }
    assert len(recipes_of(**given)) == built


@pytest.mark.parametrize(
    ("host", "build", "refused"), [("", True, False), ("one", True, False), ("w9", False, False), ("w9", True, True)]
)
def test_a_build_host_that_there_is_not_is_refused(host: str, build: bool, refused: bool) -> None:
    given = {
        "serving_image_build": build,
        "serving_image_build_host": host,
        "groups": {"all": ["one", "two"]},
        "inventory_hostname": "two",
    }
    check = task_of("serving_image", "get", "Refuse a build host")["ansible.builtin.assert"]
    said = evaluate("serving_image", check["fail_msg"], **given)
    assert said.startswith("serving_image_build_host is w9, which is no host of the inventory") is refused
    assert evaluate("serving_image", f"{{{{ {check['that']} }}}}", **given) is not refused


@pytest.mark.parametrize(("check", "said"), [(True, "would be removed"), (False, "removed")])
def test_a_check_says_of_no_image_that_it_is_gone(check: bool, said: str) -> None:
    given = {
        **results("serving_image", serving_image_prune={"removed": ["a:1"], "stays": []}),
        "ansible_check_mode": check,
        "inventory_hostname": "one",
    }
    (line,) = evaluate("serving_image", task_of("serving_image", "tidy", "debug")["loop"], **given)
    assert line == f"a:1 was built here and nothing needs it: {said}."


@pytest.mark.parametrize(
    ("check", "absent", "said"),
    [
        (True, ["a:1"], ["a:1 would be on one.", "b:2 is on one."]),
        (True, None, ["a:1 is on one.", "b:2 is on one."]),
        (False, ["a:1"], ["a:1 is on one.", "b:2 is on one."]),
    ],
)
def test_a_check_says_of_an_image_that_is_there_that_it_is(
    check: bool, absent: list[str] | None, said: list[str]
) -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/build_image.yml").read_text(encoding="utf-8"))
    (task,) = [task for task in play["tasks"] if task["name"] == "Say which images are there"]
    given = {
        "build_recipes": [{"reference": "a:1"}, {"reference": "b:2"}],
        "build_absent": trust_as_template(play["vars"]["build_absent"]),
        "ansible_check_mode": check,
        "inventory_hostname": "one",
    }
    given |= {} if absent is None else {"serving_image_absent": absent}
    lines = evaluate("serving_image", task["ansible.builtin.debug"]["msg"], **given).strip().split(" playbooks/")
    assert lines[0] == " ".join(said)


def test_without_plans_the_parts_that_are_wished_are_built() -> None:
    (recipe,) = image_recipes([], document(), {"parts": ["host_nics"]})
    assert recipe["tag"] == made(parts=["host_nics"]).tag


def test_a_wrong_wish_is_said_in_its_sentence() -> None:
    with pytest.raises(AnsibleFilterError, match="serving_image_parts has 'pillow'"):
        image_recipes([], document(), {"parts": ["pillow"]})


def test_hosts_are_found_wherever_they_stand() -> None:
    said = {
        "mirrors": ["http://git-host:8092/"],
        "indexes": ["http://me:x@index.example.com:8/simple", "http://10.0.0.1:8/"],
        "sources": {"a": "deb http://m/u x\ndeb http://git-host/u x"},
    }
    assert hosts_in(said) == {
        "10.0.0.1": "indexes",
        "git-host": "mirrors and sources",
        "index.example.com": "indexes",
        "m": "sources",
    }
    said = {"http_proxy": "proxy:3128", "https_proxy": "http://u:p@[fe80::1]:3128", "no_proxy": ""}
    assert hosts_in(said) == {"fe80::1": "https_proxy", "proxy": "http_proxy"}


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"parts": ["numctl"]}, "serving_image_parts has 'numctl'"),
        ({"constraints": "a==1"}, "serving_image_constraints must be a list"),
        ({}, ""),
    ],
)
def test_a_wish_that_cannot_be_built_is_refused_in_a_sentence(wish: dict[str, Any], words: str) -> None:
    said = image_refusals([{"instance": "a", "refused": "It has no cards."}], document(), wish)
    assert len(said) == bool(words)
    assert "".join(said).startswith(words)
    assert all(re.search(r" \[[a-z_]+\]$", each) for each in said)
    plan = {"refused": "no such release", "refused_id": "unknown_release"}
    assert image_refusals([plan] * 2, {}, wish) == ["no such release [unknown_release]"]
