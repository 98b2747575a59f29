"""Stopping, starting and removing, whatever was cut off before: one instance without a unit is no dead end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.node import instances, iommu, startable, states
from ansible.module_utils.gaudi.serving.plan import Plan
from ansible.module_utils.gaudi.serving.unserved import unit_fault

from filter_plugins import vllm_service_table
from library import vllm_service_info
from tests.unit.host.modules import run_main
from tests.unit.preflight import test_templates as templates
from tests.unit.preflight.test_contracts import load
from tests.unit.preflight.test_templates import results
from tests.unit.vllm_service.test_interface import found
from tests.unit.vllm_service.test_rendered import PLAN, ROLE, evaluate
from tests.unit.vllm_service.test_tasks import tasks

BACKUP = "/etc/gaudi-serving/instances/serving.bak"
HERE: dict[str, Any] = {
    "instances": [
        found(instance="broken", load="bad-setting", active="failed"),
        found(instance="cut-off", load="not-found", active="inactive"),
        found(instance="orphan", load="not-found", active="active"),
        found(instance="serving"),
    ],
    "strangers": [BACKUP],
}


def only(name: str) -> dict[str, Any]:
    """A node with one instance."""
    return {"instances": [each for each in HERE["instances"] if each["instance"] == name], "strangers": []}


def task_of(file: str, name: str) -> dict[str, Any]:
    """The task of a file whose name has these words."""
    return templates.task_of("vllm_service", file.removesuffix(".yml"), name)


def on(here: dict[str, Any]) -> dict[str, Any]:
    """What vllm_service_info says of a node, as the role keeps it."""
    return results("vllm_service", vllm_service_info=here)


def within(task: dict[str, Any], text: str, **given: Any) -> Any:
    """An expression as a task evaluates it."""
    return templates.within("vllm_service", task, text, vllm_service_plan=PLAN, **given)


def loops(file: str, name: str, instance: str = "", here: dict[str, Any] = HERE) -> list[str]:
    """What a task goes through: the names of instances, or paths."""
    items = evaluate(task_of(file, name)["loop"], PLAN, vllm_service_instance=instance, **on(here))
    return [item["instance"] if isinstance(item, dict) else item for item in items]


def holds(file: str, name: str, condition: str, **given: Any) -> bool:
    """Whether a condition of a task holds, or its assertion."""
    task = task_of(file, name)
    text = task.get("ansible.builtin.assert", {}).get(condition) or task[condition]
    return bool(within(task, f"{{{{ {text} }}}}", **{"vllm_service_instance": "", **given}))


@pytest.mark.parametrize(("instance", "asked"), [("", ["serving"]), ("cut-off", []), ("serving", ["serving"])])
def test_only_what_systemd_has_a_unit_for_is_asked_of_its_unit(instance: str, asked: list[str]) -> None:
    """Ansible's module ends with "Could not find the requested service" for any other."""
    assert loops("halt.yml", "stopped", instance) == asked
    assert loops("stop_one.yml", "does not start at boot", instance) == asked
    assert loops("launch.yml", "are started", instance) == asked
    follow = task_of("launch.yml", "Follow the start")
    given = {**on(HERE), "vllm_service_instance": instance}
    assert evaluate(follow["vllm_service_info"]["instances"], PLAN, **given) == asked


def test_no_unit_is_asked_past_those_lists() -> None:
    """Every task about an instance's unit goes through those that have one."""
    for file in ("halt.yml", "stop_one.yml", "launch.yml"):
        for task in tasks(file):
            about = task.get("ansible.builtin.systemd_service", {}).get("name", "")
            assert "vllm-" not in about or loops(file, task["name"]) == ["serving"]
    for name in ("stop", "stop_one"):
        files = [task.get("ansible.builtin.import_tasks") for task in tasks(f"{name}.yml")]
        assert "halt.yml" in files


def test_what_runs_without_a_unit_is_stopped_all_the_same() -> None:
    assert loops("halt.yml", "runs without a unit") == ["orphan"]
    assert loops("halt.yml", "runs without a unit", "cut-off") == []
    assert loops("clean.yml", "the containers are gone") == ["broken", "cut-off", "orphan", "serving"]


def test_a_container_that_stays_keeps_no_other_from_going_and_is_named_at_the_end() -> None:
    removed = task_of("clean.yml", "the containers are gone")["register"]
    for status, fails in ((0, False), (1, False), (2, True)):
        assert holds("clean.yml", "the containers are gone", "failed_when", **{removed: {"rc": status}}) is fails
    ended = [
        {"item": "one", "rc": 1, "stderr": "The engine does not answer."},
        {"item": "two", "rc": 0, "stderr": ""},
        {"item": "three", "rc": 1},
    ]
    given = {removed: {"results": ended}}
    assert not holds("clean.yml", "which are not", "that", **given)
    said = evaluate(task_of("clean.yml", "which are not")["ansible.builtin.assert"]["fail_msg"], PLAN, **given)
    assert said.startswith("The container of one, three may still run. The engine does not answer.")
    for fine in ({"results": ended[1:2]}, {"results": [{"skipped": True, "item": "one"}]}):
        assert holds("clean.yml", "which are not", "that", **{removed: fine})


