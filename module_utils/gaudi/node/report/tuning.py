"""The part ``tuning`` of a node's report: what the role host_tuning recorded, and the running kernel."""

from __future__ import annotations

import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ...base import paths
from ..iommu import read_command_line, read_groups
from .errors import text

STATE = Path(paths.HOST_TUNING)


def read(_module: AnsibleModule) -> dict[str, Any]:
    """Return the facts with which host.document.waits tells what waits for a reboot.

    state: the text of the role's document. kernel: its release. groups: the IOMMU groups of cards.
    """
    return {
        "state": text(STATE),
        "kernel": platform.release(),
        "command_line": read_command_line(),
        "groups": [asdict(group) for group in read_groups()],
    }
