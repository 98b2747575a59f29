"""The part ``plans`` of a node's report: the plan of each instance, and whether the instance runs."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from .. import instances, states
from .errors import text


def read(module: AnsibleModule) -> dict[str, Any]:
    """Return the texts of the plans, which serving.reported_plans parses."""
    return {
        "plans": {
            name: {"up": instances.is_up(module, name), **text(states.PLANS / name / "plan.json")}
            for name in states.installed()
        }
    }
