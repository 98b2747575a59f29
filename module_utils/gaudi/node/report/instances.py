"""The part ``instances`` of a node's report: how each instance is, and what of it gets worse while it serves."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ...doctor.covering import cover_of
from ...serving.state import RUNNING
from .. import instances, states, weight_folders


def read(module: AnsibleModule) -> dict[str, Any]:
    """Return the instances as vllm_service_info has them, and paths beside their folders that are none of theirs.

    lost_weights: by running instance, what is no longer complete of its weights. covers: by running instance, what has
    the commonest shape warmed up that its server computed without warm-up.
    """
    found = instances.read(module, states.installed())
    plans = weight_folders.plans_on_node(states.PLANS)
    covers = {
        each["instance"]: cover_of(each["state"], plans.get(each["instance"]))
        for each in found
        if each["active"] in RUNNING
    }
    lost = {
        each["instance"]: weight_folders.lost(plans.get(each["instance"], {}))
        for each in found
        if each["active"] == "active"
    }
    return {
        "instances": [{**each, "said": instances.said_last(module, each)} for each in found],
        "strangers": [str(path) for path in instances.strangers()],
        "lost_weights": {name: why for name, why in lost.items() if why},
        "covers": {name: asdict(cover) for name, cover in covers.items() if cover},
    }
