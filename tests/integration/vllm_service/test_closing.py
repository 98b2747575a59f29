"""The supervisor keeps others out of the ports of its server's own processes."""

from __future__ import annotations

import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gaudi.serving.closed_ports import ClosedPorts, is_closed
from gaudi.serving.failure import Failure
from gaudi_supervisor import clock, closing

from tests.integration.vllm_service.node import PATIENCE

if TYPE_CHECKING:
    from tests.integration.vllm_service.node import SupervisedNode

PORTS = ClosedPorts(28000, 28015)


@pytest.fixture
def closed(node: SupervisedNode) -> SupervisedNode:
    """A node with a plan that names ports to close."""
    node.plan["listen"]["closed_ports"] = [PORTS.first, PORTS.last]
    node.write_plan()
    return node


def rules(node: SupervisedNode) -> str:
    """What nft lists; empty where the table is not there."""
    path = node.root / "rules"
    return path.read_text() if path.exists() else ""


def test_they_are_closed_before_the_container_starts_and_open_when_it_has_ended(closed: SupervisedNode) -> None:
    process = closed.start()
    closed.wait_for(closed.container_exists, "the container")
    assert is_closed(rules(closed), PORTS)
    closed.wait_ready()
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert rules(closed) == ""


def test_a_server_whose_ports_cannot_be_closed_does_not_start(closed: SupervisedNode) -> None:
    (closed.root / "nft-fails").write_text("Error: Could not process rule: Operation not permitted")
    status, output = closed.run()
    assert (status, closed.state["reason"]["kind"]) == (78, "ports-open")
    assert not closed.container_exists()
    assert "Ports 28000-28015 of the server's own processes cannot be closed to others" in output
    assert "Operation not permitted" in output


def test_a_node_without_nft_is_told_which_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Failure, match="Install the package nftables"):
        closing.Closing("tiny", PORTS).close()
    # Where nothing is to be closed, nothing is missing.
    closing.Closing("tiny", None).close()
    closing.Closing("tiny", None).end()


@pytest.fixture
def beside(node: SupervisedNode, monkeypatch: pytest.MonkeyPatch) -> SupervisedNode:
    """A node whose nft this process calls."""
    monkeypatch.setenv("PATH", f"{Path(__file__).parent / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_NODE", str(node.root))
    return node


@pytest.mark.report("S02")
def test_a_table_that_somebody_took_away_comes_back_and_is_told(
    beside: SupervisedNode, capsys: pytest.CaptureFixture[str]
) -> None:
    held = closing.Closing("tiny", PORTS)
    held.close()
    held.hold()
    assert capsys.readouterr().out == ""
    (beside.root / "rules").unlink()
    held.hold()
    assert is_closed(rules(beside), PORTS)
    assert "were gone. They are there again." in capsys.readouterr().out


def test_what_cannot_be_closed_again_is_told_once_and_ends_nothing(
    beside: SupervisedNode, capsys: pytest.CaptureFixture[str]
) -> None:
    held = closing.Closing("tiny", PORTS)
    (beside.root / "nft-fails").write_text("Error: no")
    held.hold()
    held.hold()
    assert capsys.readouterr().out.count("cannot be closed") == 1
    (beside.root / "nft-fails").unlink()
    held.hold()
    assert is_closed(rules(beside), PORTS)


def test_ports_of_a_serving_instance_are_closed_again(closed: SupervisedNode) -> None:
    assert clock.POLL_SERVING <= 10
    closed.start()
    closed.wait_ready()
    (closed.root / "rules").unlink()
    closed.wait_for(lambda: is_closed(rules(closed), PORTS), "the table")


def test_ports_are_closed_again_while_the_server_loads(closed: SupervisedNode) -> None:
    """A warm-up takes half an hour, and the server's own processes listen from its beginning."""
    closed.scenario(lines=["INFO loading"], serve=False)
    closed.start()
    closed.wait_for(lambda: is_closed(rules(closed), PORTS), "the first table")
    closed.wait_for(closed.container_exists, "the container")
    (closed.root / "rules").unlink()
    closed.wait_for(lambda: is_closed(rules(closed), PORTS), "the table")


def test_ports_are_closed_again_while_requests_finish(closed: SupervisedNode) -> None:
    process = closed.start()
    closed.wait_ready()
    with ThreadPoolExecutor() as pool:
        url = f"http://127.0.0.1:{closed.port}/slow"
        answer = pool.submit(lambda: int(urllib.request.urlopen(url, timeout=PATIENCE).status))
        requests = closed.root / "requests"
        closed.wait_for(lambda: requests.exists() and "/slow" in requests.read_text(), "the request")
        process.terminate()
        closed.wait_for(lambda: closed.state["phase"] == "draining", "the wait for the request")
        (closed.root / "rules").unlink()
        closed.wait_for(lambda: is_closed(rules(closed), PORTS), "the table")
        (closed.root / "slow-may-end").touch()
        assert answer.result() == 200
    process.communicate(timeout=PATIENCE)


def test_they_are_closed_again_while_the_engine_is_away(closed: SupervisedNode) -> None:
    process = closed.start()
    closed.wait_ready()
    (closed.root / "engine_down").touch()
    closed.wait_for(lambda: any("engine is gone" in text for text in closed.statuses), "the notice")
    (closed.root / "rules").unlink()
    closed.wait_for(lambda: is_closed(rules(closed), PORTS), "the table")
    (closed.root / "engine_down").unlink()
    process.terminate()
    process.communicate(timeout=PATIENCE)


def test_the_ports_stay_closed_while_a_stray_server_runs(closed: SupervisedNode) -> None:
    """Its supervisor was killed, and the engine does not end its container."""
    process = closed.start()
    closed.wait_ready()
    process.kill()
    process.communicate()
    (closed.root / "rm_fails").touch()
    assert closed.run(action="clean")[0] == 1
    assert closed.container_exists()
    assert is_closed(rules(closed), PORTS)
    (closed.root / "rm_fails").unlink()
    assert closed.run(action="clean")[0] == 0
    assert rules(closed) == ""


def test_clean_takes_the_table_away(closed: SupervisedNode) -> None:
    (closed.root / "rules").write_text("left by a killed supervisor")
    status, _ = closed.run(action="clean")
    assert status == 0
    assert rules(closed) == ""
