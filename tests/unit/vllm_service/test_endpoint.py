"""What the supervisor's look at its server takes, whatever the container answers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from typing import Any

import pytest
from gaudi_supervisor import endpoint


class Own:
    """All sockets are the container's."""

    def sockets(self, _address: str, _port: int) -> frozenset[int]:
        return frozenset({1})


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
        own: Any = Own()
        asked = endpoint.Endpoint(f"http://127.0.0.1:{door.getsockname()[1]}", "tiny", None, own)
        said: list[str | None] = []
        asking = threading.Thread(target=lambda: said.append(asked.problem(models=False)), daemon=True)
        asking.start()
        asking.join(10)
        over.set()
        thread.join(10)
    assert said
    assert str(said[0]).startswith("no answer: ")
