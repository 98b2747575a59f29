"""What a run prints: the sentences, without a run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from plugin_utils.phases import (
    COMMAND_LINES,
    NODE_BY_NODE,
    PARTS,
    Phase,
    RunPhases,
    Task,
    changed_line,
    duration,
    ended_line,
    names,
    sentence,
    went_no_further,
)
from plugin_utils.screen import WAITING, Screen

ROOT = Path(__file__).resolve().parent.parent.parent
INCLUDES = ("ansible.builtin.include_role", "ansible.builtin.import_role")


def follow(*steps: tuple[str, ...]) -> RunPhases:
    """Plays are ("name",), tasks ("name", "role")."""
    run = RunPhases()
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
        ("write", "node_job"),
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


def test_the_sentence_of_a_refusal_ends_with_its_id() -> None:
    assert sentence({"msg": "No card.", "refused_id": "no_cards"}) == "No card. [no_cards]"
    assert sentence({"msg": "No card. [no_cards]", "refused_id": "no_cards"}) == "No card. [no_cards]"


def test_the_sentence_of_a_filter_stands_alone() -> None:
    said = "No node has an image 'x' on record. There are: none."
    value = "Finalization of task args for 'ansible.builtin.debug' failed: Error while resolving value for 'msg': "
    assert sentence({"msg": f"Task failed: The filter plugin 'image_reference' failed: {said}"}) == said
    assert sentence({"msg": f"Task failed: {value}The filter plugin 'image_description' failed: {said}"}) == said
    for with_id in (f"{said} [no_such_image]", f"{said} [disk-full]"):
        assert sentence({"msg": f"Task failed: The filter plugin 'image_reference' failed: {with_id}"}) == with_id
    # A mistake of ours is no sentence, and Ansible's own filters are another matter: all of it helps.
    for kept in (
        "The filter plugin 'image_table' failed: 'images'",
        f"The filter plugin 'ansible.builtin.b64decode' failed: {said}",
    ):
        assert sentence({"msg": f"Task failed: {kept}"}) == f"Task failed: {kept}"


def test_of_a_long_output_the_end_is_shown() -> None:
    said = sentence({"msg": "non-zero return code", "stdout": "\n".join(map(str, range(1000)))})
    assert said.splitlines()[1:] == [str(line) for line in range(1000 - COMMAND_LINES, 1000)]


def test_a_condition_of_the_task_itself_is_named_as_the_cause() -> None:
    said = sentence({"failed_when_result": True, "rc": 0, "stdout": "ok"})
    assert said == "The failed_when condition of the task is met (exit status 0).\nok"
    assert sentence({"failed_when_result": True}) == "The failed_when condition of the task is met."
    # The module failed by itself.
    assert sentence({"failed_when_result": True, "rc": 1, "msg": "non-zero return code"}) == "non-zero return code"


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


def test_a_run_that_reached_every_node_has_no_list_of_them() -> None:
    assert went_no_further({"n1": "done", "n2": "failed"}, {}) == []
    # Ansible has localhost in no batch where no inventory names it.
    assert went_no_further({"localhost": "not reached"}, {}) == []


@pytest.mark.parametrize("said", [7, [["a"]], "chat", {"chat": 1}, [None, "\x1b[2J"], None])
def test_a_node_that_reports_something_odd_ends_no_list_of_nodes(said: object) -> None:
    turns = {"n1": "failed", "evil": "not reached", "good": "not reached"}
    lines = went_no_further(turns, {"evil": said, "good": ["chat"]})
    assert [line.split()[-2:] for line in lines[2:4]] == [["not", "reached"], ["ran", "before"]]
    assert lines[3].split()[:4] == ["good", "not", "reached:", "chat"]


@pytest.mark.parametrize("results", [7, [7], "odd", {"failed": True}, [["failed"]]])
def test_a_failure_is_told_whatever_else_a_node_returns(results: object) -> None:
    assert sentence({"failed": True, "msg": "It failed.", "results": results}) == "It failed."


def test_a_message_that_no_filter_has_is_not_searched() -> None:
    """A node's own: to search it may take hours, in which the run waits for all nodes."""
    said = "Task failed: The filter plugin 'a' failed: Too long{}."
    assert sentence({"failed": True, "msg": said.format("")}) == "Too long."
    longer = said.format("!" * 20_000)
    assert sentence({"failed": True, "msg": longer}) == longer
