"""Cards that an ended server still holds, before the real supervisor starts the next one."""

from __future__ import annotations

import subprocess

from tests.integration.vllm_service.node import PATIENCE, SupervisedNode

# As the scripted engine names its containers.
GROUP = f"system.slice/docker-{'c0' * 32}.scope"


def stopped(process: subprocess.Popen[str]) -> str:
    """Have it stop; its output."""
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    return output


def waits(node: SupervisedNode) -> list[str]:
    """What the status said while the supervisor waited for memory."""
    return [status for status in node.statuses if status.startswith("waiting for the memory of its cards")]


def test_memory_that_is_free_late_is_waited_for(node: SupervisedNode) -> None:
    node.used(m0=84000)
    process = node.start()
    node.wait_for(lambda: waits(node), "the wait")
    assert waits(node)[0].endswith("module 0 has 84000 MiB in use, held by no process that this node sees")
    assert not any(call[0] == "run" for call in node.calls)
    node.used()
    node.wait_ready()
    assert node.state["failures"] == 0
    stopped(process)


def test_memory_of_other_cards_and_of_idle_ones_is_no_reason_to_wait(node: SupervisedNode) -> None:
    node.used(m0=2048, m2=84000)
    process = node.start()
    node.wait_ready()
    assert waits(node) == []
    stopped(process)


def test_a_card_that_does_not_say_what_is_in_use_counts_as_free(node: SupervisedNode) -> None:
    (node.root / "memory.csv").write_text("0, N/A\n1, N/A\n")
    process = node.start()
    node.wait_ready()
    stopped(process)
    (node.root / "memory.csv").unlink()
    node.messages.clear()
    process = node.start()
    node.wait_ready()
    stopped(process)


def test_memory_that_nobody_holds_ends_the_attempt_and_the_remedy_is_named(node: SupervisedNode) -> None:
    node.used(m0=84000, m1=3000)
    status, output = node.run(FAKE_MEMORY_FREE="0.3")
    assert status == 75
    reason = node.state["reason"]
    assert (reason["kind"], reason["retry"]) == ("card-memory-held", True)
    assert "module 0 has 84000 MiB, module 1 has 3000 MiB in use, held by no process" in reason["message"]
    assert "hl-smi -r -i" in output
    assert not any(call[0] == "run" for call in node.calls)


def test_a_process_of_others_is_named_and_left_alone(node: SupervisedNode) -> None:
    """It may name its control group as it likes: where users may make groups, that is no container's."""
    theirs = node.worker("python3", f"user.slice/user-1000.slice/{GROUP.rpartition('/')[2]}")
    node.used(m0=84000)
    # The last supervisor's container had this very id.
    first = node.start()
    node.wait_for(lambda: waits(node), "the wait")
    node.used()
    node.wait_ready()
    stopped(first)
    node.used(m0=84000)
    status, output = node.run(FAKE_MEMORY_FREE="0.3")
    assert status == 75
    assert f"pid {theirs.pid} python3" in node.state["reason"]["message"]
    assert "docker rm --force" in output
    assert theirs.poll() is None


def test_a_worker_that_outlives_its_server_is_ended_when_the_server_ends(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    worker = node.worker("VLLM::Worker_TP", GROUP)
    node.crash("RuntimeError: it crashed")
    output, _ = process.communicate(timeout=PATIENCE)
    assert worker.wait(PATIENCE) == -9
    assert f"<4>gaudi-serving: Killed what outlived the container of tiny: pid {worker.pid} VLLM::Worker_TP" in output


def test_a_worker_that_is_left_from_before_is_ended_before_the_next_start(node: SupervisedNode) -> None:
    first = node.start()
    node.wait_ready()
    stopped(first)
    worker = node.worker("VLLM::Worker_TP", GROUP)
    node.used(m0=84000)
    node.messages.clear()
    process = node.start()
    assert worker.wait(PATIENCE) == -9
    node.used()
    node.wait_ready()
    assert f"pid {worker.pid} VLLM::Worker_TP" in waits(node)[0]
    stopped(process)


def test_what_runs_in_a_container_that_goes_on_is_left_alone(node: SupervisedNode) -> None:
    first = node.start()
    node.wait_ready()
    worker = node.worker("VLLM::Worker_TP", GROUP)
    node.used(m0=84000)
    first.kill()
    first.wait(PATIENCE)
    node.messages.clear()
    second = node.start()
    node.wait_ready()
    assert waits(node) == []
    assert worker.poll() is None
    stopped(second)
