"""Raw facts read from a node, the input of build_topology."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..base.cpulist import normalise_cpulist, shown
from .query import CommandResult, HlSmiReport

HABANA_VENDOR = "0x1da3"
"""The vendor's id on the PCI bus, as /sys/bus/pci/devices/*/vendor has it."""


@dataclass(frozen=True)
class PciCard:
    """A Gaudi device of /sys/bus/pci/devices. None stands for a NUMA node of -1 and for no CPU list.

    pci_id is vendor:device as catalog/cards.yml has it (1da3:1020), empty where it could not be read.
    """

    bus_id: str
    numa_node: int | None
    cpus: str | None
    pci_id: str = ""


@dataclass(frozen=True)
class AccelCard:
    """A device of /sys/class/accel: a card that the driver initialised."""

    index: int
    bus_id: str | None
    module_id: int | None
    state: str | None


@dataclass(frozen=True)
class Holder:
    """A process with a card's device file open; cgroup is its /proc/PID/cgroup, account the name of its user."""

    index: int
    pid: int
    name: str
    cgroup: str
    account: str | None = None


@dataclass(frozen=True)
class Sources:
    """Everything that was read. seen is None without hl-smi, lspci is None where it is not installed.

    init_cgroup is /proc/1/cgroup; container_names gives the name of a container's short id.
    """

    uid: int
    seen: HlSmiReport | None
    pci: Sequence[PciCard] = ()
    accel: Sequence[AccelCard] = ()
    lspci: CommandResult | None = None
    holders: Sequence[Holder] = ()
    init_cgroup: str = ""
    container_names: Mapping[str, str] = field(default_factory=dict)
    addresses: Sequence[tuple[str, str]] = ()
    complaints: Sequence[str] = ()


def parse_addresses(text: str) -> tuple[tuple[str, str], ...]:
    """Return (interface, address/prefix) of ``ip -json -4 address show``, in the kernel's order.

    Raises ValueError for text that is not its JSON.
    """
    try:
        links = json.loads(text or "[]")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"ip printed no JSON: {shown(text)}") from error
    if not isinstance(links, list):
        links = [links]
    pairs = []
    for link in links:
        # "ip -4" leaves an empty object behind for an interface without an IPv4 address.
        addresses = link.get("addr_info", []) if isinstance(link, dict) else None
        if not isinstance(addresses, list) or not all(isinstance(address, dict) for address in addresses):
            raise ValueError(f"ip printed an interface that cannot be read: {shown(str(link))}")
        for address in addresses:
            pairs.append((str(link.get("ifname")), f"{address.get('local')}/{address.get('prefixlen')}"))
    return tuple(pairs)


def sysfs_number(text: str) -> int | None:
    """Return the number a sysfs file holds, None for -1 (the kernel's "not known") and for anything else."""
    stripped = text.strip()
    return int(stripped) if stripped.isascii() and stripped.isdigit() and len(stripped) <= len("65535") else None


def sysfs_speed(text: str) -> int | None:
    """Return the Mb/s that a network interface's file holds, None where the kernel does not know (one that is down)."""
    stripped = text.strip()
    return int(stripped) if stripped.isascii() and stripped.isdigit() and len(stripped) <= len("1600000") else None


def sysfs_cpus(text: str) -> str | None:
    """Return a local_cpulist in the document's form, None where it is empty or no CPU list."""
    try:
        return normalise_cpulist(text) or None
    except ValueError:
        return None
