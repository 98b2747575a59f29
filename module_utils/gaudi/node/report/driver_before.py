"""The part ``driver_before`` of a node's report: what a run wrote down before it replaced the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ...base import paths
from .errors import text

RECORD = Path(paths.DRIVER_BEFORE)


def read(_module: AnsibleModule) -> dict[str, Any]:
    """Return the text of the record, which driver.before parses."""
    return text(RECORD)
