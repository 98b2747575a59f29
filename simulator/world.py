"""The whole simulated world of a scope: nodes, the vault with its images, hub and index. Up, and down again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from docker import DockerClient

from plugin_utils import releases as catalogue
from simulator import (
    apt,
    context,
    drivers,
    host,
    images,
    kernel,
    layers,
    network,
    nodes,
    playbook,
    sources,
    supply,
    variants,
    vault,
)
from simulator.context import Files
from simulator.inventory import SimulatedNode
from simulator.settings import ROOT, Scope, SimulatorError
from simulator.standins import description

# Where the vault holds the image that was built for the inventory's release.
READY = "gaudi-serving/vllm"
# And the small one, in which the bandwidth between cards is measured.
MEASURING = "gaudi-serving/measuring"

# A release with the fork whose server the same front stands for: a node moves between it and the inventory's.
FORK = "1.21"

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
    system: str = apt.SYSTEM,
    machine_settings: bool = False,
    buildable: bool = False,
    measuring: bool = False,
    packages: bool = False,
) -> list[SimulatedNode]:
    """Make a scope's world, or find it there; without releases it has nothing to fetch from: no vault, hub, index.

    The vault holds the releases' images ready, and the scope's inventory asks for these. buildable: there is what
    images are built from, and the nodes build theirs, as inventories/simulated says. measuring: the vault holds the
    small image alone, which serves nothing. packages: there is a repository with the driver's packages, and the
    scope's inventory names it. system: the nodes' operating system (apt.SUITES); the rest is Debian 12.
    """
    if measuring:
        return _measuring(client, scope, names, describe, say, system=system, machine_settings=machine_settings)
    wanted = {release: image_name(release) for release in releases}
    kernel.record()
    site: dict[str, object] = {}
    if not buildable:
        site = {"serving_image_build": False, **_ready(client, scope, list(wanted), say)}
    if buildable:
        site |= sources.site()
    if packages:
        site |= drivers.site()
        drivers.start(client, scope, say)
    started = _up(client, scope, names, describe, say, site, share, system=system, machine_settings=machine_settings)
    if wanted:
        registry = vault.start(client, scope, say)
        supply.start(client, scope, say, system)
        if buildable:
            sources.start(client, scope, registry, say)
            return started
    for release, (path, tag) in wanted.items():
        if not from_built(release):
            with host.lock("images"):
                image = images.serving(client, release, tag, say)
            vault.hold(client, registry, image, path, tag, say)
    return started


def _measuring(
    client: DockerClient,
    scope: Scope,
    names: Sequence[str],
    describe: str | Path,
    say: Say,
    *,
    system: str,
    machine_settings: bool,
) -> list[SimulatedNode]:
    """Start nodes beside a vault that holds what they measure with, and what that is built from."""
    kernel.record()
    with host.lock("images"):
        image = images.measuring(client, say)
    site: dict[str, object] = {
        "serving_image_build": False,
        "serving_image_ref": f"{vault.NAME}/{MEASURING}:simulated",
    }
    started = _up(client, scope, names, describe, say, site, system=system, machine_settings=machine_settings)
    registry = vault.start(client, scope, say)
    vault.hold(client, registry, image, MEASURING, "simulated", say)
    # For an image without hccl_demo, which is measured in one that is built on top of it.
    sources.start_git(client, scope, registry, say)
    return started


def build(client: DockerClient, say: Say) -> str:
    """Build all that a world with the inventory's release needs, and leave nothing running; give the image's name.

    A node builds the image as any node does, with the playbook, and pushes it into the vault; its layers are kept.
    One at a time: a scope is made for it, and ends with it.
    """
    scope = Scope("images")
    with host.lock("build"):
        with host.lock("images"):
            vendor = images.vendor(client, sources.BASE_TAG, say)
            images.node(client, say)
            images.vault(client, say)
        key = context.digest(_made_from(), vendor)
        name = f"{vault.NAME}/{READY}:simulated-{key}"
        if not layers.held(client, key):
            layers.forget(client)
            registry = vault.start(client, scope, say)
            supply.start(client, scope, say)
            sources.start(client, scope, registry, say)
            site: dict[str, object] = {"serving_image_name": f"{vault.NAME}/{READY}", "serving_image_push": True}
            _up(client, scope, ["builder"], description.DEFAULT, say, site)
            say("Build the serving image on a simulated node")
            _build_on(scope)
            (container,) = nodes.containers(client, scope)
            layers.keep(client, key, f"{vault.NAME}/{READY}", name, container, nodes.engine_volume(str(container.name)))
            down(client, scope)
    return name


def _up(
    client: DockerClient,
    scope: Scope,
    names: Sequence[str],
    describe: str | Path,
    say: Say,
    site: Mapping[str, object],
    share: str | None = None,
    *,
    system: str = apt.SYSTEM,
    machine_settings: bool = False,
) -> list[SimulatedNode]:
    """Start nodes of whom this is asked for."""
    nodes.set_site(scope, site)
    return nodes.up(client, scope, names, describe, say, share, system=system, machine_settings=machine_settings)


def _ready(client: DockerClient, scope: Scope, releases: Sequence[str], say: Say) -> dict[str, object]:
    """What an inventory says that asks for ready images: those made from the built one by name, others by their paths.

    The first release is the one that is asked for; with more of them, simulator_images has the image of each.
    """
    made = [release for release in releases if from_built(release)]
    if not made:
        return {}
    if len(made) < len(releases):
        raise SimulatorError(
            f"A scope has the image of release {wanted_release()}, which is built, and those of {FORK} and releases "
            f"with the plugin, or those of others: ask for {', '.join(releases)} in scopes of their own."
        )
    built = build(client, say)
    repository, tag = built.removeprefix(f"{vault.NAME}/").rsplit(":", 1)
    names = {}
    for release in made:
        names[release] = built
        if release != wanted_release():
            registry = vault.start(client, scope, say)
            with host.lock("vault"):
                of_release = variants.hold(registry, repository, tag, release, image_name(release)[1])
            names[release] = f"{vault.NAME}/{repository}:{of_release}"
    return {
        "serving_image_ref": names[made[0]],
        **({} if made[0] == wanted_release() else {"gaudi_release": made[0]}),
        **({"simulator_images": names} if len(names) > 1 else {}),
    }


def from_built(release: str) -> bool:
    """Whether a release's image is the built one, or made from it."""
    return release in (wanted_release(), FORK) or "vllm_gaudi" in _document(release)["pins"]


