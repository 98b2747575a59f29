"""Read the folders of weights in a node's report, and show them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base.checks import mapping
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.base.reported import part
from ansible.module_utils.gaudi.weights.reported_folders import folders_in, unknown_users
from ansible.module_utils.gaudi.weights.table import table
from ansible.utils.display import Display


def weight_folders(result: Mapping[str, object]) -> dict[str, Any]:
    """Return the folders of a node from the result of node_report, or fail with why not; warn of damaged plans."""
    try:
        read = part(mapping(result.get("report"), "The node's report"), "weight_folders")
        found: dict[str, Any] = folders_in(read)
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None
    for unknown in unknown_users(read):
        Display().warning(unknown)
    return found


class FilterModule:
    """What Ansible finds here."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"weight_folders": weight_folders, "weight_table": table}
