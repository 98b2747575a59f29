"""Whatever a site's inventory holds, the role preflight gets as far as its report: its own variables, for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.preflight import site as inventory

from tests.unit.preflight.test_templates import task_of

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles" / "preflight"
HOST_TUNING = yaml.safe_load((ROOT / "roles/host_tuning/defaults/main.yml").read_text(encoding="utf-8"))

# Renders what the role gives its modules, for several inventories in one run; role_path is what the role would have.
PLAY = """
- hosts: all
  gather_facts: false
  vars_files: ["%(role)s/vars/main.yml"]
  vars: {role_path: "%(role)s", preflight_host_tuning: true}
  tasks:
    - %(reading)s
    # What the modules are given.
    - ansible.builtin.set_fact: {rendered: %(given)s}
    # One module for all: each takes a process of its own.
    - ansible.builtin.copy:
        dest: "%(folder)s/rendered.json"
        content: >-
          {{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'rendered'))) | to_json }}
      run_once: true
"""
RIGHT: dict[str, Any] = {
    "gaudi_release": "1.22",
    "gaudi_expected_cards": 8,
    "gaudi_image_registry": "vault.habana.ai",
    "gaudi_weights_root": "/data/models",
    "gaudi_serving_instances": [{"model": "qwen3-8b"}],
}
# What a site may have written, by the name of a host that has it.
SITES: dict[str, dict[str, Any]] = {
    "right": RIGHT,
    "empty": {**RIGHT, "gaudi_serving_instances": []},
    "nothing": {},
    "null": dict.fromkeys([*RIGHT, "gaudi_weights_fetch", "host_tuning_hugepages", "host_tuning_max_memory_share"]),
    "mapping": {**RIGHT, "gaudi_serving_instances": {"model": "qwen3-8b"}},
    "word": {**RIGHT, "gaudi_serving_instances": "qwen3-8b"},
    "number": {**RIGHT, "gaudi_serving_instances": 5},
    "mixed": {**RIGHT, "gaudi_serving_instances": ["qwen3-8b", {"model": "qwen3-8b"}, None, [1]]},
    "unquoted": {**RIGHT, "gaudi_release": 1.22, "gaudi_weights_fetch": "yes"},
    "shapes": {**RIGHT, "gaudi_release": {"x": 1}, "gaudi_image_registry": [1], "gaudi_weights_root": {"y": 2}},
    "tuned": {**RIGHT, "host_tuning_hugepages": "abc", "gaudi_weights_fetch": "maybe"},
    "many pages": {**RIGHT, "host_tuning_hugepages": "-1"},
    "installed": {**RIGHT, "container_runtime_habana_repository": "https://vault.example/debian"},
    "elsewhere": {
        **RIGHT,
        "container_runtime_habana_repository": "",
        "container_runtime_habana_path": "/opt/habana",
    },
    "own path": {**RIGHT, "preflight_habana_path": "/usr/local/habana", "container_runtime_habana_path": "/opt/habana"},
}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the role gives its modules, by site."""
    folder = tmp_path_factory.mktemp("sites")
    play, hosts = folder / "play.yml", folder / "hosts.yml"
    planning = task_of("preflight", "plan", "serving_plan")["serving_plan"]
    comparing = task_of("preflight", "read", "gaudi_preflight")["gaudi_preflight"]
    names = ("inventory", "weights_fetch", "habana_path", "found")
    given = {**planning, **{name: comparing[name] for name in names}}
    reading = task_of("preflight", "read", "role_options")
    filled = {"role": ROLE, "folder": folder, "reading": json.dumps(reading), "given": json.dumps(given)}
    play.write_text(PLAY % filled, encoding="utf-8")
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts.write_text(
        json.dumps({"all": {"hosts": {name: {**local, **values} for name, values in SITES.items()}}}), encoding="utf-8"
    )
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(hosts), str(play)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: dict[str, dict[str, Any]] = json.loads((folder / "rendered.json").read_text(encoding="utf-8"))
    assert found.keys() == SITES.keys()
    return found


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("right", [{"model": "qwen3-8b"}]),
        ("empty", []),
        ("nothing", []),
        ("null", []),
        ("mapping", []),
        ("word", []),
        ("number", []),
        ("mixed", [{"model": "qwen3-8b"}]),
    ],
)
def test_what_is_a_request_is_planned(rendered: dict[str, Any], name: str, requests: list[Any]) -> None:
    assert rendered[name]["requests"] == requests


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("right", []),
        ("empty", []),
        ("unquoted", []),
        ("nothing", list(RIGHT)),
        ("null", [*RIGHT, "gaudi_weights_fetch"]),
        ("mapping", ["gaudi_serving_instances"]),
        ("word", ["gaudi_serving_instances"]),
        ("number", ["gaudi_serving_instances"]),
        ("mixed", [f"gaudi_serving_instances[{place}]" for place in (0, 2, 3)]),
        ("shapes", ["gaudi_release", "gaudi_image_registry", "gaudi_weights_root"]),
        ("tuned", ["gaudi_weights_fetch", "host_tuning_hugepages"]),
    ],
)
def test_what_is_wrong_is_named(rendered: dict[str, Any], name: str, wrong: list[str]) -> None:
    _, problems = inventory.read(rendered[name]["inventory"])
    assert sorted(problem.message.split(" ")[0] for problem in problems) == sorted(wrong)


