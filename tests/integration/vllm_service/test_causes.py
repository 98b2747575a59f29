"""What a supervisor makes of a failed server: the cause, told apart by the node, and when it is not tried again."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.integration.vllm_service.node import PATIENCE, SupervisedNode

ROOT_CAUSE = "RuntimeError: Generated 0 prompt buckets. Please increase the maximum"
NOT_MADE = (
    "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root"
    " cause."
)
NOT_STARTED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


def traced(process: str, error: str, depth: int = 1) -> list[str]:
    """A traceback as the logging of one process prints it."""
    frames = ['  File "/vllm/model.py", line 7, in forward', "    return layer()"] * depth
    lines = ["EngineCore failed to start.", "Traceback (most recent call last):", *frames, error]
    return [f"({process} pid=7) ERROR 11-26 10:00:00 [core.py:844] {line}" for line in lines]


def fails(node: SupervisedNode, *lines: str) -> int:
    """Run a server that prints these lines and ends; return the supervisor's exit status."""
    node.scenario(lines=list(lines), exit=1)
    return node.run()[0]


def test_supervisor_fault_of_the_second_worker_of_four_is_named_however_much_follows(node: SupervisedNode) -> None:
    own = traced("Worker_TP1", ROOT_CAUSE)
    others = [line for worker in (0, 2, 3) for line in traced(f"Worker_TP{worker}", "EOFError", depth=150)]
    wrapped = [*traced("EngineCore", NOT_MADE), *traced("APIServer", NOT_STARTED)]
    node.scenario(lines=[*own, *others, *wrapped], exit=1)
    code, output = node.run()
    assert code == 78
    reason = node.state["reason"]
    assert (reason["kind"], reason["retry"]) == ("wrong-buckets", False)
    assert ROOT_CAUSE in reason["message"]
    assert f"{reason['message']} [wrong-buckets]" in output
    assert node.state["status"].endswith("[wrong-buckets]")
    assert node.statuses[-1] == node.state["status"]


def test_supervisor_same_exception_twice_before_readiness_is_not_tried_a_third_time(node: SupervisedNode) -> None:
    boom = "ValueError: boom at 0x7f{}"
    assert fails(node, boom.format("01")) == 75
    # A process has other addresses each time.
    assert fails(node, boom.format("02")) == 78
    assert "twice in a row" in node.state["status"]
    assert not node.state["reason"]["retry"]
    # Somebody starts it: the count begins again.
    assert fails(node, boom.format("03")) == 75
    assert fails(node, boom.format("04")) == 78


def test_supervisor_exception_once_a_server_listens_is_not_stored_and_does_not_count(node: SupervisedNode) -> None:
    """Clients reach a server before the supervisor knows that it serves: their text decides nothing and is not kept."""
    lines = ["INFO:     Started server process [1]", "ValueError: no answer to 'my diary'"]
    assert [fails(node, *lines) for _ in range(3)] == [75, 75, 75]
    assert "exception" not in node.state["reason"]


def test_supervisor_another_exception_is_tried_again(node: SupervisedNode) -> None:
    assert [fails(node, f"ValueError: {word}") for word in ("a", "b", "a")] == [75, 75, 75]


def test_supervisor_transient_cause_is_tried_again(node: SupervisedNode) -> None:
    line = "RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."
    assert [fails(node, line) for _ in range(3)] == [75, 75, 75]


