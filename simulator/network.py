"""The network of a scope: where its nodes and its vault find each other, and how this machine reaches them."""

from __future__ import annotations

import contextlib
import socket

import docker
from docker import DockerClient

from simulator.settings import Scope

ADDRESS = "127.0.0.1"


def ensure(client: DockerClient, scope: Scope) -> None:
    """Make sure the scope has its network."""
    if not client.networks.list(names=[f"^{scope.prefix}$"]):
        client.networks.create(scope.prefix, driver="bridge", labels=scope.labels)


def remove(client: DockerClient, scope: Scope) -> None:
    """Remove the scope's network."""
    with contextlib.suppress(docker.errors.NotFound):
        client.networks.get(scope.prefix).remove()


def free_port() -> int:
    """Choose a port of this machine now, so that a container keeps it over restarts."""
    with socket.create_server((ADDRESS, 0)) as server:
        return int(server.getsockname()[1])
