"""What simulated nodes build images from: a base image without vLLM, a git host, a Python index, packages for apt.

The repositories are stand-ins (``simulator/repositories``) behind git's own server program. A commit id cannot be
forged, so whoever builds from them names theirs (``commits``). One of them, ``SERVING``, becomes an image that
serves; the fork beside it is small, for tests of the build itself.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import docker
from docker import DockerClient

from simulator import apt, context, drivers, host, images, packages, supply, vault, wheelhouse, wheels
from simulator.context import ContextFile
from simulator.hub import git
from simulator.hub.server import running
from simulator.packages import SimulatedPackage
from simulator.settings import SIMULATOR, Scope

GIT = "simulated-git-host"
GIT_PORT = 8092
# Of a reader whom the host knows; another one is refused. Who says nothing may read what is not private.
GIT_TOKEN = "simulated-git-secret"  # noqa: S105 - a simulated one
INDEX = "simulated-build-index"
INDEX_PORT = 8094
PACKAGES = "simulated-system-packages"
PACKAGES_PORT = 8096
# What the vault calls the base image, and the build of it.
BASE_PATH = "gaudi-docker/simulated/pytorch-installer"
BASE_TAG = "1.22.2-32"
# That of a release whose engine is vLLM itself with the plugin.
PLUGIN_BASE_TAG = "1.24.1-482"

FOLDER = SIMULATOR / "repositories"
# The fork with the real vLLM for CPUs behind the front, and the release whose command line it has.
SERVING = "simulated/vllm"
SERVING_RELEASE = "1.22"
# Each as its origin names it, with the pin of a release that it stands for.
REPOSITORIES = {
    SERVING: "vllm_fork",
    "HabanaAI/vllm-fork": "vllm_fork",
    "vllm-project/vllm": "vllm",
    "vllm-project/vllm-gaudi": "vllm_gaudi",
    "HabanaAI/vllm-hpu-extension": "vllm_hpu_extension",
    "intel/neural-compressor": "neural_compressor",
    "HabanaAI/hccl_demo": "hccl_demo",
    "ofiwg/libfabric": "libfabric",
    "HabanaAI/hccl_ofi_wrapper": "hccl_ofi_wrapper",
}
# Repositories for readers with an account. The scenario images has one; inventories/simulated has none.
PRIVATE = ("HabanaAI/vllm-fork",)
# Of two repositories with one name, the folder of one.
_FOLDERS = {"vllm-project/vllm": "vllm-upstream"}

_REQUIREMENTS = SIMULATOR / "images" / "index" / "requirements.txt"
VLLM_REQUIREMENTS = SIMULATOR / "images" / "vllm" / "requirements.txt"

Say = Callable[[str], None]


def folder(repository: str) -> Path:
    """Where the files of a repository lie."""
    return FOLDER / _FOLDERS.get(repository, repository.partition("/")[2])


def files(repository: str) -> dict[str, ContextFile]:
    """What is in a repository."""
    found = context.tree(folder(repository))
    if repository == SERVING:
        serving, vllm = (SIMULATOR / "images" / name for name in ("serving", "vllm"))
        found |= {
            **context.tree(serving / "gaudi_simulated", prefix="gaudi_simulated/"),
            **surface(SERVING_RELEASE),
            "release": context.text(f"{SERVING_RELEASE}\n"),
            "inspect_model.py": ContextFile((serving / "inspect_model.py").read_bytes()),
            "scripts/run_example_tp.py": ContextFile((serving / "tools" / "run_example_tp.py").read_bytes()),
            "requirements/cpu.txt": ContextFile((vllm / "requirements.txt").read_bytes()),
            "trim.sh": ContextFile((vllm / "trim.sh").read_bytes()),
        }
    return found


def surface(release: str) -> dict[str, ContextFile]:
    """What a release knows, and what its file takes from others; a new release is no new commit of the fork."""
    found: dict[str, ContextFile] = {}
    name: str | None = release
    while name is not None:
        content = (SIMULATOR / "images" / "serving" / "surface" / f"{name}.json").read_bytes()
        found[f"surface/{name}.json"] = ContextFile(content)
        name = json.loads(content).get("extends")
    return found


def commits() -> dict[str, str]:
    """The commit that each repository has, by its name."""
    with tempfile.TemporaryDirectory(prefix="gaudi-sources-") as bare, running() as hub:
        for name in REPOSITORIES:
            for path, file in files(name).items():
                place = Path(bare, "files", name, path)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(file.content)
        return {name: git.publish(hub, name, Path(bare, "files", name), Path(bare)).main for name in REPOSITORIES}


def start(client: DockerClient, scope: Scope, registry: vault.Vault, say: Say) -> None:
    """Start the scope's git host, index and packages, and have its vault hold the base images."""
    start_git(client, scope, registry, say)
    with host.lock("images"):
        base = images.base(client, say)
        index = _index(say)
        mirror = {f"srv/packages/{path}": file for path, file in _system().items()}
        plugin = images.vendor(client, PLUGIN_BASE_TAG, say)
    vault.hold(client, registry, plugin, BASE_PATH, PLUGIN_BASE_TAG, say)
    with host.lock(f"scope-{scope.name}"):
        serve = supply.static("/srv/index", INDEX_PORT)
        supply.wait(supply.container(client, scope, base, INDEX, {}, serve, {index: "/srv/index"}), INDEX_PORT)
        serve = supply.static("/srv/packages", PACKAGES_PORT)
        supply.wait(supply.container(client, scope, base, PACKAGES, mirror, serve), PACKAGES_PORT)


