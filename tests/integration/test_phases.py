"""What whole runs of ansible-playbook on this machine print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugin_utils.phases import (
    COMMAND_LINES,
    NODE_BY_NODE,
)
from tests.unit.terminal import on_a_terminal

ROOT = Path(__file__).resolve().parent.parent.parent
INCLUDES = ("ansible.builtin.include_role", "ansible.builtin.import_role")


TASKS: list[dict[str, Any]] = [
    {"name": "main | Change a thing", "ansible.builtin.command": {"argv": ["true"]}},
    {"name": "Say lines", "ansible.builtin.debug": {"msg": ["first \x1b[2J", "second"]}},
    {"name": "Say items", "ansible.builtin.debug": {"msg": "item {{ item }}"}, "loop": ["x", "y"]},
    {"name": "Hold", "ansible.builtin.assert": {"that": "true", "success_msg": "It holds."}},
    {"name": "Hold too", "ansible.builtin.assert": {"that": "true"}},
    {"name": "Take long", "ansible.builtin.command": {"argv": ["true"]}, "async": 60, "poll": 1},
    {"name": "Keep a secret", "ansible.builtin.debug": {"msg": "secret"}, "no_log": True},
    {
        "name": "Go on",
        "block": [{"name": "Try", "ansible.builtin.fail": {"msg": "not this one"}}],
        "rescue": [{"name": "Repair", "ansible.builtin.command": {"argv": ["true"]}, "changed_when": False}],
    },
    {
        "name": "Refuse",
        "ansible.builtin.fail": {"msg": "No card is free.\nFree one."},
        "when": "inventory_hostname == 'b'",
    },
]


def command(folder: Path, *options: str, tasks: list[dict[str, Any]] = TASKS) -> list[str]:
    """A run of tasks on two hosts that are this machine."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "hosts.json").write_text(
        json.dumps({"all": {"hosts": {"a": here, "b": here}, "children": {"nobody": {}}}})
    )
    nothing = [{"name": "Do nothing", "ansible.builtin.command": {"argv": ["true"]}, "when": False}]
    plays = [
        {"name": "A play for nobody", "hosts": "nobody", "gather_facts": False, "tasks": nothing},
        {"name": "An idle play", "hosts": "all", "gather_facts": False, "tasks": nothing},
        {"name": "The play", "hosts": "all", "gather_facts": False, "tasks": tasks},
    ]
    (folder / "play.yml").write_text(json.dumps(plays))
    play = Path(sys.executable).with_name("ansible-playbook")
    return [str(play), "-i", str(folder / "hosts.json"), *options, str(folder / "play.yml")]


def run(folder: Path, *options: str, tasks: list[dict[str, Any]] = TASKS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *options, tasks=tasks), cwd=ROOT, check=False, capture_output=True, text=True, env=environment()
    )


def environment() -> dict[str, str]:
    return {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "120"}


