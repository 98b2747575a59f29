"""The part ``cards`` of a node's report: its topology, as gaudi_topology_info returns it."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ...cards.foreseen import foreseen_topology
from ..reader import read_sources, read_topology


def read(module: AnsibleModule) -> dict[str, Any]:
    """Return the topology; with the option ``foresee`` and without a driver, that of the cards on the PCI bus."""
    names = module.params["foresee"]
    document: dict[str, Any] = foreseen_topology(read_sources(module), names) if names else read_topology(module)
    return document