def test_the_settings_of_the_host_are_those_of_its_role(rendered: dict[str, Any]) -> None:
    told = {name: value for name, value in rendered["right"]["inventory"].items() if name.startswith("host_tuning_")}
    assert told == {
        "host_tuning_hugepages": HOST_TUNING["host_tuning_hugepages"],
        "host_tuning_hugepage_size": HOST_TUNING["host_tuning_hugepage_size"],
        "host_tuning_max_memory_share": HOST_TUNING["host_tuning_max_memory_share"],
    }


@pytest.mark.parametrize("name", ["tuned", "null", "many pages"])
def test_hugepages_that_are_no_number_are_one_problem_and_no_reason_for_another(
    rendered: dict[str, Any], name: str
) -> None:
    found, problems = inventory.read(rendered[name]["inventory"])
    messages = [problem["message"] for problem in rendered[name]["found"]["problems"]]
    said = [message.split(" ")[0] for message in (*messages, *(problem.message for problem in problems))]
    assert said.count("host_tuning_hugepages") == 1
    assert found.hugepages is None
    assert not any(message.startswith("gaudi_") for message in messages)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("right", "/usr/bin/habana-container-runtime"),
        ("installed", ""),
        # It was looked for in the usual place, and not at all with a repository that is empty.
        ("elsewhere", "/opt/habana"),
        ("own path", "/usr/local/habana"),
    ],
)
def test_the_runtime_is_looked_for_where_its_role_expects_it(rendered: dict[str, Any], name: str, path: str) -> None:
    assert rendered[name]["habana_path"] == path


def test_the_rest_is_looked_at_with_values_that_stop_nothing(rendered: dict[str, Any]) -> None:
    assert rendered["unquoted"]["release"] == "1.22"
    assert rendered["unquoted"]["weights_fetch"] is True
    assert rendered["nothing"]["release"] == ""
    assert rendered["shapes"]["weights_root"] == "/data/models"
    assert rendered["shapes"]["image_registry"] == ""
    assert all(isinstance(site["release"], str) for site in rendered.values())


def test_the_specification_refuses_nothing_before_the_report() -> None:
    """A type there would end the run with Ansible's own list of arguments."""
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"]
    for name, option in options["options"].items():
        if name.startswith("gaudi_"):
            assert option["type"] == "raw", name
            assert "required" not in option, name
            assert name in inventory.VARIABLES
