"""Ports between a server's own processes, and the rules that keep other machines out of them.

They have no key. Most are bound to loopback (VLLM_HOST_IP), but PyTorch's store listens on every address whatever it is
told. So each server is given ports of its own (VLLM_PORT is the first that it tries), and a table of nftables refuses
whoever comes to these from outside the node.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

# Below those that Linux gives out by itself (net.ipv4.ip_local_port_range begins at 32768). A number of ours.
FIRST = 28000
# vLLM takes the next port where one is still taken, and one for each group of processes. A number of ours.
EACH = 16
# How many module ids a node has: they are 0 to 7.
MODULES = 8
VARIABLE = "VLLM_PORT"


@dataclass(frozen=True)
class ClosedPorts:
    """TCP ports of an instance that are closed to others, the last one included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


# Every port that some instance may be given by default.
EVERY = ClosedPorts(FIRST, FIRST + MODULES * EACH - 1)


def first_port(module_ids: Collection[int]) -> int:
    """The first port of an instance: no other one has its lowest card, unless they share it."""
    return FIRST + EACH * min(module_ids)


def closed_from(first: str) -> ClosedPorts | None:
    """The ports of a server that is given a first one; None where that is no port with as many behind it."""
    number = int(first) if first.isdecimal() else 0
    return ClosedPorts(number, number + EACH - 1) if 0 < number <= 65536 - EACH else None


def table_of(instance: str) -> str:
    """The table of an instance; the names of instances have no underscore, and those of tables no hyphen."""
    return f"gaudi_serving_{instance.replace('-', '_')}"


def opened(instance: str) -> str:
    """What nft reads to take the table away, whether or not it is there."""
    table = table_of(instance)
    return f"table inet {table}\ndelete table inet {table}\n"


def closed(instance: str, ports: ClosedPorts) -> str:
    """What nft reads to have the table as it is to be, in one step."""
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
    """Whether a table, as nft lists it, refuses others; listed: nothing where it is not there."""
    return _rule(ports) in listed and "hook input" in listed