@pytest.mark.parametrize(("there", "written"), [(True, False), (False, True)])
def test_the_program_that_removes_containers_is_brought_where_it_is_missing(there: bool, written: bool) -> None:
    given = {**on(HERE), **results("vllm_service", stat={"stat": {"exists": there}})}
    assert holds("clean.yml", "Ensure it is there", "when", **given) is written
    files = evaluate(task_of("clean.yml", "Ensure it is there")["node_files"]["files"], PLAN)
    # Last: where it is there, so are the others.
    assert files[-1]["path"] == "/usr/local/lib/gaudi-serving/vllm_supervisor.py"


@pytest.mark.parametrize(("exists", "stopped"), [(True, True), (False, False)])
def test_a_target_that_is_not_there_is_not_asked(exists: bool, stopped: bool) -> None:
    given = {**on(only("cut-off")), **results("vllm_service", stat={"stat": {"exists": exists}})}
    name = "Ensure the target goes"
    assert holds("stop_one.yml", name, "when", **{**given, "vllm_service_instance": "cut-off"}) is stopped


def test_starting_all_ends_red_with_those_that_a_person_has_to_see_to() -> None:
    (block,) = (task for task in yaml.safe_load((ROLE / "tasks/launch.yml").read_text()) if "block" in task)
    (last,) = block["always"]
    told = last["ansible.builtin.assert"]
    for here, fine in ((only("serving"), True), (HERE, False)):
        assert evaluate(f"{{{{ {told['that']} }}}}", PLAN, vllm_service_instance="", **on(here)) is fine
    said = evaluate(told["fail_msg"], PLAN, vllm_service_instance="", inventory_hostname="n1", **on(HERE))
    assert [name in said for name in ("broken has", "cut-off has", "orphan has", "serving has")] == [True] * 3 + [False]


@pytest.mark.parametrize(("name", "there"), [("", True), ("serving", True), ("nope", False)])
def test_a_name_that_no_node_has_is_refused_with_those_there_are(name: str, there: bool) -> None:
    hosts = {"n1": on(only("serving")), "n2": on(only("orphan"))}
    task = task_of("select.yml", "that no node has")
    given = {"vllm_service_instance": name, "ansible_play_hosts": list(hosts), "hostvars": hosts}
    assert holds("select.yml", "that no node has", "that", **given) is there
    said = within(task, task["ansible.builtin.assert"]["fail_msg"], **given)
    assert said.strip() == f"No node of this play has an instance {name}. There are: orphan, serving."


@pytest.mark.parametrize(("there", "allowed", "said"), [([], False, True), ([], "true", False), (["x"], False, False)])
def test_a_node_without_any_instance_says_so(there: list[str], allowed: object, said: bool) -> None:
    given = {**on({"instances": there}), "vllm_service_may_be_absent": allowed}
    assert templates.runs("vllm_service", task_of("select.yml", "Say that the node has none"), **given) is said


