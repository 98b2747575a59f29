"""The layers of the serving image, pulled once for the engines of all nodes.

Most of what a node's engine does to pull the image is unpacking 2.5 GB. A node that is started after ``simulator
images`` finds the layers below /var/lib/docker, without an image that would name them. Its engine still asks the vault
for the image, takes manifest and configuration from there, and finds that each layer "already exists". Without the
volume, as in a demo on a new machine, it fetches them all.
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
# Debian's engine, as the role container_runtime installs it; then its names for the image go, and the engine's own.
_PULL = """
set -eu
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends docker.io
docker pull "$0"
systemctl stop docker.socket docker.service containerd.service
cd /var/lib/docker
test -d image/overlay2/layerdb
rm -rf image/overlay2/imagedb image/overlay2/repositories.json
find . -mindepth 1 -maxdepth 1 ! -name image ! -name overlay2 -exec rm -rf {} +
"""


def held(client: DockerClient, image: str) -> bool:
    """Tell whether the layers of an image are kept."""
    volume = _volume(client)
    return volume is not None and volume.attrs["Labels"].get(_SERVED) == image


def keep(client: DockerClient, image: str, name: str, node: Container, engine: str) -> None:
    """Have a node that nobody needs any more pull an image by its name in the vault, and keep its layers.

    engine: the volume that the node's engine writes to.
    """
    result = node.exec_run(["sh", "-c", _PULL, name])
    if result.exit_code:
        said = host.last_lines(cast("bytes", result.output).decode(errors="replace"))
        raise SimulatorError(f"A simulated node could not pull {name} (status {result.exit_code}):\n{said}")
    with host.lock("layers"):
        if volume := _volume(client):
            volume.remove()
        client.volumes.create(VOLUME, labels={LABEL: IMAGES, _SERVED: image})
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
