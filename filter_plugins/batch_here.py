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
from ansible.module_utils.gaudi.base.reported import part
from ansible.module_utils.gaudi.batch.here import here
from ansible.module_utils.gaudi.serving.reported_plans import plans_in


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


def has_plan(result: Mapping[str, object], instance: str) -> bool:
    """Return whether a node has an instance, or fail with why its report cannot be used. result: of node_report."""
    try:
        return instance in plans_in(part(mapping(result.get("report"), "The node's report"), "plans"))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {"batch_here": batch_here, "has_plan": has_plan}
