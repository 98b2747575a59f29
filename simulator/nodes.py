"""Simulated nodes: containers that boot systemd and answer ssh as a freshly installed server does."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import docker
from docker import DockerClient
from docker.models.containers import Container

from simulator import apt, context, host, images, inventory, keys, layers, network
from simulator import containers as made
from simulator.context import Files
from simulator.inventory import SimulatedNode
from simulator.settings import LABEL, Scope, SimulatorError
from simulator.standins import description

DEFAULT_NAME = "simulated-gaudi-1"
# What the examples and scenarios serve on; published so that a browser on this machine reaches them.
API_PORTS = (30001, 30002, 30003)

_NODE = f"{LABEL}.node"
_DESCRIPTION = f"{LABEL}.description"
_HOST_KEY = f"{LABEL}.host-key"
_BOOT_SECONDS = 90
# On cgroup v2 there is no such hierarchy, and a paused process can be killed.
_THAW = r"""
sed -n 's|^[0-9]*:freezer:\(/.*\)|/sys/fs/cgroup/freezer\1/freezer.state|p' /proc/[0-9]*/cgroup | sort -u |
while read -r state; do if [ -w "$state" ]; then echo THAWED >"$state"; fi; done
"""

Say = Callable[[str], None]


@dataclass(frozen=True)
class _Kind:
    """What nodes that are started together have in common; see up."""

    image: str
    described: str
    files: Files
    share: str | None
    machine_settings: bool

    @property
    def inputs(self) -> str:
        return context.digest(
            self.files, self.image, self.share or "", "machine settings" if self.machine_settings else ""
        )


def up(
    client: DockerClient,
    scope: Scope,
    names: Sequence[str],
    describe: str | Path,
    say: Say,
    share: str | None = None,
    *,
    system: str = apt.SYSTEM,
    machine_settings: bool = False,
) -> list[SimulatedNode]:
    """Start nodes, or find them running as described already; return when systemd and ssh answer on all.

    share: a directory that is the same on all nodes of the scope that have it, as a network file system is.
    system: the nodes' operating system, one of apt.SUITES.
    machine_settings: kernel settings that are set on a node are set on this machine; otherwise nodes have copies.
    """
    try:
        document = description.load(describe)
    except ValueError as error:
        raise SimulatorError(str(error)) from error
    with host.lock(f"scope-{scope.name}"):
        network.ensure(client, scope)
    with host.lock("images"):
        image = images.node(client, say, system)
    with host.lock(f"scope-{scope.name}"):
        files = {
            description.NODE_DOCUMENT.lstrip("/"): context.text(description.render(document)),
            f"home/{inventory.USER}/.ssh/authorized_keys": context.text(_user_key(scope)),
        }
        kind = _Kind(image, document["description"], files, share, machine_settings)
        started = [_start(client, scope, name, kind, say) for name in names]
        for container in started:
            _wait_for_boot(container)
        found = write_inventory(client, scope)
    nodes = [found[name] for name in names]
    for node in nodes:
        _wait_for_ssh(scope, node)
    return nodes


def shared_volume(scope: Scope) -> str:
    """Name what nodes of a scope share a directory on."""
    return f"{scope.prefix}-shared"


def engine_volume(container: str) -> str:
    """Name the volume that a node's engine writes to, by the name of the node's container."""
    return f"{container}-docker"


def down(client: DockerClient, scope: Scope, names: Sequence[str] | None = None) -> list[str]:
    """Remove nodes of a scope (all, unless named) with their volumes; give the names of those removed."""
    with host.lock(f"scope-{scope.name}"):
        removed = []
        for container in containers(client, scope):
            name = container.labels[_NODE]
            if names is None or name in names:
                _remove(client, container)
                removed.append(name)
        if not containers(client, scope):
            with contextlib.suppress(docker.errors.NotFound):
                client.volumes.get(shared_volume(scope)).remove()
        write_inventory(client, scope)
    return removed


def containers(client: DockerClient, scope: Scope) -> list[Container]:
    """Give the containers of a scope's nodes, in the order of their names."""
    found = client.containers.list(all=True, filters={"label": [f"{LABEL}={scope.name}", _NODE]})
    return sorted(found, key=lambda container: str(container.labels[_NODE]))


