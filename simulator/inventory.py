"""How people and Ansible reach simulated nodes: known hosts, an ssh configuration, an inventory. No I/O."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simulator.network import ADDRESS

USER = "gaudi"
GROUP = "gaudi_nodes"


@dataclass(frozen=True)
class SimulatedNode:
    """A simulated node as seen from the machine it runs on."""

    name: str
    ssh_port: int
    host_key: str  # public, "ssh-ed25519 AAAA..."
    description: str
    ports: Mapping[int, int] = field(default_factory=dict)  # port in the node -> port on 127.0.0.1


def known_hosts(nodes: Iterable[SimulatedNode]) -> str:
    """Give the host keys the simulator handed out, so that ssh checks them (sshd(8), SSH_KNOWN_HOSTS)."""
    return "".join(f"[{ADDRESS}]:{node.ssh_port} {' '.join(node.host_key.split()[:2])}\n" for node in nodes)


def ssh_options(directory: Path) -> dict[str, str]:
    """Give the options that keep host key checking on and this user's own keys and hosts out of it."""
    return {
        "UserKnownHostsFile": f'"{directory / "known_hosts"}"',
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
    }


def ssh_config(nodes: Iterable[SimulatedNode], directory: Path) -> str:
    """Give a configuration for people: ssh -F .../ssh_config NODE."""
    sections = [
        {
            "Host": node.name,
            "HostName": ADDRESS,
            "Port": str(node.ssh_port),
            "User": USER,
            "IdentityFile": f'"{directory / "id_ed25519"}"',
            **ssh_options(directory),
        }
        for node in nodes
    ]
    return "# Written by the simulator: simulated nodes.\n" + "".join(
        "".join(f"{option} {value}\n" for option, value in section.items()) for section in sections
    )


def host_variables(node: SimulatedNode, directory: Path) -> dict[str, object]:
    """Give what Ansible needs to reach a node."""
    options = [f"-o {shlex.quote(f'{name}={value}')}" for name, value in ssh_options(directory).items()]
    return {
        "ansible_host": ADDRESS,
        "ansible_port": node.ssh_port,
        "ansible_user": USER,
        "ansible_ssh_private_key_file": str(directory / "id_ed25519"),
        "ansible_ssh_common_args": " ".join(options),
        "simulator_description": node.description,
        "simulator_ports": {str(inside): outside for inside, outside in node.ports.items()},
    }


def document(nodes: Iterable[SimulatedNode], directory: Path, site: Mapping[str, object]) -> str:
    """Give the inventory in the form a dynamic inventory script prints.

    site: what these nodes are asked for otherwise than inventories/simulated says.
    """
    nodes = list(nodes)
    content = {
        GROUP: {"hosts": [node.name for node in nodes]},
        "_meta": {"hostvars": {node.name: {**host_variables(node, directory), **site} for node in nodes}},
    }
    return json.dumps(content, indent=2) + "\n"
