"""When the tasks of the role run: what systemd and the supervisors say decides it, never what this run has written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from library import node_files
from tests.unit.host.modules import run_main
from tests.unit.preflight import test_templates as templates
from tests.unit.preflight.test_templates import results
from tests.unit.vllm_service.test_rendered import PLAN, ROLE, evaluate, written


def tasks(file: str) -> list[dict[str, Any]]:
    """The tasks of a file, those in blocks as well."""
    found: list[dict[str, Any]] = []
    for task in yaml.safe_load((ROLE / "tasks" / file).read_text()):
        found += task.get("block", [task])
    return found


def acts(task: dict[str, Any], **given: Any) -> bool:
    """Whether the conditions of a task hold."""
    return templates.runs("vllm_service", task, vllm_service_plan=PLAN, **given)


def runs(file: str, module: str, **given: Any) -> bool:
    """Whether the task of a file that uses a module runs."""
    return acts(templates.task_of("vllm_service", file, module), **given)


def goes_through(task: dict[str, Any], file: str, words: str, **given: Any) -> Any:
    """What a task of a file goes through that another task imports."""
    loop = templates.task_of("vllm_service", file, words)["loop"]
    return templates.within("vllm_service", task, loop, vllm_service_plan=PLAN, **given)


def forget(task: dict[str, Any]) -> bool:
    """Whether a task has systemd forget how earlier starts ended."""
    return bool(task.get("ansible.builtin.import_tasks") == "forget.yml")


def changes(**given: bool) -> dict[str, Any]:
    """What vllm_service_changes says of a settled instance, but for what is given."""
    return {
        "settled": True,
        "current": True,
        "outdated": False,
        "left_over": False,
        "installed": True,
        "reasons": [],
        **given,
    }


@pytest.mark.parametrize(
    ("given", "forgets"),
    [
        # As after a full disk or a damaged state: systemd has given the unit up, and the files are as they were.
        ({"settled": False}, True),
        ({"outdated": True}, True),
        ({"current": False}, False),
    ],
)
def test_a_start_limit_does_not_outlive_the_repair(given: dict[str, bool], forgets: bool) -> None:
    written = {"written": [], "library_changed": False}
    known = results("vllm_service", vllm_service_changes=changes(**given), node_files=written)
    (task,) = [task for task in tasks("run.yml") if forget(task)]
    assert acts(task, **known) is forgets
    assert goes_through(task, "forget", "forget") == ["tiny"]
    file = templates.task_of("vllm_service", "main", "Start the instance")
    assert acts(file, **known), "or the file with this task is not even looked at"


@pytest.mark.parametrize(
    ("asked", "settled", "long"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_only_what_a_run_has_started_or_changed_gets_a_long_prompt(asked: bool, settled: bool, long: bool) -> None:
    (task,) = [task for task in tasks("verify.yml") if "vllm_service_verify" in task]
    written = {"written": [], "library_changed": False}
    known = results("vllm_service", vllm_service_changes=changes(settled=settled), node_files=written)
    given = {"vllm_service_long_prompt": asked, **known}
    assert evaluate(task["vllm_service_verify"]["long_prompt"], PLAN, **given) is long


@pytest.mark.parametrize("left_over", [True, False])
def test_a_container_with_what_was_replaced_is_removed_before_the_start_would_take_it_over(left_over: bool) -> None:
    names = [task["name"] for task in tasks("run.yml")]
    (remove,) = [task for task in tasks("run.yml") if "ansible.builtin.include_tasks" in task and "vars" in task]
    assert remove["ansible.builtin.include_tasks"]["file"] == "clean.yml"
    assert goes_through(remove, "clean", "the containers are gone") == ["tiny"]
    found = changes(settled=False, left_over=left_over)
    assert acts(remove, **results("vllm_service", vllm_service_changes=found)) is left_over
    assert names.index(remove["name"]) < names.index("run | Ensure the instance runs this plan")


PROGRAM = "/usr/local/lib/gaudi-serving/gaudi_supervisor/run.py"


@pytest.mark.parametrize(
    ("checking", "written", "library", "foreseen"),
    [
        (True, [PROGRAM], False, True),
        (True, [], True, True),
        (True, ["/etc/gaudi-serving/instances/tiny/plan.json"], False, False),
        (True, [], False, False),
        # What runs is asked, where it can be.
        (False, [PROGRAM], True, False),
    ],
)
def test_check_mode_foresees_that_supervisors_are_handed_over(
    checking: bool, written: list[str], library: bool, foreseen: bool
) -> None:
    given = {
        "ansible_check_mode": checking,
        **results("vllm_service", node_files={"written": written, "library_changed": library}),
        "item": {"current": True, "unwritten": ""},
    }
    assert runs("hand_over", "ansible.builtin.systemd_service", **given) is foreseen


@pytest.mark.parametrize(
    ("item", "reloads"),
    [
        ({"current": True, "unwritten": ""}, False),
        ({"current": False, "unwritten": ""}, True),
        ({"current": False, "unwritten": "state.json cannot be written"}, False),
    ],
)
def test_a_supervisor_that_cannot_say_what_it_runs_with_is_not_reloaded(item: dict[str, Any], reloads: bool) -> None:
    known = results("vllm_service", node_files={"written": [], "library_changed": False})
    given = {"ansible_check_mode": False, "item": item, **known}
    assert runs("hand_over", "ansible.builtin.systemd_service", **given) is reloads


def test_a_node_that_comes_alone_is_not_asked_what_the_others_have() -> None:
    """Where nodes come one by one, those to come have not been looked at yet, and an undefined result ends the run."""
    (play,) = yaml.safe_load((ROLE.parents[1] / "playbooks/uninstall.yml").read_text())
    assert play["serial"] == 1
    (removes,) = [
        task for task in play["tasks"] if task.get("ansible.builtin.include_role", {}).get("name") == "vllm_service"
    ]
    (asks,) = [task for task in tasks("select.yml") if task.get("run_once")]
    assert not evaluate(f"{{{{ {asks['when']} }}}}", PLAN, **removes["vars"])


@pytest.mark.parametrize("file", ["run.yml", "launch.yml", "rollback.yml"])
def test_a_start_that_a_person_asked_for_is_not_kept_by_the_start_limit(file: str) -> None:
    """systemd starts no unit that it has given up until it forgets that, whoever asks."""
    given = tasks(file)
    forgets = [number for number, task in enumerate(given) if forget(task)]
    starts = [
        number for number, task in enumerate(given) if "no_block" in task.get("ansible.builtin.systemd_service", {})
    ]
    assert len(forgets) == 1
    assert starts
    assert forgets[0] < min(starts)


@pytest.mark.parametrize("file", ["run.yml", "launch.yml", "rollback.yml"])
def test_systemd_has_read_the_unit_as_it_lies_there_before_a_start(file: str) -> None:
    """A way back that was cut off, or a person, may have changed what it knows."""
    found = [task.get("ansible.builtin.systemd_service", {}) for task in tasks(file)]
    reloads = [number for number, task in enumerate(found) if task.get("daemon_reload")]
    starts = [number for number, task in enumerate(found) if "no_block" in task]
    assert reloads
    assert reloads[0] <= min(starts)


@pytest.mark.parametrize(
    ("active", "forgotten"),
    [
        ("failed", ["tiny"]),
        # systemd counts what a person starts and stops at the node as well.
        ("inactive", ["tiny"]),
        ("active", []),
        ("activating", []),
    ],
)
def test_what_starts_has_its_earlier_starts_forgotten(active: str, forgotten: list[str]) -> None:
    (task,) = [task for task in tasks("start.yml") if task["ansible.builtin.import_tasks"] == "launch.yml"]
    names = {"tiny": active, "other": "failed"}
    here = {"instances": [{"instance": name, "active": state, "load": "loaded"} for name, state in names.items()]}
    known = results("vllm_service", vllm_service_info=here)
    assert goes_through(task, "forget", "forget", vllm_service_instance="tiny", **known) == forgotten


def test_a_restart_forgets_the_starts_of_all_that_it_stopped() -> None:
    """What it read before its stop still counts as running; systemd would go on counting the starts of that."""
    *_, stop, start = tasks("restart.yml")
    assert [stop["ansible.builtin.import_tasks"], start["ansible.builtin.import_tasks"]] == ["halt.yml", "launch.yml"]
    here = {"instances": [{"instance": "tiny", "active": "active", "load": "loaded"}]}
    known = results("vllm_service", vllm_service_info=here)
    assert goes_through(start, "forget", "forget", vllm_service_instance="", **known) == ["tiny"]


@pytest.mark.parametrize(("named", "stopped"), [("", ["tiny"]), ("tiny", ["tiny"]), ("masked", [])])
def test_a_restart_stops_nothing_that_systemd_could_not_start_again(named: str, stopped: list[str]) -> None:
    """What runs without a unit goes on, and is named at the end."""
    (stop,) = [task for task in tasks("restart.yml") if task.get("ansible.builtin.import_tasks") == "halt.yml"]
    known = {"tiny": "loaded", "masked": "masked"}
    here = {"instances": [{"instance": name, "load": load, "active": "active"} for name, load in known.items()]}
    given = {**results("vllm_service", vllm_service_info=here), "vllm_service_instance": named}
    # In systemd's words, without a unit, and by its container.
    loops = [("halt", "are stopped"), ("halt", "without a unit"), ("clean", "the containers are gone")]
    assert [goes_through(stop, *loop, **given) for loop in loops] == [stopped, [], stopped]


def test_all_of_what_starts_is_forgotten() -> None:
    (shared,) = [task for task in tasks("rollback.yml") if forget(task)]
    here = {"instances": [{"instance": "tiny"}, {"instance": "other"}]}
    known = results("vllm_service", vllm_service_info=here)
    assert goes_through(shared, "forget", "forget", vllm_service_instance="tiny", **known) == ["tiny"]
    (task,) = tasks("forget.yml")
    assert task["ansible.builtin.command"]["argv"][:2] == ["systemctl", "reset-failed"]
    assert evaluate(task["ansible.builtin.command"]["argv"][2], PLAN, item="tiny") == "vllm-tiny.service"


@pytest.mark.parametrize(
    ("said", "fails"), [("Unit vllm-tiny.service not loaded.", False), ("Failed to connect to bus", True)]
)
def test_a_unit_that_systemd_has_not_loaded_is_nothing_to_forget(said: str, fails: bool) -> None:
    (task,) = tasks("forget.yml")
    known = {task["register"]: {"rc": 1, "stderr": said}}
    assert evaluate(f"{{{{ {task['failed_when']} }}}}", PLAN, **known) is fails


@pytest.mark.parametrize(("node", "takes"), [("b", False), ("a", True), ("c", False)])
def test_a_node_takes_in_its_turn_what_the_first_of_those_that_lack_it_has_compiled(node: str, takes: bool) -> None:
    """The order of the play counts. On c another instance does, in its own start."""
    lacks = {"a": "tiny", "b": "tiny", "c": "other"}
    given: dict[str, Any] = {
        "vllm_service_compiled": {"key": "key", "value": lacks},
        "ansible_play_hosts_all": ["other", "b", "c", "a"],
        "inventory_hostname": node,
    }
    (turn,) = [task for task in tasks("run.yml") if "carry_turn" in str(task)]
    assert all(evaluate(f"{{{{ {when} }}}}", PLAN, **given) for when in turn["when"]) is takes
    # Mostly nobody lacks anything, and some playbooks have nodes change all at once.
    assert evaluate(turn["loop"], PLAN) == []
    copy = next(task for task in tasks("carry_turn.yml") if "carried_recipes" in task)
    (take,) = [task for task in tasks("carry_turn.yml") if "vllm_service_carried" in task.get("vars", {})]
    assert evaluate(copy["delegate_to"], PLAN, **given) == "b"
    assert evaluate(copy["carried_recipes"]["instance"], PLAN, **given) == "tiny"
    value = take["vars"]["vllm_service_carried"]["value"]
    value = {word: evaluate(said, PLAN, **given) for word, said in value.items()}
    assert value == {"give": {"b": "tiny"}, "take": {node: lacks[node]}}
    given |= {**take["vars"], "vllm_service_carried": {"key": "key", "value": value}}
    (supply,) = [
        task
        for task in tasks("carry_one.yml")
        if task.get("ansible.builtin.include_role", {}).get("name") == "weights_supply"
    ]
    assert evaluate(supply["ansible.builtin.include_role"]["tasks_from"], PLAN, **given) == "in_turn"
    assert evaluate(supply["vars"]["weights_supply_giver"], PLAN, **given) == "b"


def test_whatever_keeps_a_node_from_carrying_fails_no_node() -> None:
    outside = [task for task in yaml.safe_load((ROLE / "tasks/carry_ready.yml").read_text()) if "rescue" not in task]
    assert [[key for key in task if key.startswith("ansible.") or key == "node_files"] for task in outside] == [
        ["ansible.builtin.set_fact"]
    ]


@pytest.mark.parametrize(
    ("name", "said"), [("", "Which instance? Name it: -e instance=NAME."), ("chatt", "No instance is called chatt.")]
)
def test_going_back_says_which_instances_there_are(name: str, said: str) -> None:
    """One that was misspelt was asked for as if none had been named."""
    (refuses,) = [task for task in tasks("rollback.yml") if "ansible.builtin.assert" in task]
    here = {"instances": [{"instance": "chat"}, {"instance": "more"}]}
    known = results("vllm_service", vllm_service_info=here)
    given = {"inventory_hostname": "n1", "vllm_service_instance": name, **known}
    told = evaluate(refuses["ansible.builtin.assert"]["fail_msg"], PLAN, **given)
    assert told.strip() == f"{said} There are on n1: chat, more."


def test_an_administrators_drop_in_is_kept_through_an_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the role writes and removes for an instance, below another root."""
    monkeypatch.setattr(node_files, "OWNER", (os.getuid(), os.getgid()))
    theirs = tmp_path / "etc/systemd/system/vllm-tiny.service.d/local.conf"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("[Service]\nNice=5\n")
    files = [{**file, "path": f"{tmp_path}{file['path']}"} for file in written(PLAN) if file.get("state") != "link"]
    assert run_main("library.node_files", {"files": files})["changed"] is True
    assert sorted(path.name for path in theirs.parent.iterdir()) == ["50-plan.conf", "local.conf"]
    assert theirs.read_text() == "[Service]\nNice=5\n"