def output(container: Container, *command: str) -> str:
    """Run a command in a container as root and give what it printed, whatever its status."""
    result = container.exec_run(list(command), environment={"LC_ALL": "C.UTF-8"})
    return cast("bytes", result.output).decode(errors="replace").strip()


def write_inventory(client: DockerClient, scope: Scope) -> dict[str, SimulatedNode]:
    """Write how to reach the scope's nodes, as their containers say."""
    nodes = {container.labels[_NODE]: _describe(container) for container in containers(client, scope)}
    directory = scope.directory
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "known_hosts").write_text(inventory.known_hosts(nodes.values()))
    (directory / "ssh_config").write_text(inventory.ssh_config(nodes.values(), directory))
    (directory / "inventory.json").write_text(inventory.document(nodes.values(), directory, site(scope)))
    return nodes


def site(scope: Scope) -> dict[str, object]:
    """Give what the scope's nodes are asked for otherwise than inventories/simulated says."""
    written = scope.directory / "site.json"
    return dict(json.loads(written.read_text())) if written.exists() else {}


def set_site(scope: Scope, values: Mapping[str, object]) -> None:
    """Say what the scope's nodes are asked for otherwise; the next inventory has it."""
    scope.directory.mkdir(parents=True, exist_ok=True)
    (scope.directory / "site.json").write_text(json.dumps(values, indent=2) + "\n")


def _describe(container: Container) -> SimulatedNode:
    bindings: dict[str, Any] = container.attrs["HostConfig"]["PortBindings"]
    ports = {int(inside.split("/")[0]): int(outside[0]["HostPort"]) for inside, outside in bindings.items()}
    return SimulatedNode(
        name=container.labels[_NODE],
        ssh_port=ports.pop(22),
        host_key=container.labels[_HOST_KEY],
        description=container.labels[_DESCRIPTION],
        ports=ports,
    )


