"""The network of a scope: where its nodes and its vault find each other, and how this machine reaches them."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

import docker
from docker import DockerClient

from simulator.settings import CHECKOUT, ROOT, Scope, SimulatorError

ADDRESS = "127.0.0.1"
# Below those that Linux gives to connections (from 32768 on), one of which could have a port while its node restarts.
PORTS = range(20000, 32768)


def ensure(client: DockerClient, scope: Scope) -> None:
    """Make sure the scope has its network; refuse a scope that another checkout has up on this engine."""
    owner = _owner(client, scope)
    if owner is None:
        client.networks.create(scope.prefix, driver="bridge", labels=scope.labels)
    elif owner != ROOT and not owner.exists():
        raise SimulatorError(
            f"A checkout that is gone ({owner}) left simulated nodes of scope {scope.name} on this Docker engine. "
            f"Remove them: GAUDI_SIMULATOR_SCOPE={scope.name} python -m simulator down."
        )
    else:
        refuse_others(client, scope)


def refuse_others(client: DockerClient, scope: Scope) -> None:
    """Refuse a scope that another checkout has up on this engine, unless that checkout is gone."""
    owner = _owner(client, scope)
    if owner not in (None, ROOT) and owner.exists():
        raise SimulatorError(
            f"Another checkout ({owner}) has the simulated nodes of scope {scope.name} up on this "
            "Docker engine. Take them down there (make demo-clean), or choose another scope here: "
            "GAUDI_SIMULATOR_SCOPE=mine make demo."
        )


def _owner(client: DockerClient, scope: Scope) -> Path | None:
    """Return the checkout that has the scope up; None if the scope is free."""
    found = client.networks.list(names=[f"^{scope.prefix}$"])
    return Path(found[0].attrs["Labels"][CHECKOUT]) if found else None


def remove(client: DockerClient, scope: Scope) -> None:
    """Remove the scope's network."""
    with contextlib.suppress(docker.errors.NotFound):
        client.networks.get(scope.prefix).remove()


def free_ports(count: int) -> list[int]:
    """Choose ports of this machine now, so that a container keeps them over restarts.

    All at once: a port that is free again could be chosen twice.
    """
    chosen: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.sample(PORTS, len(PORTS)):
            if len(chosen) == count:
                break
            with contextlib.suppress(OSError):  # somebody has it
                held.enter_context(socket.create_server((ADDRESS, port)))
                chosen.append(port)
    if len(chosen) < count:
        raise SimulatorError(
            f"{count} free ports of {ADDRESS} are needed, {len(chosen)} of {PORTS[0]} to {PORTS[-1]} are free. "
            "Take down what you no longer use: make demo-clean."
        )
    return chosen