@pytest.mark.parametrize("change", ["plan", "boot", "driver"])
def test_supervisor_new_plan_boot_or_driver_begins_again(node: SupervisedNode, change: str) -> None:
    assert fails(node, "ValueError: boom") == 75
    if change == "plan":
        node.plan["served_model_name"] = "another"
        node.write_plan()
    elif change == "boot":
        (node.root / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    else:
        (node.root / "driver").write_text("1.24.2-17\n")
    assert fails(node, "ValueError: boom") == 75
    assert fails(node, "ValueError: boom") == 78


def test_supervisor_names_who_has_the_card(node: SupervisedNode) -> None:
    line = "RuntimeError: synStatus=8 [Device not found] Device acquire failed."
    assert fails(node, line) == 75
    assert node.state["reason"]["kind"] == "card-not-acquired"
    holder = node.worker("python3", "user.slice")
    assert fails(node, line) == 75
    assert node.state["reason"]["kind"] == "card-busy"
    assert f"(pid {holder.pid})" in node.state["reason"]["message"]


def test_supervisor_names_the_release_of_the_image_that_its_build_found(node: SupervisedNode) -> None:
    line = "RuntimeError: synStatus=8 [Device not found] Device acquire failed."
    (node.root / "driver").write_text("1.24.1-17\n")
    label = "gaudi-serving.image.version.habana-torch-plugin"
    (node.root / "image_labels").write_text(json.dumps({label: "1.24.1.17"}))
    assert fails(node, line) == 75
    assert node.state["reason"]["kind"] == "card-not-acquired"
    (node.root / "image_labels").write_text(json.dumps({label: "1.23.0.9"}))
    fails(node, line)
    assert node.state["reason"]["kind"] == "other-release"
    assert "1.23.0.9" in node.state["reason"]["message"]


# Any character devices will do: they are told apart by their numbers.
DEVICES = {"3": Path("/dev/zero"), "5": Path("/dev/null")}


def has_cards(folder: Path, indexes: Iterable[str], *, links: bool) -> None:
    """Give a folder devices of cards, or links to them."""
    (folder / "accel").mkdir(parents=True)
    for index in indexes:
        if links:
            (folder / f"accel/accel{index}").symlink_to(DEVICES[index])
        else:
            os.mknod(folder / f"accel/accel{index}", stat.S_IFCHR | 0o600, DEVICES[index].stat().st_rdev)


def kind_without_a_device(node: SupervisedNode) -> str:
    """The kind of end of a server that finds no device, though it has answered."""
    process = node.start()
    node.wait_ready()
    node.crash("RuntimeError: synStatus=8 [Device not found] Device acquire failed.")
    process.communicate(timeout=PATIENCE)
    kind: str = node.state["reason"]["kind"]
    return kind


@pytest.mark.parametrize(("passed", "kind"), [(("5",), "card-not-passed"), (("3", "5"), "card-not-acquired")])
def test_supervisor_compares_the_devices_of_the_container_with_those_of_the_node(
    node: SupervisedNode, passed: tuple[str, ...], kind: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make devices")
    has_cards(node.root / "dev", DEVICES, links=True)
    has_cards(node.root / "passed/dev", passed, links=False)
    assert kind_without_a_device(node) == kind


@pytest.mark.parametrize("link", ["accel", "accel/accel3"])
def test_supervisor_follows_no_link_in_the_containers_dev(node: SupervisedNode, link: str) -> None:
    has_cards(node.root / "dev", DEVICES, links=True)
    inside = node.root / "passed/dev"
    inside.mkdir(parents=True)
    if link == "accel":
        # A link of a container leads to the node's files, where root reads it.
        (inside / link).symlink_to(node.root / "dev/accel")
    else:
        has_cards(inside, DEVICES, links=True)
    assert kind_without_a_device(node) == "card-not-passed"


def test_supervisor_after_readiness_nothing_of_a_request_is_told_or_stored(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    node.crash(
        *traced("EngineCore", "ItsOwnError: Cannot compile grammar for 'root ::= secret'"),
        "(EngineCore pid=7) ERROR 11-26 10:00:00 [dump_input.py:76] Dumping scheduler output for model execution: "
        "SchedulerOutput(scheduled_new_reqs=[NewRequestData(req_id=a,prompt_token_ids=[1],prompt='secret')])",
        "ValueError: prompt_token_ids [1, 2] secret",
    )
    output, _ = process.communicate(timeout=PATIENCE)
    told = [line for line in output.splitlines() if "gaudi-serving: " in line]
    assert any("ItsOwnError" in line for line in told)
    assert "secret" not in " ".join(told) + json.dumps(node.state) + " ".join(node.messages)
    assert "exception" not in node.state["reason"]
