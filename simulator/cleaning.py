"""Take everything away that the simulator made, and nothing else: what carries its label, what it recorded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from docker import DockerClient

from simulator import engine, host, kernel, world
from simulator.settings import CACHE, CHECKOUT, IMAGES, LABEL, ROOT, Scope
from simulator.vm.machine import machines

Say = Callable[[str], None]


def clean(scopes: list[Scope] | None, say: Say) -> None:
    """Clean up some scopes (all, when None); with the last of them, all that they shared."""
    client = engine.existing()
    if client is None and engine.RECORD.exists():
        # The machine was restarted since: what is left is in an engine that does not run.
        client = engine.ensure(say)
    for machine in machines() if scopes is None else []:
        machine.down()
        say(f"Switched off and removed the virtual machine {machine.name}")
    # Whoever builds images has no scope that would show it, and needs them for the first one.
    with host.alone() as alone:
        ours, others = _remove_scopes(client, scopes, say) if client is not None else ([], [])
        ours = [*(machine.name for machine in machines() if machine.process), *ours]
        if ours or others:
            hint = " (clean --all: every scope of this checkout)" if ours else ""
            say(f"Images, the engine and .cache stay for {', '.join([*ours, *others])}{hint}")
        elif not alone:
            say("Images, the engine and .cache stay: somebody else uses the simulator now. Clean again later.")
        else:
            _remove_everything_shared(client, say)


def _remove_scopes(client: DockerClient, scopes: list[Scope] | None, say: Say) -> tuple[list[str], list[str]]:
    """Remove scopes of this checkout; give the names of those that are left, its own and those of others."""
    for name, checkout in sorted(living_scopes(client)):
        if checkout == str(ROOT) and (scopes is None or Scope(name) in scopes):
            _remove_scope(client, Scope(name), say)
    living = sorted(living_scopes(client))
    ours = [name for name, checkout in living if checkout == str(ROOT)]
    return ours, [f"{name} (of {checkout})" for name, checkout in living if checkout != str(ROOT)]


def _remove_everything_shared(client: DockerClient | None, say: Say) -> None:
    """Remove what the scopes shared: images, the kernel's settings, the engine, the cache."""
    if client is not None:
        _remove_shared(client, say)
    for sentence in kernel.restore():
        say(sentence)
    installed = host.installed_packages()
    if engine.stop(say) and CACHE.exists():
        shutil.rmtree(CACHE)
    if installed:
        say(f"Installed for the simulator, and still here: {', '.join(installed)} (apt-get purge removes them)")


def living_scopes(client: DockerClient) -> set[tuple[str, str]]:
    """Give the scopes that have containers or a network, each with the checkout that made it."""
    filters: dict[str, Any] = {"label": LABEL}
    labels = [network.attrs["Labels"] for network in client.networks.list(filters=filters)]
    labels += [container.labels for container in client.containers.list(all=True, filters=filters)]
    return {(found[LABEL], found[CHECKOUT]) for found in labels if found[LABEL] != IMAGES}


def _remove_scope(client: DockerClient, scope: Scope, say: Say) -> None:
    removed = world.down(client, scope)
    say(f"Removed scope {scope.name}: {', '.join(removed) or 'no node'}, its vault, volumes and network")
    shutil.rmtree(scope.directory, ignore_errors=True)


def _remove_shared(client: DockerClient, say: Say) -> None:
    shared = f"{LABEL}={IMAGES}"
    for container in client.containers.list(all=True, filters={"label": shared}):
        container.remove(force=True, v=True)
    for volume in client.volumes.list(filters={"label": LABEL}):
        volume.remove()
    images = client.images.list(filters={"label": shared})
    for image in images:
        # In any order: an image whose last name goes leaves the layers that others still use.
        for name in image.tags or [str(image.id)]:
            client.images.remove(name, force=True)
    if images:
        say(f"Removed {len(images)} simulated images and what the vault held")