def _start(client: DockerClient, scope: Scope, name: str, kind: _Kind, say: Say) -> Container:
    """Give a running container for a node; one that was made from other inputs is replaced."""
    full_name = f"{scope.prefix}-{name}"

    def replace(existing: Container) -> None:
        say(f"Remove node {name}: its image or files have changed")
        _remove(client, existing)

    if existing := made.running(client, full_name, kind.inputs, replace):
        return existing
    say(f"Start simulated node {name} ({kind.described})")
    volume = engine_volume(full_name)
    with contextlib.suppress(docker.errors.NotFound):
        client.volumes.get(volume).remove()  # a start that was interrupted left it
    client.volumes.create(volume, labels=scope.labels)
    layers.give(client, volume)
    volumes = {volume: "/var/lib/docker"}
    if kind.share:
        client.volumes.create(shared_volume(scope), labels=scope.labels)
        volumes[shared_volume(scope)] = kind.share
    host_key = keys.new_ssh_pair(f"simulated {name}")
    inside = (22, *API_PORTS)
    ports: dict[int | str, tuple[str, int]] = {
        port: (network.ADDRESS, outside) for port, outside in zip(inside, network.free_ports(len(inside)), strict=True)
    }
    created = client.api.create_container(
        kind.image,
        name=full_name,
        hostname=name,
        environment={"GAUDI_SIMULATOR_MACHINE_SETTINGS": "1"} if kind.machine_settings else {},
        labels={
            **scope.labels,
            _NODE: name,
            _DESCRIPTION: kind.described,
            _HOST_KEY: host_key.public,
            made.INPUTS: kind.inputs,
        },
        ports=list(ports),
        host_config=_host_config(client, scope, volumes, ports),
    )
    container = client.containers.get(created["Id"])
    host_keys = {
        "etc/ssh/ssh_host_ed25519_key": context.text(host_key.private, 0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": context.text(host_key.public + "\n"),
    }
    container.put_archive("/", context.archive({**kind.files, **host_keys}))
    container.start()
    return container


def _host_config(
    client: DockerClient, scope: Scope, volumes: Mapping[str, str], ports: dict[int | str, tuple[str, int]]
) -> dict[str, Any]:
    """Give the node all that an engine inside it needs, without --privileged.

    A machine whose own bounding set lacks CAP_SYS_RESOURCE cannot give --privileged. The capability is
    dropped everywhere, so that nodes are the same everywhere.
    """
    first_version = int(client.info().get("CgroupVersion", "1")) == 1
    binds: dict[str, Mapping[str, str]] = {name: {"bind": where, "mode": "rw"} for name, where in volumes.items()}
    if first_version:
        # systemd works on the machine's own tree; with cgroup v2 the node has one to itself.
        binds["/sys/fs/cgroup"] = {"bind": "/sys/fs/cgroup", "mode": "rw"}
    config = client.api.create_host_config(
        network_mode=scope.prefix,
        port_bindings=ports,
        binds=binds,
        cgroupns="host" if first_version else "private",
        cap_add=["ALL"],
        cap_drop=["SYS_RESOURCE"],
        security_opt=["seccomp=unconfined", "apparmor=unconfined"],
        device_cgroup_rules=["a *:* rwm"],
        tmpfs={"/run": "mode=755", "/tmp": "exec,mode=1777"},  # noqa: S108 - the node's, not this machine's
        # --ipc=host in the node means the node's shared memory; vLLM wants 160 MiB for each worker.
        shm_size="2g",
    )
    # What the command line calls systempaths=unconfined; the SDK has no word for it.
    return {**config, "MaskedPaths": [], "ReadonlyPaths": []}


def _user_key(scope: Scope) -> str:
    """Give the public key of the scope's user, made at first use."""
    private, public = scope.directory / "id_ed25519", scope.directory / "id_ed25519.pub"
    if not public.exists():
        pair = keys.new_ssh_pair(f"simulated {scope.name}")
        keys.write_private(private, pair.private)
        public.write_text(pair.public + "\n")
    return public.read_text()


def _remove(client: DockerClient, container: Container) -> None:
    if container.status == "running":
        # cgroup v1 cannot kill the processes of a container that is paused in the node, so Docker waits in vain.
        container.exec_run(["sh", "-c", _THAW])
    container.remove(force=True, v=True)
    with contextlib.suppress(docker.errors.NotFound):
        client.volumes.get(engine_volume(str(container.name))).remove()


def _wait_for_boot(container: Container) -> None:
    """Wait until systemd has started everything, and insist that nothing failed."""
    deadline = time.monotonic() + _BOOT_SECONDS
    state = ""
    while state not in ("running", "degraded"):
        container.reload()
        if container.status != "running" or time.monotonic() > deadline:
            raise SimulatorError(
                f"Simulated node {container.labels[_NODE]} did not boot within {_BOOT_SECONDS} s "
                f"(container {container.status}, systemd {state or 'silent'}).\n"
                + container.logs(tail=12, stream=False).decode(errors="replace")
            )
        time.sleep(0.2)
        state = output(container, "systemctl", "is-system-running")
    if state == "degraded":
        failed = output(container, "systemctl", "list-units", "--failed", "--no-legend", "--plain")
        raise SimulatorError(f"Simulated node {container.labels[_NODE]} booted, but units failed:\n{failed}")


def _wait_for_ssh(scope: Scope, node: SimulatedNode) -> None:
    """Log in once, as Ansible will: this proves the key, the host key and the port together."""
    deadline = time.monotonic() + _BOOT_SECONDS
    command = ["ssh", "-F", str(scope.directory / "ssh_config"), "-o", "BatchMode=yes", node.name, "true"]
    while (attempt := subprocess.run(command, check=False, capture_output=True, text=True)).returncode:
        if time.monotonic() > deadline:
            raise SimulatorError(f"Simulated node {node.name} does not let ssh in: {attempt.stderr.strip()}")
        time.sleep(0.2)
