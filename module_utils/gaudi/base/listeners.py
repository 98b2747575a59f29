"""TCP sockets that accept connections, as the kernel lists them, and which of them a connection reaches."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

# The kernel's own word for a listening socket in /proc/net/tcp (TCP_LISTEN in include/net/tcp_states.h).
_LISTEN = "0A"
ANY = "*"
# Interfaces made by container engines and virtual machines: never what other nodes are reached by.
BRIDGES = ("docker", "br-", "veth", "cni", "flannel", "cali", "virbr", "podman", "lxc", "lxd", "tunl", "kube")


@dataclass(frozen=True)
class Listener:
    """A TCP socket that accepts connections; ``inode`` leads to the process that holds it.

    address: "*" for every address. uid: whose socket it is. version: 4 or 6, the file it was listed in.
    """

    address: str
    port: int
    inode: int
    uid: int = 0
    version: int = 4


def parse_listeners(text: str) -> list[Listener]:
    """Read the listening sockets of /proc/net/tcp or /proc/net/tcp6."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return [_socket(columns) for columns in rows if columns[3] == _LISTEN]


def _socket(columns: Sequence[str]) -> Listener:
    address, port = columns[1].rsplit(":", 1)
    return Listener(_address(address), int(port, 16), int(columns[9]), int(columns[7]), 4 if len(address) == 8 else 6)


def _address(text: str) -> str:
    """Turn the kernel's little-endian words into an address; ``*`` stands for every address."""
    raw = b"".join(bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8))
    address = ipaddress.ip_address(raw)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return ANY if address.is_unspecified else str(address)


def reached(listeners: Sequence[Listener], address: str, port: int) -> list[Listener]:
    """Return the sockets that may accept a connection to this address and port; none if nobody listens.

    The kernel prefers a socket that is bound to exactly this address, then a wildcard socket of the same IP version. An
    IPv6 wildcard socket also takes IPv4, unless its owner set IPV6_V6ONLY, which the list does not show; it therefore
    only counts if no other socket matches. Several sockets remain if they share a port (SO_REUSEPORT). Of a wildcard
    socket, they are all that take a part of its connections: a socket bound to one address has those to that address.
    Raises ValueError if ``address`` is not an address.
    """
    wanted = ipaddress.ip_address(address)
    here = [listener for listener in listeners if listener.port == port]
    every = [listener for listener in here if listener.address == ANY]
    tiers = (
        [listener for listener in here if listener.address == str(wanted)],
        [listener for listener in every if listener.version == wanted.version],
        [listener for listener in every if wanted.version == 4],
    )
    found = next((tier for tier in tiers if tier), [])
    single = [listener for listener in here if listener.address != ANY] if found and found[0].address == ANY else []
    return found + [listener for listener in single if found[0].version == 6 or ":" not in listener.address]


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
