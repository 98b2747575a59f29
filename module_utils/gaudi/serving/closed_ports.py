"""The ports between a server's own processes, and the nftables rules that close them to other machines.

These ports have no key. Most are bound to loopback (VLLM_HOST_IP), but PyTorch's store listens on every address in any
case. So each server gets ports of its own (VLLM_PORT is the first that it tries), and an nftables table rejects
connections to them from outside the node.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

# Below the ports that Linux assigns by itself (net.ipv4.ip_local_port_range begins at 32768). Our choice.
FIRST = 28000
# vLLM takes the next port if one is in use, and one for each process group. Our choice.
EACH = 16
# The number of module ids on a node, 0 to 7.
MODULES = 8
VARIABLE = "VLLM_PORT"


@dataclass(frozen=True)
class ClosedPorts:
    """The TCP ports of an instance that are closed to other machines; the last one is included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


# Every port that some instance may be given by default.
EVERY = ClosedPorts(FIRST, FIRST + MODULES * EACH - 1)


def first_port(module_ids: Collection[int]) -> int:
    """Return an instance's first port, by its lowest module id; only instances that share a card share it."""
    return FIRST + EACH * min(module_ids)


def closed_from(first: str) -> ClosedPorts | None:
    """Return the ports of a server with this first port; None if it is invalid, or too close to 65535."""
    number = int(first) if first.isdecimal() else 0
    return ClosedPorts(number, number + EACH - 1) if 0 < number <= 65536 - EACH else None


def table_of(instance: str) -> str:
    """Return the name of an instance's table: instances have hyphens and no underscores, table names the reverse."""
    return f"gaudi_serving_{instance.replace('-', '_')}"


def opened(instance: str) -> str:
    """Return nft's input that deletes the table, whether it exists or not."""
    table = table_of(instance)
    return f"table inet {table}\ndelete table inet {table}\n"


def closed(instance: str, ports: ClosedPorts) -> str:
    """Return nft's input that replaces the table in one transaction."""
    return f"""{opened(instance)}table inet {table_of(instance)} {{
  chain input {{
    type filter hook input priority filter - 10; policy accept;
    {_rule(ports)}
  }}
}}
"""


def _rule(ports: ClosedPorts) -> str:
    return f'iifname != "lo" tcp dport {ports} reject with tcp reset'


def is_closed(listed: str, ports: ClosedPorts) -> bool:
    """Whether a table rejects other machines; listed: nft's listing, "" if it does not exist."""
    return _rule(ports) in listed and "hook input" in listed
