#!/usr/bin/python
"""Write down what driver and instances of a node are, before the driver is replaced."""

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_before
short_description: Record driver and instances before the driver is replaced
version_added: "0.2.0"
author: gaudi-serving
description:
  - Keeps the driver's packages and modules, and the plans of the instances that run, so that they can be brought back.
  - Where an earlier run was cut off while it replaced the driver, what that one wrote down stays as it is.
options:
  present:
    description: The driver that is there, as M(gaudi_driver_info) returns it.
    type: dict
    required: true
  whole:
    description: Whether that driver is completely installed, so that it can be restored.
    type: bool
    required: true
  record:
    description: Path of the record.
    type: path
    default: /var/lib/gaudi-serving/driver_before.json
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Reads, and writes nothing.
    support: full
  diff_mode:
    description: Not supported; plans are shown when they change.
    support: none
seealso:
  - module: gaudi_driver_info
"""

EXAMPLES = r"""
- name: Write down what is there
  driver_before:
    present: "{{ gaudi_driver_found.present }}"
    whole: "{{ gaudi_driver_found.state in ['older', 'newer', 'right'] }}"
  become: true
"""

RETURN = r"""
driver:
  description: The driver from before, as O(present) was.
  returned: always
  type: dict
  sample: {version: 1.21.3-57, says: 1.21.3-bfcec49, packages: {}, modules: [habanalabs], preferences: ""}
plans:
  description: The plans of the instances that ran, by name, as M(serving_plan) returns them.
  returned: always
  type: dict
  sample: {}
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: record_damaged
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.node import instances, states, weight_folders
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.files import write_json
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.serving.state import RUNNING

ARGUMENT_SPEC: dict[str, Any] = {
    "present": {"type": "dict", "required": True},
    "whole": {"type": "bool", "required": True},
    "record": {"type": "path", "default": paths.DRIVER_BEFORE},
}
FORM = {"driver": dict, "plans": {str: dict}}
# The role vllm_service keeps these out of the plan on the node: reasons and addresses for people, and
# what is known of its answers.
UNWRITTEN: dict[str, Any] = {"ask": {}, "explain": [], "warnings": [], "paths": []}


def running_plans(module: AnsibleModule) -> dict[str, dict[str, Any]]:
    """Return the node's plans of running or starting instances, by name; a plan that cannot be read is left out."""
    there = weight_folders.plans_on_node(states.PLANS)
    found = instances.read(module, states.installed())
    running = [each["instance"] for each in found if each["active"] in RUNNING]
    return {name: {**UNWRITTEN, **there[name]} for name in running if name in there}


def main() -> None:
    """Read what was written down, or write it."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, path = module.params, Path(module.params["record"])
    try:
        before = read_json(path, FORM)
    except Damaged as damage:
        module.fail_json(msg=f"{damage}. Move it away, then run this again.", refused_id="record_damaged")
    # An earlier run was interrupted, after it wrote this file or during the change.
    if before is not None and (not params["whole"] or before["driver"] == params["present"]):
        module.exit_json(changed=False, **before)
    wanted = {"driver": params["present"], "plans": running_plans(module)}
    if wanted != before and not module.check_mode:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_json(path, wanted, mode=0o600)
    module.exit_json(changed=wanted != before, **wanted)


if __name__ == "__main__":
    main()
