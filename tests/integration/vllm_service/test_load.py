"""What a supervisor writes of its server's load, and counts while it serves."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.integration.vllm_service.node import PATIENCE

if TYPE_CHECKING:
    from tests.integration.vllm_service.node import SupervisedNode


def test_a_serving_instance_says_its_load_and_a_stopped_one_none(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    node.wait_for(lambda: node.state.get("load"), "its load")
    assert node.state["load"] == {"running": 0, "waiting": 0, "cache": None, "tokens_per_second": None}
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert "load" not in node.state


def test_a_server_without_metrics_has_no_load(node: SupervisedNode) -> None:
    node.scenario(lines=["INFO hello"], metrics=False)
    node.start()
    node.wait_ready()
    node.wait_for(lambda: "/metrics" in node.requests, "a look at its load")
    assert node.state.get("load") is None


BUSY = """vllm:num_requests_waiting{engine="1"} 3.0
vllm:num_preemptions_total{engine="0"} 2.0
vllm:request_success_total{engine="0",finished_reason="length"} 4.0
vllm:request_success_total{engine="0",finished_reason="stop"} 5.0
"""
UNPREPARED = "(Worker_TP0 pid=7) WARNING 11-24 08:00:00 [hpu_model_runner.py:1] Configuration: {} was not warmed-up!"


def test_shapes_without_a_warm_up_are_counted_and_survive_the_next_supervisor(node: SupervisedNode) -> None:
    """A start by systemd begins again: the server compiles them again."""
    process = node.start()
    node.wait_ready()
    said = ("('prompt', 1, 3200, 0)", "('prompt', 1, 3200, 0)", "('decode', 40, 1, 128)")
    node.say("\n".join(map(UNPREPARED.format, said)))
    shapes = {"prompt 1 3200 0": 2, "decode 40 1 128": 1}
    node.wait_for(lambda: node.state["counts"]["shapes"] == shapes, "three lines about shapes")
    node.messages.clear()
    heard = node.root / "container.heard"
    heard.unlink()
    process.send_signal(signal.SIGHUP)
    node.wait_ready()
    # A line from before that is lost, as with any docker attach.
    node.wait_for(heard.exists, "the client of the next supervisor")
    assert node.state["counts"]["shapes"] == shapes
    node.say(UNPREPARED.format("('decode', 40, 1, 128)"))
    node.wait_for(lambda: node.state["counts"]["shapes"]["decode 40 1 128"] == 2, "one more line")
    process.terminate()
    process.communicate(timeout=PATIENCE)
    node.messages.clear()
    second = node.start()
    node.wait_ready()
    assert node.state["counts"]["shapes"] == {}
    second.terminate()
    second.communicate(timeout=PATIENCE)


def test_what_waits_is_cut_or_computed_again_is_counted(node: SupervisedNode) -> None:
    node.scenario(lines=["INFO hello"], metrics="1.0", more_metrics=BUSY)
    node.start()
    node.wait_ready()
    node.wait_for(lambda: node.state["counts"]["waited"] > 1, "two checks with waiting requests")
    counted = node.state["counts"]
    assert counted["checks"] == counted["waited"]
    assert (counted["most_waiting"], counted["preemptions"]) == (3, 2)
    assert (counted["finished"], counted["cut"]) == (9, 4)
