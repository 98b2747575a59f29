"""What a run prints: pure sentences, and whole runs of ansible-playbook on this machine."""

from __future__ import annotations

import io
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
    PARTS,
    Phase,
    Run,
    Task,
    changed_line,
    duration,
    ended_line,
    names,
    sentence,
    went_no_further,
)
from plugin_utils.screen import WAITING, Screen
from tests.unit.terminal import on_a_terminal

ROOT = Path(__file__).resolve().parent.parent.parent
INCLUDES = ("ansible.builtin.include_role", "ansible.builtin.import_role")


def follow(*steps: tuple[str, ...]) -> Run:
    """Plays are ("name",), tasks ("name", "role")."""
    run = Run()
    for second, step in enumerate(steps):
        run.end_task(100.0 + second)
        if len(step) == 1:
            run.begin_play(step[0])
        else:
            run.begin_task(step[0], step[1], 100.0 + second)
    run.end_task(100.0 + len(steps))
    return run


def test_a_phase_is_a_play_whatever_roles_it_goes_through() -> None:
    run = follow(("Prepare",), ("facts", ""), ("install", "docker"), ("pull", "image"), ("Serve",), ("check", ""))
    assert [(phase.title, [task.name for task in phase.tasks]) for phase in run.phases] == [
        ("Prepare", ["facts", "install", "pull"]),
        ("Serve", ["check"]),
    ]


def test_the_play_that_goes_node_by_node_is_followed_by_its_parts() -> None:
    run = follow(
        ("Fetch and convert missing weights",),
        ("fetch", ""),
        (NODE_BY_NODE,),
        ("include the driver's tasks", ""),
        ("install", "gaudi_driver"),
        ("look", "preflight"),
        ("set", "host_tuning"),
        ("write", "node_library"),
        ("look", "vllm_service"),
        ("allowed", "host_tuning"),
        ("start", "vllm_service"),
        ("prune", "serving_image"),
        (NODE_BY_NODE,),
        ("set", "host_tuning"),
    )
    assert [(phase.title, len(phase.tasks)) for phase in run.phases] == [
        ("Fetch and convert missing weights", 1),
        ("Wait for the node's turn", 1),
        ("Install the driver", 1),
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
    run = follow(("A",), ("x", "r"), ("y", "r"), ("B",), ("z", "r"))
    assert [task.seconds for phase in run.phases for task in phase.tasks] == [1.0, 1.0, 1.0]
    assert run.phases[0].seconds == 2.0


def test_of_a_loop_the_items_that_failed_speak() -> None:
    items = [{"msg": "fine"}, {"failed": True, "msg": "bad one"}, {"failed": True, "msg": "worse"}]
    assert sentence({"msg": "One or more items failed", "results": items}) == "bad one\nworse"


def test_a_command_speaks_through_its_errors_and_a_secret_task_not_at_all() -> None:
    assert sentence({"msg": "non-zero return code", "stderr": "no space"}) == "non-zero return code\nno space"
    assert sentence({"msg": "non-zero return code", "stdout": "ok\nfailed"}) == "non-zero return code\nok\nfailed"
    assert sentence({"msg": "non-zero return code", "stdout": "fine", "stderr": "why"}) == "non-zero return code\nwhy"
    assert sentence({"msg": ["two", "lines"]}) == "two\nlines"
    assert sentence({"censored": "hidden"}) == "hidden"
    assert sentence({}) == "The task failed without a message."


def test_the_sentence_of_a_filter_stands_alone() -> None:
    said = "No node has an image 'x' on record. There are: none."
    value = "Finalization of task args for 'ansible.builtin.debug' failed: Error while resolving value for 'msg': "
    assert sentence({"msg": f"Task failed: The filter plugin 'image_reference' failed: {said}"}) == said
    assert sentence({"msg": f"Task failed: {value}The filter plugin 'image_description' failed: {said}"}) == said
    # A mistake of ours is no sentence, and Ansible's own filters are another matter: all of it helps.
    for kept in (
        "The filter plugin 'image_table' failed: 'images'",
        f"The filter plugin 'ansible.builtin.b64decode' failed: {said}",
    ):
        assert sentence({"msg": f"Task failed: {kept}"}) == f"Task failed: {kept}"


def test_of_a_long_output_the_end_is_shown() -> None:
    said = sentence({"msg": "non-zero return code", "stdout": "\n".join(map(str, range(1000)))})
    assert said.splitlines()[1:] == [str(line) for line in range(1000 - COMMAND_LINES, 1000)]


def test_a_change_names_its_hosts_in_the_order_of_the_play_where_there_are_several() -> None:
    task = Task("Write", hosts=["b", "a"])
    assert changed_line(task, ["a", "b", "c"]) == "    · Write: a, b"
    assert changed_line(task, ["b"]) == "    · Write"
    assert names([f"n{number}" for number in range(8)]) == "n0, n1, n2, n3, n4 and 3 more"


def test_a_phase_ends_with_its_time_and_what_it_changed() -> None:
    phase = Phase("Serve", [Task("x", 55.0, ["a", "b"]), Task("y", 1.0)])
    assert ended_line(phase).split() == ["✓", "Serve", "56", "s", "1", "changed"]
    assert ended_line(phase, foreseen=True).split()[-3:] == ["1", "to", "change"]
    assert ended_line(Phase("Serve", failed=True)).split()[:2] == ["✗", "Serve"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s")],
)
def test_durations_read_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_passing_line_goes_before_anything_else_is_written() -> None:
    terminal = io.StringIO()
    screen = Screen(terminal)
    stream = screen.before(terminal)
    stream.write(f"{WAITING}one\n")
    stream.write("whole\n")
    stream.write("another\n")
    assert terminal.getvalue() == "\r\033[K\033[2m  … one\033[0m\r\033[Kwhole\nanother\n"


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
        "rescue": [{"name": "Mend", "ansible.builtin.command": {"argv": ["true"]}, "changed_when": False}],
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


def test_a_run_that_reached_every_node_has_no_list_of_them() -> None:
    assert went_no_further({"n1": "done", "n2": "failed"}, {}) == []
    # Ansible has localhost in no batch where no inventory names it.
    assert went_no_further({"localhost": "not reached"}, {}) == []


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
    said = run(tmp_path, "-v").stdout
    assert "TASK [main | Change a thing]" in said
    assert "PLAY RECAP" in said


def test_a_check_says_that_nothing_was_changed(tmp_path: Path) -> None:
    assert "A check (--check): nothing was changed." in run(tmp_path, "--check").stdout


def test_a_terminal_sees_what_goes_on_in_a_line_that_does_not_stay(tmp_path: Path) -> None:
    _, said = on_a_terminal(command(tmp_path), ROOT, environment())
    assert "  … The play: Change a thing" in said
    assert "\r\033[K  ✗ b: Refuse\r\n" in said