def _made_from() -> Files:
    """All that the built image is made from, beside its base: what is asked for, what builds, what it builds from."""
    files = {_WISHES.name: context.ContextFile(_WISHES.read_bytes())}
    for name in (f"catalog/releases/{wanted_release()}.yml", "simulator/images/vllm/requirements.txt"):
        files[name] = context.ContextFile((ROOT / name).read_bytes())
    for name in ("roles/serving_image/files", "module_utils/gaudi/image"):
        files |= context.tree(ROOT / name, prefix=f"{name}/")
    return files


def _build_on(scope: Scope) -> None:
    """Have the scope's node build and push, as a site does."""
    outcome = playbook.run(
        "playbooks/build_image.yml",
        scope.directory / "runner",
        lambda *_: None,
        time.monotonic,
        GAUDI_SIMULATOR_SCOPE=scope.name,
    )
    if outcome.status:
        why = "\n".join(outcome.progress.failures.values()) or host.last_lines(outcome.output.read_text())
        raise SimulatorError(f"The serving image could not be built on a simulated node:\n{why}")


def down(client: DockerClient, scope: Scope, names: Sequence[str] | None = None) -> list[str]:
    """Remove a scope's nodes; with the last of them, its vault, hub, index and network. Not another checkout's."""
    network.refuse_others(client, scope)
    removed = nodes.down(client, scope, names)
    if not nodes.containers(client, scope):
        vault.remove(client, scope)
        supply.remove(client, scope)
        sources.remove(client, scope)
        drivers.remove(client, scope)
        network.remove(client, scope)
    return removed


def wanted_release() -> str:
    """Give the release that the simulated inventory asks for."""
    return str(yaml.safe_load(_WISHES.read_text())["gaudi_release"])


def image_name(release: str) -> tuple[str, str]:
    """Give the path and the tag the vendor gave a release's serving image, from the catalogue."""
    document = _document(release)
    return document["image"]["path"], document["image"]["tag"]


def _document(release: str) -> dict[str, Any]:
    try:
        return catalogue.read(release)
    except FileNotFoundError:
        known = ", ".join(catalogue.names())
        raise SimulatorError(f"The catalogue has no release {release!r}. Known: {known}.") from None
