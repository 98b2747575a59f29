"""desired_state_check: at the end of a run, all instances against the desired state, whenever each was verified.

tests/unit/node/test_two_runs.py has what it says of settings.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import containers
from ansible.module_utils.gaudi.serving import confinement
from ansible.module_utils.gaudi.serving.made_of import MadeOf
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from filter_plugins.api_keys import api_keys, api_keys_digests
from library import desired_state_check
from tests.unit.host.modules import run_main
from tests.unit.preflight.test_contracts import ROOT
from tests.unit.vllm_service.made import guarded, make_plan

KEYS = {"a": ["the-first-of-all-keys", "another-key-of-ours"], "b": []}
OTHER = "controller-2"


class GuardedNode:
    """A node on which a run has served two guarded instances, and its desired state."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plans: list[dict[str, Any]] = []
        self.running: dict[str, containers.InstanceContainer] = {}
        self.labels: dict[str, str] = {}
        (root / "programs").mkdir()
        (root / "programs/gaudi_guard.py").write_text("guard")
        for number, name in enumerate(("a", "b")):
            plan = guarded(make_plan(30005 + number, root), root)
            plan.update(instance=name, container={**plan["container"], "name": f"vllm-{name}"})
            self.plans.append(copy.deepcopy(plan))
            self.labels[name] = self.write(plan, "controller-1")
            self.start(name)
            self.keys(name, KEYS[name], "controller-1")

    def write(self, plan: dict[str, Any], by: str) -> str:
        """Write a plan as the role does, and return the label of its container."""
        folder = self.root / "instances" / plan["instance"]
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(plan)
        said = {"written": {"by": by, "at": "2026-11-23T02:00:00Z"}}
        for name, content in (("plan.json", text), ("environment", "A=1\n"), ("explanation.json", json.dumps(said))):
            (folder / name).write_text(content)
        return MadeOf(text.encode(), b"A=1\n", b"guard").digest

    def start(self, name: str, label: str = "") -> None:
        """Have a container of a label run."""
        self.running[name] = containers.InstanceContainer(True, label or self.labels[name], {"State": {"Pid": 7}})

    def keys(self, name: str, inventory: list[str], by: str) -> None:
        """Write keys as the role does."""
        asked = {"instance": name, "inventory": api_keys(inventory, name), "by": by}
        assert "failed" not in run_main("library.instance_keys", asked)

    def end(self) -> dict[str, Any]:
        """The end of the run."""
        names = [plan["instance"] for plan in self.plans]
        digests = api_keys_digests(KEYS, names)
        return run_main("library.desired_state_check", {"plans": self.plans, "labels": self.labels, "keys": digests})


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GuardedNode:
    monkeypatch.setattr(paths, "INSTANCES", str(tmp_path / "instances"))
    monkeypatch.setattr(paths, "GUARD", str(tmp_path / "programs"))
    monkeypatch.setattr("library.instance_keys.INSTANCES", tmp_path / "instances")
    monkeypatch.setattr(containers, "PROC", tmp_path / "proc")
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/status").write_text("")
    monkeypatch.setattr(confinement, "differences", lambda _inspected, _plan, _process: [])
    monkeypatch.setattr(containers, "outlived", lambda _module, _container, _plan: [])
    run = GuardedNode(tmp_path)
    monkeypatch.setattr(containers, "look", lambda _module, name: run.running.get(name.removeprefix("vllm-")))
    return run


def test_a_run_that_nobody_disturbed_ends_well(ran: GuardedNode) -> None:
    assert ran.end()["instances"] == ["a", "b"]


def test_a_run_that_left_an_instance_as_it_was_ends_red_with_all_reasons(ran: GuardedNode) -> None:
    said = "c, d: the image cannot import vLLM."
    nobody, lacks = Refusal("image_without_server", said), Refusal("image_lacks_part", "e: the image lacks audio.")
    unserved = {"c": nobody.as_keys(), "d": nobody.as_keys(), "e": lacks.as_keys()}
    answer = run_main("library.desired_state_check", {"plans": [], "labels": {}, "keys": {}, "unserved": unserved})
    assert answer["refused_id"] == "image_without_server"
    assert answer["msg"].splitlines()[:2] == [f"{said} [image_without_server]", f"{lacks} [image_lacks_part]"]
    assert answer["msg"].count("[image_without_server]") == 1
    assert "This run left c, d, e as before." in answer["msg"]


