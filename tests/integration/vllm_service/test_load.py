"""What a supervisor writes of its server's load."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.vllm_service.node import Node


def test_a_serving_instance_says_its_load_and_a_stopped_one_none(node: Node) -> None:
    process = node.start()
    node.wait_ready()
    node.wait_for(lambda: node.state.get("load"), "its load")
    assert node.state["load"] == {"running": 0, "waiting": 0, "cache": None, "tokens_per_second": None}
    process.terminate()
    process.communicate(timeout=60)
    assert "load" not in node.state


def test_a_server_without_metrics_has_no_load(node: Node) -> None:
    node.scenario(lines=["INFO hello"], metrics=False)
    node.start()
    node.wait_ready()
    node.wait_for(lambda: "/metrics" in node.requests, "a look at its load")
    assert node.state.get("load") is None
