"""Containers that are known by what they were made from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import docker
from docker import DockerClient
from docker.models.containers import Container

from simulator.settings import LABEL

# The label whose value is a digest of what a container was made from.
INPUTS = f"{LABEL}.inputs"


def running(client: DockerClient, name: str, inputs: str, remove: Callable[[Container], None]) -> Container | None:
    """Give the container of a name, running, if it was made from these inputs; remove one made from others."""
    with contextlib.suppress(docker.errors.NotFound):
        existing = client.containers.get(name)
        if existing.labels.get(INPUTS) == inputs:
            if existing.status != "running":
                existing.start()
            return existing
        remove(existing)
    return None


def remove(container: Container) -> None:
    """Remove a container with its unnamed volumes."""
    container.remove(force=True, v=True)