@pytest.mark.parametrize(
    ("opens", "recorded", "runs_it", "state"),
    [
        (False, False, False, "absent"),
        (True, False, True, "present"),
        (True, True, True, "present"),
        # The option is off again.
        (False, True, True, "absent"),
    ],
)
def test_the_firewall_is_read_only_where_a_site_opens_it_or_did(
    opens: bool, recorded: bool, runs_it: bool, state: str
) -> None:
    known = results("vllm_service", vllm_service_changes={"firewall": recorded})
    given = {"vllm_service_open_firewall": opens, **known}
    assert runs("verify", "vllm_service_firewall", **given) is runs_it
    (task,) = [task for task in tasks("verify.yml") if "vllm_service_firewall" in task]
    assert evaluate(task["vllm_service_firewall"]["state"], PLAN, **given) == state
    names = [task["name"] for task in tasks("verify.yml")]
    assert names.index("verify | Look at the container, and ask the instance") < names.index(task["name"])


@pytest.mark.parametrize("opens", [False, True])
def test_rollback_leaves_the_firewall_as_the_restored_plan_needs_it(opens: bool) -> None:
    """The rule of the plan that was left stayed until the next run of site.yml."""
    *others, last = tasks("rollback.yml")
    assert others[-1]["vllm_service_info"]["follow"] is True
    (module,) = [task for task in others if "vllm_service_rollback" in task]
    given = {
        "vllm_service_open_firewall": opens,
        "vllm_service_firewall_sources": ["10.20.0.0/16"],
        module["register"]: {"host": "0.0.0.0", "port": 30002},
        "vllm_service_instance": "tiny",
        **results("vllm_service", vllm_service_info={"instances": [{"instance": "tiny"}]}),
    }
    assert {name: evaluate(text, PLAN, **given) for name, text in last["vllm_service_firewall"].items()} == {
        "instance": "tiny",
        "state": "present" if opens else "absent",
        "host": "0.0.0.0",
        "port": 30002,
        "sources": ["10.20.0.0/16"],
    }


