"""What simulated nodes build images from: a base image without vLLM, a git host, a Python index.

The repositories are stand-ins (``simulator/repositories``) behind git's own server program. A commit id cannot be
forged, so whoever builds from them names theirs (:func:`commits`).
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import docker
from docker import DockerClient

from simulator import context, host, images, supply, vault, wheelhouse, wheels
from simulator.context import File
from simulator.hub import git
from simulator.hub.server import running
from simulator.settings import SIMULATOR, Scope

GIT = "simulated-git-host"
GIT_PORT = 8092
INDEX = "simulated-build-index"
INDEX_PORT = 8094
# What the vault calls the base image, and the build of it.
BASE_PATH = "gaudi-docker/simulated/base"
BASE_TAG = "1.22.2-32"

FOLDER = SIMULATOR / "repositories"
# Each as its origin names it, with the pin of a release that it stands for.
REPOSITORIES = {
    "HabanaAI/vllm-fork": "vllm_fork",
    "HabanaAI/vllm-hpu-extension": "vllm_hpu_extension",
    "intel/neural-compressor": "neural_compressor",
    "HabanaAI/hccl_demo": "hccl_demo",
    "ofiwg/libfabric": "libfabric",
    "HabanaAI/hccl_ofi_wrapper": "hccl_ofi_wrapper",
}

_REQUIREMENTS = SIMULATOR / "images" / "index" / "requirements.txt"

Say = Callable[[str], None]


def commits() -> dict[str, str]:
    """The commit that each repository has, by the name of its pin."""
    with tempfile.TemporaryDirectory(prefix="gaudi-sources-") as bare, running() as hub:
        # What Python left beside the files is in no container either.
        for path, file in context.tree(FOLDER).items():
            place = Path(bare, "files", path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.content)
        return {
            pin: git.publish(hub, name, Path(bare, "files", name.partition("/")[2]), Path(bare)).main
            for name, pin in REPOSITORIES.items()
        }


def start(client: DockerClient, scope: Scope, registry: vault.Vault, say: Say) -> None:
    """Start the scope's git host and index, and have its vault hold the base image."""
    with host.lock("images"):
        base = images.base(client, say)
        server = images.build(client, "git", context.tree(SIMULATOR / "images" / "git"), {"BASE": base}, say)
        vendor = images.vendor(client, BASE_TAG, say)
        packages = {wheel.name: wheel.read_bytes() for wheel in wheelhouse.directory(_REQUIREMENTS).glob("*.whl")}
    packages |= dict(
        [
            wheels.wheel("simulated-common", "1.0", {"simulated_common.py": ""}),
            wheels.wheel("simulated-sound", "1.0", {"simulated_sound.py": ""}),
        ]
    )
    vault.hold(client, registry, vendor, BASE_PATH, BASE_TAG, say)
    hub = {
        **context.tree(SIMULATOR / "hub", prefix="srv/hub/simulator/hub/"),
        "srv/hub/simulator/__init__.py": context.text(""),
        **context.tree(FOLDER, prefix="srv/repositories/"),
    }
    command = [
        *("python3", "-m", "simulator.hub", "--kind", "git", "--address", "0.0.0.0"),  # noqa: S104 - the scope's network
        *("--name", GIT, "--port", str(GIT_PORT)),
        *(f"{name}=/srv/repositories/{name.partition('/')[2]}" for name in REPOSITORIES),
    ]
    index = {
        f"srv/index/simple/{supply.project(name)}/{name}": File(content) for name, content in sorted(packages.items())
    }
    with host.lock(f"scope-{scope.name}"):
        started = [
            (supply.container(client, scope, server, GIT, hub, command), GIT_PORT),
            (supply.container(client, scope, base, INDEX, index, supply.static("/srv/index", INDEX_PORT)), INDEX_PORT),
        ]
        for container, port in started:
            supply.wait(container, port)


def remove(client: DockerClient, scope: Scope) -> None:
    """Remove the scope's git host and index."""
    for name in (GIT, INDEX):
        with contextlib.suppress(docker.errors.NotFound):
            client.containers.get(f"{scope.prefix}-{name}").remove(force=True, v=True)
