"""Ports of this machine for servers that a test starts later, or more than once."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator

# Below those of recorded instances (tests/integration/vllm_service/takeover), of simulated nodes (simulator/network.py)
# and those that Linux gives to connections (from 32768 on):
# port 0 would choose one of the latter, which the next connection of another test may get.
PORTS = range(10000, 17000)
# How many ports a process has to itself at a time.
BLOCK = 100
_kept: list[socket.socket] = []


def _candidates() -> Iterator[int]:
    """Ports of this process alone: no other one on this machine takes a block whose socket it cannot bind."""
    for first in random.sample(PORTS[::BLOCK], len(PORTS) // BLOCK):
        owner = socket.socket(socket.AF_UNIX)
        try:
            owner.bind(f"\0gaudi-serving-tests-{first}")
        except OSError:
            owner.close()
            continue
        _kept.append(owner)
        yield from range(first, first + BLOCK)


_next = _candidates()


def free_port() -> int:
    """Choose a port at which nobody listens; it is not chosen again."""
    for port in _next:
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise AssertionError("all ports were chosen")