def test_documented_is_taken() -> None:
    documented = yaml.safe_load(desired_state_check.DOCUMENTATION)["options"]
    real = {
        name: {key: value for key, value in option.items() if key != "no_log"}
        for name, option in desired_state_check.ARGUMENT_SPEC.items()
    }
    assert {name: {key: said[key] for key in said if key != "description"} for name, said in documented.items()} == real


@pytest.mark.parametrize("restarted", [False, True])
def test_an_instance_that_another_run_changed_after_it_was_verified_is_told(ran: GuardedNode, restarted: bool) -> None:
    """Also where the other run has written its plan only, and restarts the instance in a moment."""
    plan = {**ran.plans[0], "listen": {"host": "127.0.0.1", "port": 30007}}
    label = ran.write(plan, OTHER)
    if restarted:
        ran.start("a", label)
    said = ran.end()["msg"]
    assert said.startswith("a is not on the node as this run has written it: another run, or somebody on the node, ")
    assert f"The plan on the node was written by {OTHER} at 2026-11-23T02:00:00Z." in said
    assert "b " not in said


def test_a_container_of_another_run_is_told(ran: GuardedNode) -> None:
    ran.start("b", "another")
    assert ran.end()["msg"].startswith("b does not run with what this run has written: ")


def test_a_container_that_ended_since_it_was_verified_is_told(ran: GuardedNode) -> None:
    del ran.running["a"]
    answer = ran.end()
    assert answer["msg"].startswith("The container vllm-a does not run. Look at journalctl -u vllm-a.")
    assert answer["refused_id"] == "container_not_running"


@pytest.mark.parametrize("name", ["plan.json", "environment"])
@pytest.mark.parametrize("damage", [None, b"\xff", b"by hand"])
def test_what_was_changed_by_hand_is_told(ran: GuardedNode, name: str, damage: bytes | None) -> None:
    file = ran.root / "instances/b" / name
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    assert ran.end()["msg"].startswith("b is not on the node as this run has written it")


def test_another_guard_is_told_of_each(ran: GuardedNode) -> None:
    (ran.root / "programs/gaudi_guard.py").write_text("another")
    assert ran.end()["msg"].count("is not on the node as this run has written it") == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda ran: ran.keys("a", ["a-key-of-the-other-run"], OTHER),
        lambda ran: ran.keys("a", KEYS["a"][:1], OTHER),
        lambda ran: ran.keys("b", ["a-key-of-the-other-run"], OTHER),
    ],
)
def test_keys_that_another_run_replaced_are_told_without_a_digest(
    ran: GuardedNode, change: Callable[[GuardedNode], None]
) -> None:
    change(ran)
    answer = ran.end()
    said = answer["msg"]
    assert said.count("are not those of this run's inventory: another run, or somebody on the node, ") == 1
    assert f"The file of keys on the node was written by {OTHER} at 20" in said
    whole = json.dumps(answer)
    for digest in api_keys_digests(KEYS, ["a", "b"]).values():
        assert digest not in whole
    for key in api_keys(KEYS, "a"):
        assert str(key["digest"]) not in whole


def test_keys_of_the_playbook_are_not_compared(ran: GuardedNode) -> None:
    added = {"instance": "a", "add": {"name": "alice", "digest": "1" * 64}, "by": OTHER}
    assert run_main("library.instance_keys", added)["changed"] is True
    assert ran.end()["instances"] == ["a", "b"]


@pytest.mark.parametrize("damage", [None, b"{"])
def test_a_file_of_keys_that_is_gone_or_damaged_is_told(ran: GuardedNode, damage: bytes | None) -> None:
    file = ran.root / "instances/a" / paths.KEYS_FILE
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    assert ran.end()["msg"].startswith("The keys that open a are not those of this run's inventory")


