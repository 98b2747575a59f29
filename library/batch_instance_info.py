#!/usr/bin/python
"""Say which instances of a node serve a model."""

from __future__ import annotations

DOCUMENTATION = r"""
module: batch_instance_info
short_description: Say which instances of a node serve a model
version_added: "0.2.0"
author: The gaudi-serving authors
description:
  - Reads the plans of the node's instances and what their supervisors say, and names those that serve a model now.
    Changes nothing.
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
  description: Names of the instances that serve the model now, sorted.
  returned: always
  type: list
  elements: str
  sample: [chat]
others:
  description: Every other instance of the node, with what it serves or why it does not.
  returned: always
  type: list
  elements: str
  sample: ["embed serves bge-m3", "code serves nothing now (stopped as asked)"]
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.node import instances
from ansible.module_utils.gaudi.node.documents import read_json

ARGUMENT_SPEC: dict[str, Any] = {"model": {"type": "str", "required": True}}


def served(found: dict[str, Any]) -> tuple[str, str]:
    """The model that an instance serves now, or nothing and why."""
    name, state = found["instance"], found["state"]
    if found["active"] != "active" or state.get("phase") != "serving":
        return "", str(found["damaged"] or state.get("status") or found["active"])
    try:
        plan = read_json(Path(paths.INSTANCES) / name / "plan.json", {"served_model_name": str})
    except Damaged as damaged:
        return "", str(damaged)
    return ("", "it has no plan") if plan is None else (str(plan["served_model_name"]), "")


def main() -> None:
    """Look and report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    here, others = [], []
    for found in instances.read(module, instances.installed()):
        model, why = served(found)
        if model == module.params["model"]:
            here.append(found["instance"])
        else:
            others.append(f"{found['instance']} serves {model or f'nothing now ({why})'}")
    module.exit_json(changed=False, instances=here, others=others)


if __name__ == "__main__":
    main()
