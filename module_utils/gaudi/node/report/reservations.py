"""The part ``reservations`` of a node's report: which instance has which cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ...base import paths
from ..reservations import read_reservations

RESERVATIONS = Path(paths.RESERVATIONS)
PLANS = Path(paths.INSTANCES)


def read(_module: AnsibleModule) -> dict[str, Any]:
    """Return the reservations, and why they were rebuilt. Raises Refusal where nobody can tell who has which card."""
    found = read_reservations(RESERVATIONS, PLANS, "")
    return {"reservations": found.reservations, "damage": found.damage}