def test_a_file_of_a_former_release_names_nobody(ran: GuardedNode) -> None:
    ran.keys("a", [], "")
    assert "was written by" not in ran.end()["msg"]


@pytest.mark.parametrize("file", ["site.yml", "playbooks/serve.yml"])
def test_every_run_that_serves_ends_with_it(file: str) -> None:
    """In one task for all instances: a run that changes nothing stays a short one."""
    roles = [
        (role["name"], role.get("tasks_from", "main"))
        for play in yaml.safe_load((ROOT / file).read_text())
        for task in play["tasks"]
        for role in [task.get("ansible.builtin.import_role") or task.get("ansible.builtin.include_role")]
        if role
    ]
    last = roles.index(("vllm_service", "final_check"))
    assert roles[last - 1] == ("vllm_service", "main")
    # What follows serves nothing; and no image goes for settings that were overwritten.
    assert set(roles[last + 1 :]) <= {("serving_image", "prune"), ("summary", "main")}
    assert "desired_state_check" in yaml.safe_load((ROOT / "roles/vllm_service/tasks/final_check.yml").read_text())[-1]


def end_of(file: str) -> dict[str, Any]:
    """The task of a playbook that compares."""
    (task,) = [
        task
        for play in yaml.safe_load((ROOT / file).read_text())
        for task in play["tasks"]
        if task.get("ansible.builtin.import_role", {}).get("tasks_from") == "final_check"
    ]
    return dict(task)


def asked_of(task: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What it is given where these variables are."""
    templar = Templar(loader=DataLoader(), variables=given)
    return {name: templar.template(trust_as_template(text)) for name, text in task["vars"].items()}


@pytest.mark.parametrize(
    ("engine", "host", "answers", "settings", "plans"),
    [
        ({"desired": {"of": "engine"}}, {"desired": {"of": "host"}}, {}, ["engine", "host"], ["a"]),
        # A run of one layer compares that layer.
        (None, {"desired": {"of": "host"}}, None, ["host"], []),
        (None, None, {}, [], ["a"]),
    ],
)
def test_the_site_compares_what_its_layers_have_set(
    engine: object, host: object, answers: object, settings: list[str], plans: list[str]
) -> None:
    task = end_of("site.yml")
    assert set(task["tags"]) == {"container_runtime", "host_tuning", "vllm_service"}
    known = {"container_runtime_daemon": engine, "host_tuning_written": host, "vllm_service_answers": answers}
    given: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    given["plans_served"] = [{"instance": "a"}]
    made = asked_of(task, given)
    assert [each["of"] for each in made["vllm_service_settings"]] == settings
    assert [plan["instance"] for plan in made["vllm_service_plans"]] == plans


@pytest.mark.parametrize(
    ("engine", "settings"),
    [({"container_runtime_daemon": {"desired": {"of": "engine"}}}, [{"of": "engine"}]), ({}, [])],
)
def test_who_serves_one_model_compares_the_engine_too(engine: dict[str, Any], settings: list[dict[str, str]]) -> None:
    given = {"preflight_serving": {"plans": [{"instance": "a"}]}, **engine}
    assert asked_of(end_of("playbooks/serve.yml"), given)["vllm_service_settings"] == settings


@pytest.mark.parametrize(
    ("role", "module", "register"),
    [
        ("container_runtime", "docker_daemon_json", "container_runtime_daemon"),
        ("host_tuning", "node_files", "host_tuning_written"),
    ],
)
def test_each_layer_has_its_desired_state_recorded(role: str, module: str, register: str) -> None:
    folder = ROOT / "roles" / role
    tasks = [task for file in (folder / "tasks").glob("*.yml") for task in yaml.safe_load(file.read_text())]
    (task,) = [task for task in tasks if "desired" in (task.get(module) or {})]
    assert (task["register"], "when" in task) == (register, False)
    desired = yaml.safe_load((folder / "vars/main.yml").read_text())[f"__{role}_desired"]
    assert desired["record"] == {"host_tuning": paths.HOST_SETTINGS_RECORD}.get(role, paths.ENGINE_SETTINGS_RECORD)
