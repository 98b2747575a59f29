"""The whole simulated world of a scope: nodes, the vault with its images, hub and index. Up, and down again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from docker import DockerClient

from plugin_utils import releases as catalogue
from simulator import host, images, kernel, layers, network, nodes, sources, supply, vault
from simulator.inventory import Node
from simulator.settings import ROOT, Scope, SimulatorError
from simulator.standins import description

_WISHES = ROOT / "inventories" / "simulated" / "group_vars" / "gaudi_nodes.yml"

Say = Callable[[str], None]


def up(
    client: DockerClient,
    scope: Scope,
    names: Sequence[str],
    describe: str | Path,
    say: Say,
    releases: Sequence[str],
    share: str | None = None,
    *,
    own_settings: bool = False,
    buildable: bool = False,
) -> list[Node]:
    """Make a scope's world, or find it there; without releases it has nothing to fetch from: no vault, hub, index.

    buildable: there is also what images are built from.
    """
    wanted = {release: image_name(release) for release in releases}
    kernel.record()
    started = nodes.up(client, scope, names, describe, say, share, own_settings=own_settings)
    if wanted:
        registry = vault.start(client, scope, say)
        supply.start(client, scope, say)
        if buildable:
            sources.start(client, scope, registry, say)
    for release, (path, tag) in wanted.items():
        with host.lock("images"):
            image = images.serving(client, release, tag, say)
        vault.hold(client, registry, image, path, tag, say)
    return started


def build(client: DockerClient, say: Say) -> None:
    """Build all that a world with the inventory's release needs, and leave nothing running.

    One at a time: a scope is made for it, and ends with it.
    """
    scope, release = Scope("images"), wanted_release()
    path, tag = image_name(release)
    with host.lock("build"):
        up(client, scope, [], description.DEFAULT, say, [release])
        with host.lock("images"):
            image = images.serving(client, release, tag, say)
        if not layers.held(client, image):
            say("Pull the serving image once for all nodes")
            up(client, scope, ["layers"], description.DEFAULT, say, [release])
            (node,) = nodes.containers(client, scope)
            layers.keep(client, image, f"{vault.NAME}/{path}:{tag}", node, nodes.engine_volume(str(node.name)))
        down(client, scope)


def down(client: DockerClient, scope: Scope, names: Sequence[str] | None = None) -> list[str]:
    """Remove a scope's nodes; with the last of them, its vault, hub, index and network. Not another checkout's."""
    network.refuse_others(client, scope)
    removed = nodes.down(client, scope, names)
    if not nodes.containers(client, scope):
        vault.remove(client, scope)
        supply.remove(client, scope)
        sources.remove(client, scope)
        network.remove(client, scope)
    return removed


def wanted_release() -> str:
    """Give the release that the simulated inventory asks for."""
    return str(yaml.safe_load(_WISHES.read_text())["gaudi_release"])


def image_name(release: str) -> tuple[str, str]:
    """Give the path and the tag the vendor gave a release's serving image, from the catalogue."""
    try:
        document = catalogue.read(release)
    except FileNotFoundError:
        known = ", ".join(catalogue.names())
        raise SimulatorError(f"The catalogue has no release {release!r}. Known: {known}.") from None
    return document["image"]["path"], document["image"]["tag"]
