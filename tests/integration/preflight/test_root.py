"""The first look at a node: whether root is refused, or Python does not run there. A real Ansible asks stand-ins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.preflight.test_templates import task_of

ROLE = Path(__file__).resolve().parents[3] / "roles/preflight"
# sudo that lets everybody become root: it runs the shell that Ansible asks it to.
ALLOWS = 'while [ "$1" != /bin/sh ]; do shift; done\nPATH={bin}:$PATH exec "$@"\n'
REFUSES = 'echo "sudo: a password is required" >&2; exit 1\n'
TTY = 'echo "sudo: sorry, you must have a tty to run sudo" >&2; exit 1\n'
BROKEN = "echo \"ModuleNotFoundError: No module named 'encodings'\" >&2; exit 1\n"

SAID = "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'said'))) | to_json }}"


def program(path: Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each host is reported with; nothing for one that has root and Python."""
    folder = tmp_path_factory.mktemp("root")
    for name, number in (("root", 0), ("somebody", 1000)):
        program(folder / name / "id", f"echo {number}\n")
    sudo = program(folder / "sudo", ALLOWS.format(bin=folder / "root"))
    hosts = {
        "fine": {},
        "refused": {"ansible_become_exe": program(folder / "refuses", REFUSES)},
        "terminal": {"ansible_become_exe": program(folder / "terminal", TTY)},
        "somebody": {"ansible_become_exe": program(folder / "pretends", ALLOWS.format(bin=folder / "somebody"))},
        "without": {"ansible_python_interpreter": "/nowhere/python3"},
        "broken": {"ansible_python_interpreter": program(folder / "python3", BROKEN)},
    }
    common = {"ansible_connection": "local", "ansible_become_exe": sudo, "ansible_python_interpreter": sys.executable}
    report = task_of("preflight", "report", "Refuse a node that is not ready")["ansible.builtin.assert"]["fail_msg"]
    play = {
        "hosts": "all",
        "gather_facts": False,
        "become": True,
        "vars_files": [str(ROLE / "vars/main.yml")],
        # What a node that has root would be reported with next.
        "vars": {"preflight_node": {"report": ""}},
        "tasks": [
            {"ansible.builtin.import_tasks": str(ROLE / "tasks/root.yml")},
            {"ansible.builtin.set_fact": {"said": report}},
            # One module for all: each takes a process of its own.
            {"ansible.builtin.copy": {"dest": f"{folder}/said.json", "content": SAID}, "run_once": True}
            | {"become": False, "vars": {"ansible_python_interpreter": sys.executable}},
        ],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": common, "hosts": hosts}}), encoding="utf-8")
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", folder / "hosts.yml", folder / "play.yml"],
        # Who runs this as root is asked through sudo as well.
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROLE.parents[1] / "ansible.cfg"),
            "ANSIBLE_BECOME_ALLOW_SAME_USER": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: dict[str, str] = json.loads((folder / "said.json").read_text(encoding="utf-8"))
    return found


def test_root_and_python_are_there(said: dict[str, str]) -> None:
    assert said["fine"] == ""


@pytest.mark.parametrize(
    ("host", "cause", "seen"),
    [
        ("refused", "--ask-become-pass", "a password is required"),
        ("somebody", "may not become root", "id -u printed 1000"),
        pytest.param("terminal", "requiretty", "must have a tty", marks=pytest.mark.report("N01")),
    ],
)
def test_root_is_refused(said: dict[str, str], host: str, cause: str, seen: str) -> None:
    assert said[host].startswith(f"{host}: 1 problem, nothing was changed.\n  1. ")
    assert cause in said[host]
    assert seen in said[host]
    assert "Python" not in said[host]


@pytest.mark.parametrize(("host", "seen"), [("without", "/nowhere/python3: not found"), ("broken", "'encodings'")])
def test_python_does_not_run(said: dict[str, str], host: str, seen: str) -> None:
    assert said[host].startswith(
        f"{host}: 1 problem, nothing was changed.\n  1. The user of this connection may become"
    )
    assert seen in said[host]
    assert "sudo" not in said[host]
    assert "ansible_python_interpreter" in said[host]
