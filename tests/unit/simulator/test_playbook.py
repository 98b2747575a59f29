from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import yaml

from simulator.playbook import NODE_BY_NODE, PARTS, Progress, run, sentence
from simulator.settings import ROOT

INCLUDES = ("ansible.builtin.include_role", "ansible.builtin.import_role")


def play(name: str) -> dict[str, Any]:
    return {"event": "playbook_on_play_start", "event_data": {"name": name}}


def task(name: str, role: str | None = None) -> dict[str, Any]:
    return {"event": "playbook_on_task_start", "event_data": {"name": name, "role": role}}


def result(kind: str, **data: Any) -> dict[str, Any]:
    return {"event": f"runner_on_{kind}", "event_data": {"host": "one", **data}}


def follow(*events: dict[str, Any]) -> Progress:
    progress = Progress()
    for second, event in enumerate([*events, {"event": "playbook_on_stats"}]):
        progress.feed(event, 100.0 + second)
    return progress


def test_a_phase_is_a_play_whatever_roles_it_goes_through() -> None:
    progress = follow(
        play("Prepare"),
        task("Gathering Facts"),
        task("docker : install", "docker"),
        task("docker : start", "docker"),
        task("image : pull", "image"),
        play("Serve"),
        task("check"),
    )
    assert [(phase.title, [task.name for task in phase.tasks]) for phase in progress.phases] == [
        ("Prepare", ["Gathering Facts", "install", "start", "pull"]),
        ("Serve", ["check"]),
    ]


def test_the_play_that_goes_node_by_node_is_followed_by_its_parts() -> None:
    progress = follow(
        play("Fetch and convert missing weights"),
        task("fetch"),
        play(NODE_BY_NODE),
        task("include the driver's tasks"),
        task("gaudi_driver : install", "gaudi_driver"),
        task("preflight : look", "preflight"),
        task("host_tuning : set", "host_tuning"),
        task("node_library : write", "node_library"),
        task("vllm_service : look", "vllm_service"),
        task("host_tuning : allowed", "host_tuning"),
        task("vllm_service : start", "vllm_service"),
        task("serving_image : prune", "serving_image"),
        play(NODE_BY_NODE),
        task("host_tuning : set", "host_tuning"),
    )
    assert [(phase.title, len(phase.tasks)) for phase in progress.phases] == [
        ("Fetch and convert missing weights", 1),
        ("Install the driver", 2),
        ("Look again, with the real cards", 1),
        ("Tune the host", 2),
        ("Serve", 4),
        ("Tune the host", 1),
    ]


def test_the_parts_are_those_of_the_site() -> None:
    plays = yaml.safe_load((ROOT / "site.yml").read_text(encoding="utf-8"))
    (play,) = [play for play in plays if play["name"] == NODE_BY_NODE]
    roles = {task[key]["name"] for task in play["tasks"] for key in INCLUDES if key in task}
    assert roles - set(PARTS) == {"serving_image"}


def test_times_are_from_a_tasks_start_to_whatever_comes_next() -> None:
    progress = follow(play("A"), task("x", "r"), result("ok"), task("y", "r"), play("B"), task("z", "r"))
    assert [task.seconds for phase in progress.phases for task in phase.tasks] == [2.0, 1.0, 1.0]
    assert progress.phases[0].seconds == 3.0


def test_a_task_has_changed_when_it_changed_on_one_host() -> None:
    progress = follow(
        play("A"), task("x", "r"), result("ok", res={"changed": True}), result("ok", res={"changed": False}), task("y")
    )
    assert [task.changed for task in progress.phases[0].tasks] == [True, False]
    assert progress.phases[0].changed == 1


def test_what_debug_says_last_is_kept_line_by_line() -> None:
    progress = follow(
        play("A"),
        task("x"),
        result("ok", task_action="ansible.builtin.debug", res={"msg": "first"}),
        result("ok", task_action="ansible.builtin.debug", res={"msg": ["8 cards", "Paris"]}),
        result("ok", task_action="ansible.builtin.command", res={"msg": "not this"}),
    )
    assert progress.messages == {"one": ["8 cards", "Paris"]}


def test_a_failure_is_the_plays_own_sentence() -> None:
    progress = follow(play("A"), task("x"), result("failed", res={"msg": "No card is free. Free one."}))
    assert progress.failures == {"one": "No card is free. Free one."}
    assert follow(play("A"), task("x"), result("failed", res={"msg": "n"}, ignore_errors=True)).failures == {}
    assert follow(play("A"), task("x"), result("unreachable", res={"msg": "ssh"})).failures == {"one": "ssh"}


def test_of_a_loop_the_items_that_failed_speak() -> None:
    items = [{"msg": "fine"}, {"failed": True, "msg": "bad one"}, {"failed": True, "msg": "worse"}]
    assert sentence({"msg": "One or more items failed", "results": items}) == "bad one\nworse"


def test_a_command_speaks_through_its_errors() -> None:
    assert sentence({"msg": "non-zero return code", "stderr": "no space"}) == "non-zero return code\nno space"
    assert sentence({}) == "The task failed without a message."


def test_ctrl_c_ends_ansible_and_its_workers(tmp_path: Path) -> None:
    """ansible-runner alone would leave the worker behind, with the task it is at."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"localhost": here}}}))
    begun = tmp_path / "begun"
    wait = {"name": "Wait", "ansible.builtin.command": {"argv": ["sh", "-c", 'touch "$0"; exec sleep 600', str(begun)]}}
    (tmp_path / "wait.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [wait]}]))

    def interrupt_when_begun() -> None:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_when_begun).start()
    inventory = tmp_path / "hosts.json"
    outcome = run(str(tmp_path / "wait.yml"), tmp_path / "run", lambda *_: None, time.monotonic, inventory)
    assert outcome.interrupted
    assert outcome.status != 0
    listed = subprocess.run(["ps", "-wweo", "args"], check=True, capture_output=True, text=True).stdout
    assert str(tmp_path) not in listed
