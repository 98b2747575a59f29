"""What the supervisor's look at its server takes, whatever the container answers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from gaudi_supervisor import endpoint
from gaudi_supervisor.listening import Listening, Stranger
from gaudi_supervisor.run import Run
from gaudi_supervisor.state import SupervisorState


class OwnSockets:
    """All sockets are the container's."""

    def sockets(self, _address: str, _port: int) -> frozenset[int]:
        return frozenset({1})


class TakenSockets:
    """The container's sockets at the first check, another process at the second."""

    checks = 0

    def sockets(self, _address: str, _port: int) -> frozenset[int]:
        self.checks += 1
        if self.checks > 1:
            raise Stranger("The port is taken by another process")
        return frozenset({1})


def test_a_process_that_takes_the_port_before_the_connection_gets_no_token() -> None:
    own: Any = TakenSockets()
    with socket.create_server(("127.0.0.1", 0)) as thief:
        asked = endpoint.Endpoint(f"http://127.0.0.1:{thief.getsockname()[1]}", "tiny", "the-token", own)
        assert asked.problem(models=False) == "no answer: The port is taken by another process"
        accepted, _ = thief.accept()
        with accepted:
            assert accepted.recv(100) == b""
    assert asked.stranger == "The port is taken by another process"
    assert asked.asked == frozenset()


@pytest.mark.parametrize("address", ["", "http://127.0.0.1", "http://127.0.0.1:words"])
def test_an_address_without_a_port_is_refused(address: str) -> None:
    own: Any = OwnSockets()
    with pytest.raises(ValueError, match=r"port|Port"):
        endpoint.Endpoint(address, "tiny", None, own)


@pytest.mark.parametrize("part", [b"HTTP/1.1 100 Continue\r\n\r\n", b"H"], ids=["interim answers", "drops"])
def test_an_answer_without_end_holds_no_supervisor(part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "HTTP_TIMEOUT", 0.5)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            came, _ = door.accept()
            with came, contextlib.suppress(OSError):
                for _ in itertools.takewhile(lambda _number: not over.is_set(), itertools.count()):
                    came.sendall(part)
                    time.sleep(0.02)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        own: Any = OwnSockets()
        asked = endpoint.Endpoint(f"http://127.0.0.1:{door.getsockname()[1]}", "tiny", None, own)
        said: list[str | None] = []
        asking = threading.Thread(target=lambda: said.append(asked.problem(models=False)), daemon=True)
        asking.start()
        # Less than python -m tests.breaks gives a test: one that is ended there is not caught.
        asking.join(100)
        # Before the server ends, which would end the question as well.
        answered = not asking.is_alive()
        over.set()
        thread.join(300)
    assert answered
    assert str(said[0]).startswith("no answer: ")


def test_a_port_that_drops_what_comes_is_told_from_a_server_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "HTTP_TIMEOUT", 0.3)
    own: Any = OwnSockets()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as door, contextlib.ExitStack() as waiting:
        asked = endpoint.Endpoint(f"http://127.0.0.1:{door.getsockname()[1]}", "tiny", None, own)
        # The first is let in, and nothing answers it.
        assert asked.problem(models=False) == "no answer: timed out"
        assert not asked.shut
        for _ in range(4):
            held = waiting.enter_context(socket.socket())
            held.setblocking(False)
            held.connect_ex(door.getsockname())
        said = asked.problem(models=False)
        assert asked.shut
        assert f"no connection to port {door.getsockname()[1]} of 127.0.0.1 came through in 0.3 s" in str(said)
    assert str(asked.problem(models=False)).startswith("no answer: [Errno 111]")
    assert not asked.shut


def test_a_timeout_of_python_3_9_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.10 a socket's timeout is no TimeoutError."""

    class Former(OSError):
        pass

    def connect(_connection: Any) -> None:
        raise Former("timed out")

    monkeypatch.setattr(socket, "timeout", Former)
    monkeypatch.setattr("http.client.HTTPConnection.connect", connect)
    own: Any = OwnSockets()
    asked = endpoint.Endpoint("http://127.0.0.1:1", "tiny", None, own)
    assert "no connection to port 1 of 127.0.0.1 came through" in str(asked.problem(models=False))
    assert asked.shut


def test_only_the_seconds_in_which_no_connection_came_through_count() -> None:
    """A server that listens, stops listening and listens again is another one."""
    ended: list[tuple[int, str]] = []
    start: Any = object.__new__(Run)
    start.endpoint = SimpleNamespace(stranger=None, problem=lambda models: "no answer")
    settings = SimpleNamespace(unhealthy=10, stall=100)
    start.settings, start.state = settings, SupervisorState({})
    start.reporter = SimpleNamespace(publish=lambda *_: None)
    start.plan, start.starting = SimpleNamespace(endpoint="here"), SimpleNamespace(over=lambda: "")
    start.last_progress, start.shut_since, start.cards_passed = 0.0, None, ()
    for now, shut in ((0, True), (5, False), (11, True), (20, True), (22, True)):
        start.endpoint.shut = shut
        start.give_up = lambda reason, now=now: ended.append((now, reason.message))
        start.poll_starting(float(now))
    assert [(now, "for 11 s no connection" in text) for now, text in ended] == [(22, True)]


@pytest.mark.parametrize(("alone", "error"), [(1, ConnectionRefusedError), (0, Stranger)])
def test_who_listens_for_ipv6_alone_has_not_taken_the_port(alone: int, error: type[OSError]) -> None:
    """Anybody on the node can listen so before the server does; the server gets its port all the same."""
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, alone)
        other.bind(("::", 0))
        other.listen()
        looked = Listening(lambda: None, "vllm-tiny", "host")
        with pytest.raises(error) as refused:
            looked.sockets("127.0.0.1", other.getsockname()[1])
    assert type(refused.value) is error