def test_a_run_prints_changes_words_reasons_and_an_end(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    said = done.stdout
    assert "    · Change a thing: a, b\n" in said
    assert "\n  a:\n  first\n  second\n" in said
    assert said.count("  item x\n") == said.count("  item y\n") == 2
    assert said.count("  It holds.\n") == 2
    assert "  ✗ b: Refuse\n      No card is free.\n      Free one.\n" in said
    assert "\n  a : ok=" in said
    assert [line for line in said.splitlines() if not line.isprintable()] == []
    for hidden in (
        "not this one",
        "secret\n",
        "TASK [",
        "Origin:",
        "All assertions passed",
        "idle",
        "for nobody",
        "skipping",
    ):
        assert hidden not in said


@pytest.mark.parametrize(("lines", "shown"), [("", COMMAND_LINES), ("100", 100), ("0", 300)])
def test_as_much_of_a_failed_commands_output_is_printed_as_is_set(lines: str, shown: int, tmp_path: Path) -> None:
    count = {"argv": [sys.executable, "-c", "print(*range(300), sep='\\n')"]}
    task = {"name": "Count", "ansible.builtin.command": count, "failed_when": True, "loop": ["x"]}
    settings = {**environment(), **({"GAUDI_FAILED_COMMAND_LINES": lines} if lines else {})}
    done = subprocess.run(
        command(tmp_path, "--limit", "a", tasks=[task]), check=False, capture_output=True, text=True, env=settings
    )
    assert "The failed_when condition of the task is met (exit status 0)." in done.stdout
    printed = [int(line) for line in done.stdout.split() if line.isdigit()]
    assert printed == list(range(300 - shown, 300))


def test_what_fails_where_a_failure_is_dealt_with_is_said(tmp_path: Path) -> None:
    fail = "ansible.builtin.fail"
    block = {
        "name": "Try",
        "block": [{"name": "Change", fail: {"msg": "The new driver does not load."}}],
        "rescue": [{"name": "Go back", "block": [{"name": "Say", fail: {"msg": "The old one is back."}}]}],
    }
    done = run(tmp_path, tasks=[block])
    assert done.returncode == 2
    assert "  ✗ a: Say\n      The old one is back.\n" in done.stdout
    assert "does not load" not in done.stdout


def test_a_node_that_is_gone_is_named_where_a_failure_would_be_dealt_with(tmp_path: Path) -> None:
    """Ansible goes on from that in no block, and the run ended there without a word."""
    ping = {"name": "Ask it", "ansible.builtin.ping": None, "delegate_to": "{{ giver }}"}
    told = {"name": "Go on", "ansible.builtin.debug": {"msg": "goes on"}}
    play = {"name": "Look", "hosts": "one", "gather_facts": False, "tasks": [{"block": [ping], "rescue": [told]}]}
    hosts = {"one": {"ansible_connection": "local", "giver": "gone"}}
    hosts["gone"] = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": "1"}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    ran = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", tmp_path / "hosts.yml", tmp_path / "play.yml"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "✗ one -> gone: Ask it\n" in ran.stdout
    assert "Connection refused" in ran.stdout
    assert "goes on" not in ran.stdout


def roll(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A change on four nodes, two of which serve, as site.yml takes them; -e bad=NODE fails there."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {f"n{number}": here for number in (1, 2, 3, 4)}}}))
    serves = "{{ ['chat'] if inventory_hostname in ('n3', 'n4') else [] }}"
    plays = [
        {
            "name": "Look",
            "hosts": "all",
            "gather_facts": False,
            "tasks": [
                {
                    "name": "Look",
                    "ansible.builtin.set_fact": {"preflight_node": {"driver_first": False, "restarts": serves}},
                }
            ],
        },
        {
            "name": NODE_BY_NODE,
            "hosts": "all",
            "gather_facts": False,
            "serial": "{{ hostvars | default({}) | nodes_at_once }}",
            "tasks": [
                {**TURN, "ansible.builtin.include_tasks": str(ROOT / "playbooks/tasks/turn.yml")},
                {
                    "name": "Serve",
                    "ansible.builtin.assert": {
                        "that": "inventory_hostname != bad | default('')",
                        "fail_msg": "It does not serve.",
                        "quiet": True,
                    },
                },
            ],
        },
    ]
    (folder / "play.yml").write_text(json.dumps(plays))
    play = Path(sys.executable).with_name("ansible-playbook")
    return subprocess.run(
        [str(play), "-i", str(folder / "hosts.json"), *options, str(folder / "play.yml")],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environment(),
    )


(TURN,) = [
    task
    for play in yaml.safe_load((ROOT / "site.yml").read_text(encoding="utf-8"))
    if play["name"] == NODE_BY_NODE
    for task in play["tasks"]
    if "turn.yml" in str(task)
]
LEFT = "was left as it is, because n1 failed in this run: chat goes on with what ran before."


def test_a_change_ends_at_the_node_that_fails_and_says_what_became_of_each(tmp_path: Path) -> None:
    done = roll(tmp_path, "-e", "bad=n2")
    assert done.returncode == 2
    assert (
        "  n2 failed, so the run went no further.\n"
        "    n1  done\n"
        "    n2  failed\n"
        "    n3  not reached: chat goes on with what ran before\n"
        "    n4  not reached: chat goes on with what ran before\n"
    ) in done.stdout


def test_that_nobody_is_left_is_not_shouted_in_ansibles_words(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(
        json.dumps(
            [
                {
                    "name": "Go back",
                    "hosts": "localhost",
                    "gather_facts": False,
                    "serial": 1,
                    "max_fail_percentage": 0,
                    "tasks": [{"name": "Refuse", "ansible.builtin.fail": {"msg": "No."}}],
                }
            ]
        )
    )
    play = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [str(play), "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert (done.returncode, "  ✗ localhost: Refuse\n      No.\n" in done.stdout) == (2, True)
    assert "NO MORE HOSTS" not in done.stdout


def test_of_several_at_once_those_that_serve_are_left_after_a_failure(tmp_path: Path) -> None:
    """n2 has nothing that runs, so it goes on; Ansible itself would go on with n3 and n4 too."""
    done = roll(tmp_path, "-e", "bad=n1", "-e", "gaudi_nodes_at_once=2")
    assert (f"n3 {LEFT}" in done.stdout, f"n4 {LEFT}" in done.stdout, "n2: " in done.stdout) == (True, True, False)
    assert "went no further" not in done.stdout


@pytest.mark.report("N07")
def test_between_nodes_that_change_a_run_waits(tmp_path: Path) -> None:
    """Not before the first of them."""
    done = roll(tmp_path, "-e", "gaudi_nodes_pause=1")
    assert (done.returncode, done.stdout.count("Pausing for 1 seconds")) == (0, 1)
    assert "Pausing" not in roll(tmp_path, "-e", "gaudi_nodes_pause=1", "--check").stdout


def test_with_v_ansibles_own_callback_prints_everything(tmp_path: Path) -> None:
    said = run(tmp_path, "-v", tasks=TASKS[:1]).stdout
    assert "TASK [main | Change a thing]" in said
    assert "PLAY RECAP" in said


def test_a_check_says_that_nothing_was_changed(tmp_path: Path) -> None:
    assert "A check (--check): nothing was changed." in run(tmp_path, "--check", tasks=TASKS[:1]).stdout


def test_a_terminal_sees_what_goes_on_in_a_line_that_does_not_stay(tmp_path: Path) -> None:
    _, said = on_a_terminal(command(tmp_path, tasks=[TASKS[0], TASKS[-1]]), ROOT, environment())
    assert "  … The play: Change a thing" in said
    assert "\r\033[K  ✗ b: Refuse\r\n" in said
