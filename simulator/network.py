"""The network of a scope: where its nodes and its vault find each other, and how this machine reaches them."""

from __future__ import annotations

import contextlib
import random
import socket

import docker
from docker import DockerClient

from simulator.settings import CHECKOUT, ROOT, Scope, SimulatorError

ADDRESS = "127.0.0.1"
# Below those that Linux gives to connections (from 32768 on), one of which could have a port while its node restarts.
PORTS = range(20000, 32768)


def ensure(client: DockerClient, scope: Scope) -> None:
    """Make sure the scope has its network; refuse a scope that another checkout has up on this engine."""
    if not refuse_others(client, scope):
        client.networks.create(scope.prefix, driver="bridge", labels=scope.labels)


def refuse_others(client: DockerClient, scope: Scope) -> bool:
    """Refuse a scope that another checkout has up on this engine; tell whether this one has it up."""
    found = client.networks.list(names=[f"^{scope.prefix}$"])
    owner = found[0].attrs["Labels"][CHECKOUT] if found else str(ROOT)
    if owner != str(ROOT):
        raise SimulatorError(
            f"Another checkout ({owner}) has the simulated nodes of scope {scope.name} up on this "
            "Docker engine. Take them down there (make demo-clean), or choose another scope here: "
            "GAUDI_SIMULATOR_SCOPE=mine make demo."
        )
    return bool(found)


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
