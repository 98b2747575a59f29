"""Which addresses a node has by the inventory."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain
from plugin_utils.resolving import addresses_of

brain.on_path()

from ansible.module_utils.gaudi.base.values import is_routable


def inventory_addresses(host: str) -> list[str]:
    """Return the IPv4 addresses of a node's ansible_host, by which other machines reach it.

    None for a tunnel (a loopback address), and for a name that the controller cannot resolve, such as a container's.
    """
    try:
        found = addresses_of(str(host))
    except OSError:
        return []
    return [address for address in found if ipaddress.ip_address(address).version == 4 and is_routable(address)]


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {"inventory_addresses": inventory_addresses}
