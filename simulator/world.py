"""The whole simulated world of a scope: nodes, the vault with its images, the tiny model. Up, and down again."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from docker import DockerClient

from simulator import context, host, images, kernel, network, nodes, vault
from simulator.context import File
from simulator.inventory import Node
from simulator.settings import CACHE, ROOT, SIMULATOR, Scope, SimulatorError

TINY_MODEL = "Simulated-Tiny-Qwen2"

_RELEASES = ROOT / "catalog" / "releases"
_WISHES = ROOT / "inventories" / "simulated" / "group_vars" / "gaudi_nodes.yml"
_TINY_MODEL_BUILDER = SIMULATOR / "images" / "serving" / "build_tiny_model.py"
_WEIGHTS_ROOT = "data/models"

Say = Callable[[str], None]


def up(
    client: DockerClient,
    scope: Scope,
    names: Sequence[str],
    describe: str | Path,
    say: Say,
    releases: Sequence[str],
) -> list[Node]:
    """Make a scope's world, or find it there; without releases it has no vault."""
    wanted = {release: image_name(release) for release in releases}
    weights = tiny_model()
    kernel.record()
    started = nodes.up(client, scope, names, describe, say, weights)
    if wanted:
        registry = vault.start(client, scope, say)
    for release, (path, tag) in wanted.items():
        with host.lock("images"):
            image = images.serving(client, release, tag, say)
        vault.hold(client, registry, image, path, tag, say)
    return started


def down(client: DockerClient, scope: Scope, names: Sequence[str] | None = None) -> list[str]:
    """Remove a scope's nodes; with the last of them, its vault and its network."""
    removed = nodes.down(client, scope, names)
    if not nodes.containers(client, scope):
        vault.remove(client, scope)
        network.remove(client, scope)
    return removed


def wanted_release() -> str:
    """Give the release that the simulated inventory asks for."""
    return str(yaml.safe_load(_WISHES.read_text())["gaudi_release"])


def image_name(release: str) -> tuple[str, str]:
    """Give the path and the tag the vendor gave a release's serving image, from the catalogue."""
    try:
        document = yaml.safe_load((_RELEASES / f"{release}.yml").read_text())
    except FileNotFoundError:
        known = ", ".join(sorted(path.stem for path in _RELEASES.glob("*.yml")))
        raise SimulatorError(f"The catalogue has no release {release!r}. Known: {known}.") from None
    return document["image"]["path"], document["image"]["tag"]


def tiny_model() -> dict[str, File]:
    """Give the files of the tiny model where a node keeps its weights."""
    built = CACHE / "models" / context.digest({"builder": File(_TINY_MODEL_BUILDER.read_bytes())})
    with host.lock("models"):
        if not built.exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
                host.run([sys.executable, str(_TINY_MODEL_BUILDER), f"{scratch}/model"])
                Path(scratch, "model").rename(built)
    return context.tree(built, prefix=f"{_WEIGHTS_ROOT}/{TINY_MODEL}/")