def test_the_firewall_is_closed_before_an_instance_is_forgotten() -> None:
    modules = [next(iter(task.keys() - {"name", "when"})) for task in tasks("remove.yml")]
    (closes,) = [task for task in tasks("remove.yml") if "vllm_service_firewall" in task]
    assert closes["vllm_service_firewall"]["state"] == "absent"
    assert "when" not in closes
    assert tasks("remove.yml")[-1]["ansible.builtin.import_tasks"] == "erase.yml"
    assert modules.index("vllm_service_firewall") < len(modules) - 1


@pytest.mark.parametrize(
    ("hosts", "checking", "tries"),
    [
        (["127.0.0.1", "::1", "localhost", "127.0.0.2"], False, False),
        (["127.0.0.1", "0.0.0.0"], False, True),
        (["10.20.0.11"], False, True),
        (["localhost.example"], False, True),
        (["0.0.0.0"], True, False),
        ([], False, False),
    ],
)
def test_only_what_others_are_to_reach_is_tried_from_the_controller(
    hosts: list[str], checking: bool, tries: bool
) -> None:
    plans = [{**PLAN, "listen": {"host": host, "port": 1}} for host in hosts]
    (task,) = [task for task in tasks("final_check.yml") if "vllm_service_reach" in task]
    found = [
        evaluate(f"{{{{ {one} }}}}", PLAN, ansible_check_mode=checking, vllm_service_plans=plans)
        for one in task["when"]
    ]
    assert all(found) is tries