def start_git(client: DockerClient, scope: Scope, registry: vault.Vault, say: Say) -> None:
    """Start the scope's git host, and have its vault hold the base image."""
    with host.lock("images"):
        base = images.base(client, say)
        server = images.build(client, "git", context.tree(SIMULATOR / "images" / "git"), {"BASE": base}, say)
        vendor = images.vendor(client, BASE_TAG, say)
    vault.hold(client, registry, vendor, BASE_PATH, BASE_TAG, say)
    hub = {
        **context.tree(SIMULATOR / "hub", prefix="srv/hub/simulator/hub/"),
        "srv/hub/simulator/__init__.py": context.text(""),
    }
    for name in REPOSITORIES:
        hub |= {f"srv/repositories/{name}/{path}": file for path, file in files(name).items()}
    command = [
        *("python3", "-m", "simulator.hub", "--kind", "git", "--address", "0.0.0.0"),  # noqa: S104 - the scope's network
        *("--name", GIT, "--port", str(GIT_PORT), "--token", GIT_TOKEN),
        *(f"--private={name}" for name in PRIVATE),
        *(f"{name}=/srv/repositories/{name}" for name in REPOSITORIES),
    ]
    with host.lock(f"scope-{scope.name}"):
        supply.wait(supply.container(client, scope, server, GIT, hub, command), GIT_PORT)


def _index(say: Say) -> Path:
    """The directory that the index serves: what builds need, the real vLLM for CPUs among it."""
    if not wheelhouse.held(VLLM_REQUIREMENTS):
        say("Download vLLM for CPUs")
    wheelhouses = [wheelhouse.directory(requirements) for requirements in (_REQUIREMENTS, VLLM_REQUIREMENTS)]
    # Those of a fork, of its extra [audio] and of its benchmark.
    names = ("simulated-common", "librosa", "soundfile", "datasets", "pandas")
    stand_ins = [wheels.wheel(name, "1.0", {f"{name.replace('-', '_')}.py": ""}) for name in names]
    # Of the plugin's: one that a constraint names, and one that came later.
    stand_ins += [wheels.wheel("transformers", version, {"transformers.py": ""}) for version in ("5.14.1", "5.17.0")]
    return wheelhouse.index(wheelhouses, dict(stand_ins))


def _system() -> dict[str, ContextFile]:
    """A repository of what a small build installs with apt. Callers hold the lock "images".

    The base image knows no key of it, so whoever asks it names that (``site``).
    """
    # What the base image puts in the place of Debian's, too.
    program = context.text('#!/bin/sh\nexec /opt/gaudi-simulated/bin/numactl "$@"\n', 0o755)
    made = SimulatedPackage(
        "numactl", "2.0.16-1", drivers.ABOUT, depends=("libnuma1",), files={"usr/bin/numactl": program}
    )
    return packages.repository([made], apt.SUITE, drivers.signer())


def site() -> dict[str, object]:
    """What an inventory may say of the packages for apt: no image knows the key that signs them."""
    with host.lock("images"):
        return {"simulator_apt_key": drivers.signer().public}


def remove(client: DockerClient, scope: Scope) -> None:
    """Remove the scope's git host, index and packages."""
    for name in (GIT, INDEX, PACKAGES):
        with contextlib.suppress(docker.errors.NotFound):
            client.containers.get(f"{scope.prefix}-{name}").remove(force=True, v=True)
