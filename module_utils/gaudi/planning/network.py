"""Listen address, node address and interface: three settings the vendor's scripts mix up; and who may reach what."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from ..base.listeners import outside
from ..base.refusal import Refusal

# What a node without another address has.
LOOPBACK = ("lo", "127.0.0.1")


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


def listen_host(host: str) -> str | None:
    """The address a host option stands for, None for one that only name resolution knows."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def reached_by_others(host: str) -> bool:
    """Whether more than the node itself can connect; a name that only name resolution knows may stand for anything."""
    address = listen_host(host)
    return address is None or not _is_loopback(address)


def check_reach(host: str, guarded: bool, because: str | None) -> None:
    """Refuse a server that others reach without a key, unless ``because`` says why; and a reason without such a server.

    vLLM has no TLS or keys of its own that would do: behind its port are routes that stop, profile or exchange models.
    """
    opened = reached_by_others(host) and not guarded
    if opened and because is None:
        raise Refusal(
            "open_to_others",
            f"host is {host}, so that others reach the server, and it asks for no key. Give the instance keys "
            f"(vllm_service_api_keys, or guarded: true and playbooks/keys.yml), leave host out to listen on 127.0.0.1, "
            f"or say why it may be open: open_without_keys: REASON.",
        )
    if because is not None and not opened:
        why = "it asks for keys" if guarded else f"it listens on {host} only"
        raise Refusal(
            "not_open",
            f"open_without_keys is {because!r}, but the server is not open to others: {why}. Leave it out.",
        )


def network(
    family: str, host: str, node_address: str | None, interface: str | None, addresses: Sequence[tuple[str, str]]
) -> Network:
    """Decide both.

    ``family`` is how the release's script does it: ``first`` (1.21) takes the node's first address whatever the server
    listens on, ``listen`` (1.22) the listen address, ``listen-outside`` (1.22-2025.11) the listen address with the
    interface of the first outside address when that is loopback. A wildcard, a name or a bridge never decides.
    """
    names = {name for name, _ in addresses}
    if interface is not None and names and interface not in names:
        raise Refusal(
            "no_such_interface",
            f"network_interface is {interface}, but this node has {_listed(addresses)}. "
            f"Choose one of these interfaces.",
        )
    if node_address is not None:
        return _of_request(node_address, interface, addresses)
    listen = listen_host(host)
    if family == "first" or listen is None or ipaddress.ip_address(listen).is_unspecified:
        return _first_outside(family, interface, addresses)
    if _is_loopback(listen):
        return _on_loopback(family, listen, interface, addresses)
    by_address = _by_address(addresses)
    if addresses and listen not in by_address:
        raise Refusal(
            "no_such_address",
            f"host is {host}, but this node has {_listed(addresses)}. Listen on one of these or on 0.0.0.0.",
        )
    return Network(listen, interface or by_address.get(listen), "listen-address", "script:set_common_env")


def _of_request(node_address: str, interface: str | None, addresses: Sequence[tuple[str, str]]) -> Network:
    """The address that was asked for, which must be one of the node's."""
    by_address = _by_address(addresses)
    if addresses and node_address not in by_address and not _is_loopback(node_address):
        raise Refusal(
            "no_such_address",
            f"node_address is {node_address}, but this node has {_listed(addresses)}. Choose one of these.",
        )
    carrier = by_address.get(node_address) or ("lo" if _is_loopback(node_address) else None)
    apart: tuple[str, ...] = ()
    if interface is not None and carrier is not None and carrier != interface:
        apart = (
            f"node_address {node_address} is on {carrier}, but network_interface is {interface}: the server's "
            f"processes announce one network and talk over the other. Leave network_interface out.",
        )
    return Network(node_address, interface or carrier, "node-address", "the request", apart)


def _first_outside(family: str, interface: str | None, addresses: Sequence[tuple[str, str]]) -> Network:
    """The first address that other nodes reach, where what the server listens on decides nothing."""
    reachable = outside(addresses)
    name, address = reachable[0] if reachable else LOOPBACK
    others = sorted({other for other, _ in reachable if other != name})
    warnings: tuple[str, ...] = ()
    if others and interface is None:
        warnings = (
            f"This node has addresses on {name} and {', '.join(others)}; {address} on {name} is used "
            f"between the server's processes. Set node_address if another network is meant.",
        )
    source = "gaudi-serving: a wildcard or a name is no address to announce; container bridges left out"
    if family == "first":
        source = "script:set_common_env; container bridges left out"
    return Network(address, interface or name, "first-outside-address", source, warnings)


def _on_loopback(family: str, listen: str, interface: str | None, addresses: Sequence[tuple[str, str]]) -> Network:
    """A server that only its own node reaches."""
    if family != "listen-outside":
        return Network(listen, interface or "lo", "listen-address", "script:set_common_env")
    reachable = outside(addresses)
    name = reachable[0][0] if reachable else "lo"
    warnings: tuple[str, ...] = ()
    if name != "lo" and interface is None:
        warnings = (
            f"VLLM_HOST_IP is {listen} while GLOO and HCCL use {name}, as this release's own script has "
            f"it. One node works so; set node_address to have both the same.",
        )
    rule = "listen-address-outside-interface"
    return Network(listen, interface or name, rule, "script:set_common_env", warnings)


def _by_address(addresses: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Interfaces by the address they carry."""
    return {address: name for name, address in addresses}


def _listed(addresses: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{address} ({name})" for name, address in addresses) or "no address"
