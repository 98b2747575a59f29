"""What simulated nodes fetch from: a hub with the simulated models, an index with the downloader's packages.

Both are containers on the scope's network, labelled and named as simulated, that stand in for huggingface.co and a
Python index. What they serve is built or downloaded on this machine first.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import docker
from docker import DockerClient
from docker.models.containers import Container

from simulator import apt, containers, context, host, images, network, wheelhouse
from simulator.context import Files
from simulator.hub import models
from simulator.settings import ROOT, SIMULATOR, Scope, SimulatorError

HUB = "simulated-hub"
HUB_PORT = 8090
INDEX = "simulated-python-index"
INDEX_PORT = 8091
# What an account there would have; repositories are open to those without one.
HUB_TOKEN = "hf_simulated_token_of_nobody"  # noqa: S105 - a simulated one
# Bytes a second: slow enough that a person sees the tiny model arrive.
HUB_RATE = 400_000

_REQUIREMENTS = ROOT / "roles" / "model_weights" / "files" / "requirements.txt"
_START_SECONDS = 30

Say = Callable[[str], None]


def start(client: DockerClient, scope: Scope, say: Say, system: str = apt.SYSTEM) -> None:
    """Start the scope's hub, and its index for the Python of the nodes' system, or find them running."""
    with host.lock("images"):
        image = images.base(client, say)
        index = wheelhouse.index([wheelhouse.directory(_REQUIREMENTS, wheelhouse.PYTHONS[system])], {})
    repositories = models.folders()
    hub = {
        **context.tree(SIMULATOR / "hub", prefix="srv/hub/simulator/hub/"),
        "srv/hub/simulator/__init__.py": context.text(""),
    }
    for name, folder in repositories.items():
        hub |= context.tree(folder, prefix=f"srv/models/{name}/")
    hub_command = [
        *("python3", "-m", "simulator.hub", "--address", "0.0.0.0", "--name", HUB),  # noqa: S104 - the scope's network
        *("--port", str(HUB_PORT), "--rate", str(HUB_RATE), "--token", HUB_TOKEN),
        *(f"{name}=/srv/models/{name}" for name in repositories),
    ]
    with host.lock(f"scope-{scope.name}"):
        network.ensure(client, scope)
        started = [
            container(client, scope, image, INDEX, {}, static("/srv/index", INDEX_PORT), {index: "/srv/index"}),
            container(client, scope, image, HUB, hub, hub_command),
        ]
        for each, port in zip(started, (INDEX_PORT, HUB_PORT), strict=True):
            wait(each, port)


def remove(client: DockerClient, scope: Scope) -> None:
    """Remove the scope's hub and index."""
    for name in (HUB, INDEX):
        with contextlib.suppress(docker.errors.NotFound):
            client.containers.get(f"{scope.prefix}-{name}").remove(force=True, v=True)


def static(folder: str, port: int) -> list[str]:
    """Give the command that serves a folder's files."""
    return ["python3", "-m", "http.server", "--directory", folder, str(port)]


def container(
    client: DockerClient,
    scope: Scope,
    image: str,
    name: str,
    files: Files,
    command: Sequence[str],
    shown: Mapping[Path, str] | None = None,
) -> Container:
    """Give a running container of the scope's network that has these files and runs this command.

    shown: directories of this machine, each with where the container sees it.
    """
    shown = shown or {}
    inputs = context.digest(files, image, *command, *map(str, shown))
    full_name = f"{scope.prefix}-{name}"
    if existing := containers.running(client, full_name, inputs, containers.remove):
        return existing
    made = client.containers.create(
        image,
        list(command),
        name=full_name,
        hostname=name,
        working_dir="/srv/hub",
        labels={**scope.labels, containers.INPUTS: inputs},
        volumes={str(directory): {"bind": where, "mode": "ro"} for directory, where in shown.items()},
        network=scope.prefix,
        networking_config={scope.prefix: client.api.create_endpoint_config(aliases=[name])},
        detach=True,
        init=True,
    )
    made.put_archive("/", context.archive(files))
    made.start()
    return made


def wait(container: Container, port: int) -> None:
    """Wait until something listens; the container has a network of its own, so it is asked from inside."""
    deadline = time.monotonic() + _START_SECONDS
    probe = f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)"
    while container.exec_run(["python3", "-c", probe]).exit_code:
        container.reload()
        if container.status != "running" or time.monotonic() > deadline:
            log = container.logs(tail=12, stream=False).decode(errors="replace")
            raise SimulatorError(f"{container.name} does not answer (container {container.status}):\n{log}")
        time.sleep(0.1)
