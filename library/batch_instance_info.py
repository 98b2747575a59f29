#!/usr/bin/python
"""Say which instances of a node serve a model."""

from __future__ import annotations

DOCUMENTATION = r"""
module: batch_instance_info
short_description: Say which instances of a node serve a model
version_added: "0.2.0"
author: The gaudi-serving authors
description:
  - Reads the plans of the node's instances, and names those that serve a model, or start to. Changes nothing.
options:
  model:
    description: The name that the model is served under.
    type: str
    required: true
requirements:
  - root (C(become))
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  platform:
    description: Linux with systemd.
    support: full
    platforms: posix
seealso:
  - module: batch_input
  - module: vllm_service_info
"""

EXAMPLES = r"""
- name: Look who serves it
  batch_instance_info:
    model: qwen3-8b
  become: true
  register: batch_here
"""

RETURN = r"""
instances:
  description: Names of the instances that serve the model, or start to, sorted.
  returned: always
  type: list
  elements: str
  sample: [chat]
others:
  description: Every other instance of the node, with its model, and what its supervisor says.
  returned: always
  type: list
  elements: str
  sample: ["embed, of bge-m3: serving bge-m3 on http://127.0.0.1:30002"]
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.node import instances
from ansible.module_utils.gaudi.node.documents import read_json

ARGUMENT_SPEC: dict[str, Any] = {"model": {"type": "str", "required": True}}


def model_of(instance: str) -> str:
    """The model of an instance's plan, or what is wrong with it in brackets, which is no model's name."""
    try:
        plan = read_json(Path(paths.INSTANCES) / instance / "plan.json", {"served_model_name": str})
    except Damaged as damaged:
        return f"({damaged})"
    return "(it has no plan)" if plan is None else str(plan["served_model_name"])


def main() -> None:
    """Look and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    here, others = [], []
    for found in instances.read(module, instances.installed()):
        name, model = found["instance"], model_of(found["instance"])
        # The work waits for one that starts.
        if model == module.params["model"] and found["active"] in instances.RUNNING:
            here.append(name)
        else:
            others.append(f"{name}, of {model}: {found['damaged'] or found['state'].get('status') or found['active']}")
    module.exit_json(changed=False, instances=here, others=others)


if __name__ == "__main__":
    main()
