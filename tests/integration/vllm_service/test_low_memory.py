"""What the real supervisor has the kernel do before a start: compact memory, and drop caches where a site allows it."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.integration.vllm_service.node import PATIENCE, SupervisedNode


def stopped(process: subprocess.Popen[str]) -> str:
    """Have it stop; its output."""
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    return output


def test_memory_is_compacted_before_a_start_and_caches_are_kept(node: SupervisedNode) -> None:
    node.low_memory(0)
    with node.kernel(("compact_memory", 2)) as written:
        process = node.start("--drop-caches")
        node.wait_ready()
    assert written == ["compact_memory 1"]
    assert node.state["low_memory"] == {"pieces": 2, "before": 0, "after": 2, "compacted": True, "dropped": False}
    output = stopped(process)
    assert "Compacted memory; low memory has 2 free pieces of 4 MiB (before: 0; enough: 2)." in output
    assert "ctx_init" not in output
    assert (node.root / "proc/sys/vm/drop_caches").read_text() == ""


def test_caches_are_dropped_where_pieces_stay_short_and_the_site_allows_it(node: SupervisedNode) -> None:
    node.low_memory(0)
    with node.kernel(("compact_memory", 1), ("drop_caches", 1), ("compact_memory", 40)) as written:
        process = node.start("--drop-caches")
        node.wait_ready()
    assert written == ["compact_memory 1", "drop_caches 3", "compact_memory 1"]
    assert node.state["low_memory"] == {"pieces": 2, "before": 0, "after": 40, "compacted": True, "dropped": True}
    output = stopped(process)
    assert "Compacted memory; dropped caches" in output
    assert "low memory has 40 free pieces of 4 MiB (before: 0; enough: 2)." in output
    assert "ctx_init" not in output


def test_without_the_option_no_cache_is_dropped_and_the_option_is_named(node: SupervisedNode) -> None:
    node.low_memory(1)
    process = node.start()
    node.wait_ready()
    assert (node.root / "proc/sys/vm/compact_memory").read_text() == "1\n"
    assert (node.root / "proc/sys/vm/drop_caches").read_text() == ""
    assert "<4>gaudi-serving: The driver may find no piece for a card" in (output := stopped(process))
    assert "vllm_service_drop_caches: true" in output


@pytest.mark.parametrize("lacking", ["compact_memory", "buddyinfo"])
def test_a_kernel_without_it_keeps_no_instance_from_starting(node: SupervisedNode, lacking: str) -> None:
    path = node.root / "proc/sys/vm/compact_memory" if lacking == "compact_memory" else node.root / "proc/buddyinfo"
    path.unlink()
    process = node.start("--drop-caches")
    node.wait_ready()
    assert node.state["low_memory"]["compacted"] is (lacking == "buddyinfo")
    said = "compact_memory cannot be written (No such file or directory). The start goes on."
    assert (said in stopped(process)) is (lacking == "compact_memory")
    assert not path.exists()


def test_systemd_hears_of_a_supervisor_that_waits_for_the_kernel_and_it_stops_when_asked(node: SupervisedNode) -> None:
    path = node.root / "proc/sys/vm/compact_memory"
    path.unlink()
    os.mkfifo(path)
    process = node.start(WATCHDOG_USEC="400000")
    node.wait_for(lambda: node.messages.count("WATCHDOG=1") > 3, "some signs of life")
    assert "STATUS=waiting for the kernel (compact_memory)" in node.messages
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert not any(call[0] == "run" for call in node.calls)


def test_a_supervisor_that_attaches_compacts_nothing_and_keeps_what_is_known(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    known = node.state["low_memory"]
    process.kill()
    process.wait(PATIENCE)
    (node.root / "proc/sys/vm/compact_memory").write_text("")
    node.messages.clear()
    node.start()
    node.wait_ready()
    assert node.state["low_memory"] == known
    assert (node.root / "proc/sys/vm/compact_memory").read_text() == ""