def test_the_history_of_a_name_that_nobody_has_is_refused_as_elsewhere() -> None:
    first = yaml.safe_load((ROLE / "tasks/history.yml").read_text())[0]
    assert first["ansible.builtin.import_tasks"] == "select.yml"


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weights of an instance that serves; the node has its image."""
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    (weights / "model.safetensors").write_text("data")
    (tmp_path / "plans/serving").mkdir(parents=True)
    plan = {"image": "image:1", "requires": {"weights_path": str(weights)}}
    (tmp_path / "plans/serving/plan.json").write_text(json.dumps(plan))
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: "ActiveState=active\n")
    monkeypatch.setattr(startable, "image_id", lambda _module, name: "sha256:1" if name == "image:1" else None)
    return weights


def restart_refuses(names: list[str]) -> str:
    """Why restart.yml stops nothing; empty where it goes on."""
    again = on(run_main(vllm_service_info.__name__, {"instances": names, "again": True}))
    if holds("restart.yml", "Refuse to stop", "that", **again):
        return ""
    said = task_of("restart.yml", "Refuse to stop")["ansible.builtin.assert"]["fail_msg"]
    return str(evaluate(said, PLAN, **again))


def test_what_could_not_start_again_is_not_stopped(serving: Path) -> None:
    order = [task["name"] for task in tasks("restart.yml")]
    assert order.index("Refuse to stop what could not") < order.index("Stop the instances")
    assert restart_refuses(["serving"]) == ""
    (serving / "model.safetensors").unlink()
    assert restart_refuses(["serving"]).startswith(
        f"Nothing was stopped. serving could not start again: {serving} holds no weights"
    )
    # Only instances that run are looked at: the start of the others says the same.
    here = {**HERE, "instances": [found(instance="serving"), found(instance="down", active="inactive")]}
    asked = task_of("restart.yml", "could start again")
    stopped = within(asked, asked["vllm_service_info"]["instances"], vllm_service_instance="", **on(here))
    assert stopped == ["serving"]


def test_an_image_that_is_gone_keeps_what_runs_from_a_restart(serving: Path) -> None:
    path = states.PLANS / "serving/plan.json"
    path.write_text(path.read_text().replace("image:1", "image:0"))
    assert "its image image:0 is not on the node" in restart_refuses(["serving"])
    # A plan that cannot be read is its supervisor's to name.
    path.write_text("{")
    assert restart_refuses(["serving"]) == ""


def test_an_iommu_that_translates_keeps_what_runs_from_a_restart(
    serving: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startable, "image_id", lambda _module, _name: "sha256:1")
    monkeypatch.setattr(iommu, "SYS", tmp_path)
    device = tmp_path / "bus/pci/devices/0000:33:00.0"
    (device / "iommu_group").mkdir(parents=True)
    for name, text in (("vendor", "0x1da3"), ("module_id", "0"), ("iommu_group/type", "DMA")):
        (device / name).write_text(f"{text}\n")
    path = states.PLANS / "serving/plan.json"
    requires = {**PLAN["requires"], "weights_path": str(serving)}
    path.write_text(json.dumps({**PLAN, "requires": requires, "release": "1.24.1"}))
    path.with_name("environment").write_text(Plan.from_document(PLAN).environment_file)
    assert "iommu_group/type DMA of 0000:33:00.0 (module 0)" in restart_refuses(["serving"])
    path.with_name("let_through.json").write_text(json.dumps({"let_through": [], "allowed": ["iommu"]}))
    assert restart_refuses(["serving"]) == ""


def test_an_environment_that_is_not_the_plans_keeps_what_runs_from_a_restart(
    serving: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startable, "image_id", lambda _module, _name: "sha256:1")
    folder = states.PLANS / "serving"
    (folder / "plan.json").write_text(
        json.dumps({**PLAN, "requires": {**PLAN["requires"], "weights_path": str(serving)}})
    )
    (folder / "environment").write_text(Plan.from_document(PLAN).environment_file)
    assert restart_refuses(["serving"]) == ""
    (folder / "environment").write_text("A=1\n")
    assert restart_refuses(["serving"]).startswith(
        f"Nothing was stopped. serving could not start again: {folder}/environment is not the environment of its plan"
    )


@pytest.mark.parametrize(
    ("load_state", "what"),
    [
        ("not-found", "x has no unit"),
        ("masked", "x is masked"),
        ("bad-setting", "x has a unit that systemd cannot use"),
    ],
)
def test_an_instance_without_a_unit_says_what_to_do(load_state: str, what: str) -> None:
    said = unit_fault(found(instance="x", load=load_state), "n1")
    assert said.startswith(what)
    assert said.endswith("remove it (playbooks/remove.yml --limit n1 -e instance=x).")
    assert unit_fault(found(), "n1") == ""
    assert vllm_service_table.row("n1", found(instance="x", load=load_state))[-1] == said


def test_a_supervisor_without_a_unit_keeps_no_other_from_being_handed_over() -> None:
    assert loops("hand_over.yml", "supervisors run with") == ["serving"]


def test_what_holds_it_to_the_target_goes_with_an_instance() -> None:
    """Without its unit, it cannot be disabled."""
    (gone, *_) = load(ROLE / "tasks/erase.yml")
    assert "/etc/systemd/system/gaudi-serving.target.wants/vllm-{{ vllm_service_instance }}.service" in gone["loop"]


def test_the_last_instance_takes_nothing_along_that_is_none() -> None:
    name = "plan and state are gone"
    own = ["/var/lib/gaudi-serving/instances/serving", "/etc/gaudi-serving/instances/serving"]
    assert loops("erase.yml", name, "serving") == own
    here = only("serving")
    assert "/etc/gaudi-serving/instances" in loops("erase.yml", name, "serving", here)
    here["strangers"] = [BACKUP]
    kept = loops("erase.yml", name, "serving", here)
    assert "/etc/gaudi-serving/instances" not in kept
    assert "/var/lib/gaudi-serving/instances" in kept


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with one instance, and with things beside it that are none."""
    for folder in ("plans/serving", "plans/serving.bak", "plans/Foo Bar", "plans/-a", "states/serving", "states/x_y"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "plans/notes").write_text("")
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: "LoadState=not-found\n")
    return tmp_path


def test_what_no_instance_can_be_called_is_none(node: Path) -> None:
    answer = run_main(vllm_service_info.__name__, {})
    assert [(each["instance"], each["load"]) for each in answer["instances"]] == [("serving", "not-found")]
    beside = ("plans/-a", "plans/Foo Bar", "plans/notes", "plans/serving.bak", "states/x_y")
    assert answer["strangers"] == [str(node / path) for path in beside]
