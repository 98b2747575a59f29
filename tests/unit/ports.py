"""Ports of this machine for servers that a test starts later, or more than once."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterator

# Below those of simulated nodes (simulator/network.py) and those that Linux gives to connections (from 32768 on):
# port 0 would choose one of the latter, which the next connection of another test may get.
PORTS = range(10000, 20000)


def _candidates() -> Iterator[int]:
    """Ports of this process, without end: processes of pytest-xdist that run beside it have others."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = PORTS[process :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    begin = random.randrange(len(own))
    while True:
        yield from own[begin:]
        yield from own[:begin]


_next = _candidates()


def free_port() -> int:
    """Choose a port at which nobody listens; it is not chosen again before all others were."""
    for port in _next:
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise AssertionError("the ports have no end")
