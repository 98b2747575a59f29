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

from simulator.playbook import PlaybookProgress, run


def play(name: str) -> dict[str, Any]:
    return {"event": "playbook_on_play_start", "event_data": {"name": name}}


def task(name: str, role: str | None = None) -> dict[str, Any]:
    return {"event": "playbook_on_task_start", "event_data": {"name": name, "role": role}}


def result(kind: str, **data: Any) -> dict[str, Any]:
    return {"event": f"runner_on_{kind}", "event_data": {"host": "one", **data}}


def follow(*events: dict[str, Any]) -> PlaybookProgress:
    progress = PlaybookProgress()
    for second, event in enumerate([*events, {"event": "playbook_on_stats"}]):
        progress.feed(event, 100.0 + second)
    return progress


def test_events_become_phases_with_the_times_of_their_tasks() -> None:
    progress = follow(
        play("A"), task("r : x", "r"), result("ok", res={"changed": True}), task("r : y", "r"), play("B"), task("z")
    )
    assert [
        (phase.title, [(task.name, task.seconds, task.changed) for task in phase.tasks])
        for phase in progress.run.phases
    ] == [("A", [("x", 2.0, True), ("y", 1.0, False)]), ("B", [("z", 1.0, False)])]


def test_a_failure_is_the_plays_own_sentence() -> None:
    progress = follow(play("A"), task("x"), result("failed", res={"msg": "No card is free. Free one."}))
    assert progress.failures == {"one": "No card is free. Free one."}
    assert follow(play("A"), task("x"), result("failed", res={"msg": "n"}, ignore_errors=True)).failures == {}
    assert follow(play("A"), task("x"), result("unreachable", res={"msg": "ssh"})).failures == {"one": "ssh"}


def test_ctrl_c_ends_ansible_and_its_workers(tmp_path: Path) -> None:
    """ansible-runner alone would leave the worker behind, with the task it is at."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"localhost": here}}}))
    begun = tmp_path / "begun"
    wait = {"name": "Wait", "ansible.builtin.command": {"argv": ["sh", "-c", 'touch "$0"; exec sleep 600', str(begun)]}}
    (tmp_path / "wait.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [wait]}]))

    def interrupt_when_begun() -> None:
        deadline = time.monotonic() + 300
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
