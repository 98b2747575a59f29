"""The layers of the serving image, built once for the engines of all nodes.

Most of what a node's engine does to pull the image is unpacking 2.5 GB. A node that is started after ``simulator
images`` finds the layers below /var/lib/docker, without an image that would name them. Its engine still asks the vault
for the image, takes manifest and configuration from there, and finds that each layer "already exists".
"""

from __future__ import annotations

import contextlib
from typing import cast

import docker
from docker import DockerClient
from docker.models.containers import Container
from docker.models.volumes import Volume

from simulator import host, images
from simulator.settings import IMAGES, LABEL, SimulatorError

VOLUME = "gaudi-simulator-layers"

_SERVED = f"{LABEL}.layers"
# Below it in the volume; in place in one rename, so that what was interrupted is never given to a node.
_DIRECTORY = "layers"
# No engine writes into a layer's files once they are there, so links will do.
_COPY = "cp --archive --link"
# The image gets the name it is asked for by; then all names for it go, and the engine's own and its build cache.
_HAND_OVER = """
set -eu
docker tag "$(docker image ls --quiet "$0" | sort --unique)" "$1"
docker push --quiet "$1"
docker builder prune --all --force
systemctl stop docker.socket docker.service containerd.service
cd /var/lib/docker
test -d image/overlay2/layerdb
rm -rf image/overlay2/imagedb image/overlay2/repositories.json
find . -mindepth 1 -maxdepth 1 ! -name image ! -name overlay2 -exec rm -rf {} +
"""


def held(client: DockerClient, key: str) -> bool:
    """Tell whether the layers of an image are kept."""
    volume = _volume(client)
    return volume is not None and volume.attrs["Labels"].get(_SERVED) == key


def forget(client: DockerClient) -> None:
    """Keep no layers any more."""
    with host.lock("layers"):
        if volume := _volume(client):
            volume.remove()


def keep(client: DockerClient, key: str, repository: str, name: str, node: Container, engine: str) -> None:
    """Have a node that nobody needs any more push the one image it has of a repository by a name, and keep its layers.

    key: what the image is known by here. engine: the volume that the node's engine writes to.
    """
    result = node.exec_run(["sh", "-c", _HAND_OVER, repository, name])
    if result.exit_code:
        said = host.last_lines(cast("bytes", result.output).decode(errors="replace"))
        raise SimulatorError(f"A simulated node could not push {name} (status {result.exit_code}):\n{said}")
    with host.lock("layers"):
        if volume := _volume(client):
            volume.remove()
        client.volumes.create(VOLUME, labels={LABEL: IMAGES, _SERVED: key})
        kept = f"/mnt/{VOLUME}/_data"
        _run(client, f"{_COPY} /mnt/{engine}/_data {kept}/new && mv {kept}/new {kept}/{_DIRECTORY}")


def give(client: DockerClient, engine: str) -> None:
    """Put the layers that are kept, if any, where a new node's engine will look for them."""
    with host.lock("layers"):
        if _volume(client):
            kept = f"/mnt/{VOLUME}/_data/{_DIRECTORY}"
            _run(client, f"test ! -d {kept} || {_COPY} {kept}/. /mnt/{engine}/_data/")


def _volume(client: DockerClient) -> Volume | None:
    with contextlib.suppress(docker.errors.NotFound):
        return client.volumes.get(VOLUME)
    return None


def _run(client: DockerClient, command: str) -> None:
    """Run a command where all volumes are below /mnt: in one mount, since links do not cross mounts."""
    volumes = f"{client.info()['DockerRootDir']}/volumes"
    client.containers.run(
        images.base(client, print),
        ["sh", "-euc", command],
        volumes={volumes: {"bind": "/mnt", "mode": "rw"}},
        # For the marks that overlayfs has on directories (trusted.overlay.opaque).
        cap_add=["SYS_ADMIN"],
        network_mode="none",
        labels=images.LABELS,
        remove=True,
    )
