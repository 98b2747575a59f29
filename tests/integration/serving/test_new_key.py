"""Where a new key is shown: on a terminal, and in no log of a run unless somebody asks for that."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.playbook import run
from tests.unit.serving.test_keys import ROOT
from tests.unit.terminal import on_a_terminal

KEY = re.compile(r"gaudi-[A-Za-z0-9_-]{43}")
# Variables by which a job is recognised, which a job that runs these tests has as well.
RECORDERS = ("AWX_ISOLATED_DATA_DIR", "CI")


@pytest.fixture
def playbook(tmp_path: Path) -> Path:
    (play,) = yaml.safe_load((ROOT / "playbooks/keys.yml").read_text(encoding="utf-8"))
    (drawn,) = [task for task in play["tasks"] if "new_api_key" in task]
    shown = {"name": "Show it", "ansible.builtin.debug": {"msg": "drawn {{ keys_drawn.digest | length }}"}}
    variables = {**play["vars"], "instance": "chat", "create": "alice", "keys_nodes": ["one"]}
    play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": [drawn, shown]}
    (tmp_path / "key.yml").write_text(json.dumps([play]))
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"localhost": here}}}))
    return tmp_path / "key.yml"


def command(playbook: Path, *arguments: str) -> list[str]:
    program = str(Path(sys.executable).parent / "ansible-playbook")
    return [program, "-i", str(playbook.parent / "hosts.json"), str(playbook), *arguments]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in RECORDERS}
    return {**kept, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **more}


def in_a_pipe(playbook: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        command(playbook, *arguments), cwd=ROOT, env=environment(), check=False, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_a_terminal_shows_it_once(playbook: Path) -> None:
    status, said = on_a_terminal(command(playbook), ROOT, environment())
    assert (status, len(KEY.findall(said))) == (0, 1), said
    assert "drawn 64" in said


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_a_pipe_gets_no_key(playbook: Path, arguments: tuple[str, ...]) -> None:
    status, said = in_a_pipe(playbook, *arguments)
    assert (status, KEY.findall(said)) == (2, []), said
    for word in ("no terminal", "vllm_service_api_keys", "show_in_log=true"):
        assert word in said


def test_whoever_asks_for_it_gets_it_in_a_pipe(playbook: Path) -> None:
    status, said = in_a_pipe(playbook, "-e", "show_in_log=true")
    assert (status, len(KEY.findall(said))) == (0, 1), said


def test_a_terminal_of_a_ci_job_shows_none(playbook: Path) -> None:
    status, said = on_a_terminal(command(playbook), ROOT, environment(CI="true"))
    assert (status, KEY.findall(said)) == (2, []), said
    assert "CI" in said


def test_what_awx_runs_keeps_none(playbook: Path, tmp_path: Path) -> None:
    """ansible-runner gives ansible-playbook a terminal, and keeps all that it prints."""
    events: list[Mapping[str, Any]] = []
    outcome = run(
        str(playbook),
        tmp_path / "runner",
        lambda _, event: events.append(event),
        time.monotonic,
        inventory=playbook.parent / "hosts.json",
    )
    kept = outcome.output.read_text(encoding="utf-8") + json.dumps(events)
    assert (outcome.status, KEY.findall(kept)) == (2, [])
    assert "ansible-runner" in kept
