"""Listen address, node address and interface: three settings the vendor's scripts mix up."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from ..base.checks import Refusal

# Interfaces made by container engines and virtual machines: never what other nodes are reached by.
BRIDGES = ("docker", "br-", "veth", "cni", "flannel", "cali", "virbr", "podman", "lxc", "lxd", "tunl", "kube")


@dataclass(frozen=True)
class Network:
    """VLLM_HOST_IP and the interface for GLOO and HCCL, with why."""

    address: str
    interface: str | None
    rule: str
    source: str
    warnings: tuple[str, ...] = ()


def read_addresses(addresses: object) -> list[tuple[str, str]]:
    """The topology's (interface, address) pairs, without prefix lengths."""
    pairs = []
    for pair in addresses if isinstance(addresses, Sequence) else ():
        if isinstance(pair, Sequence) and len(pair) == 2:
            pairs.append((str(pair[0]), str(pair[1]).split("/")[0]))
    return pairs


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def outside(addresses: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Addresses other nodes can reach: no loopback, no link-local, no container bridge; IPv4 before IPv6."""
    usable = []
    for interface, text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if not (address.is_loopback or address.is_link_local or interface.startswith(BRIDGES)):
            usable.append((interface, text))
    return sorted(usable, key=lambda pair: ipaddress.ip_address(pair[1]).version)


def listen_host(host: str) -> str | None:
    """The address a host option stands for, None for one that only name resolution knows."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def network(
    family: str, host: str, node_address: str | None, interface: str | None, addresses: Sequence[tuple[str, str]]
) -> Network:
    """Decide both.

    ``family`` is how the release's script does it: ``first`` (1.21) takes the node's first address whatever the server
    listens on, ``listen`` (1.22) the listen address, ``listen-outside`` (1.22-2025.11) the listen address with the
    interface of the first outside address when that is loopback. A wildcard, a name or a bridge never decides.
    """
    by_address = {address: name for name, address in addresses}
    names = sorted({name for name, _ in addresses})
    if interface is not None and names and interface not in names:
        raise Refusal(
            f"network_interface is {interface}, but this node has {_listed(addresses)}. Choose one of these interfaces."
        )
    if node_address is not None:
        if addresses and node_address not in by_address and not _is_loopback(node_address):
            raise Refusal(
                f"node_address is {node_address}, but this node has {_listed(addresses)}. Choose one of these."
            )
        carrier = by_address.get(node_address) or ("lo" if _is_loopback(node_address) else None)
        apart: tuple[str, ...] = ()
        if interface is not None and carrier is not None and carrier != interface:
            apart = (
                f"node_address {node_address} is on {carrier}, but network_interface is {interface}: the server's "
                f"processes announce one network and talk over the other. Leave network_interface out.",
            )
        return Network(node_address, interface or carrier, "node-address", "the request", apart)
    reachable = outside(addresses)
    first = reachable[0] if reachable else ("lo", "127.0.0.1")
    listen = listen_host(host)
    warnings: tuple[str, ...] = ()
    if family == "first" or listen is None or ipaddress.ip_address(listen).is_unspecified:
        others = sorted({name for name, _ in reachable if name != first[0]})
        if others and interface is None:
            warnings = (
                f"This node has addresses on {first[0]} and {', '.join(others)}; {first[1]} on {first[0]} is used "
                f"between the server's processes. Set node_address if another network is meant.",
            )
        return Network(
            first[1],
            interface or first[0],
            "first-outside-address",
            "script:set_common_env; container bridges left out"
            if family == "first"
            else "gaudi-serving: a wildcard or a name is no address to announce; container bridges left out",
            warnings,
        )
    if not _is_loopback(listen):
        if addresses and listen not in by_address:
            raise Refusal(
                f"host is {host}, but this node has {_listed(addresses)}. Listen on one of these or on 0.0.0.0."
            )
        return Network(listen, interface or by_address.get(listen), "listen-address", "script:set_common_env")
    if family == "listen-outside":
        if first[0] != "lo" and interface is None:
            warnings = (
                f"VLLM_HOST_IP is {listen} while GLOO and HCCL use {first[0]}, as this release's own script has "
                f"it. One node works so; set node_address to have both the same.",
            )
        return Network(
            listen,
            interface or first[0],
            "listen-address-outside-interface",
            "script:set_common_env",
            warnings,
        )
    return Network(listen, interface or "lo", "listen-address", "script:set_common_env")


def _listed(addresses: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{address} ({name})" for name, address in addresses) or "no address"
