"""Say who on a node can answer a batch."""

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
from ansible.module_utils.gaudi.batch.here import here


def batch_here(
    result: Mapping[str, object], earlier: Mapping[str, object], model: str, own: str, again: bool
) -> dict[str, Any]:
    """Return which instances serve the model, or fail with why the node's report cannot be used.

    result, earlier: of node_report and batch_answers.
    """
    try:
        return dict(here(mapping(result.get("report"), "The node's report"), earlier, model, own, again))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """Name the filters."""
        return {"batch_here": batch_here}
