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
  - An instance that was started for one batch serves no other. Its name is C(batch-) and 16 digits.
options:
  model:
    description: The name that the model is served under.
    type: str
    required: true
  own:
    description: The name of the instance that is started for this batch where nobody serves the model.
    type: str
    default: ""
  folder:
    description: The batch's folder on the node. Without it, earlier answers do not count.
    type: str
    default: ""
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
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
  description:
    - Names of instances that serve the model or are starting, sorted; only O(own) if it is one of them.
    - O(own) also if every request is answered already.
  returned: always
  type: list
  elements: str
  sample: [chat]
own:
  description: Whether the node has the instance that was started for this batch.
  returned: always
  type: bool
  sample: false
mine:
  description: Whether the node has that instance, or answers of this batch.
  returned: always
  type: bool
  sample: false
others:
  description: Every other instance of the node, with its model, and what its supervisor says.
  returned: always
  type: list
  elements: str
  sample: ["embed, of bge-m3: serving bge-m3 on http://127.0.0.1:30002"]
"""

import re
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.batch import lines
from ansible.module_utils.gaudi.node import instances, states
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.serving.state import RUNNING

ARGUMENT_SPEC: dict[str, Any] = {
    "model": {"type": "str", "required": True},
    "own": {"type": "str", "default": ""},
    "folder": {"type": "str", "default": ""},
}
FOR_A_BATCH = re.compile("batch-[0-9a-f]{16}")


def model_of(instance: str) -> str:
    """Return the model of an instance's plan, or a defect in brackets, which no model is named like."""
    try:
        plan = read_json(Path(paths.INSTANCES) / instance / "plan.json", {"served_model_name": str})
    except Damaged as damaged:
        return f"({damaged})"
    return "(it has no plan)" if plan is None else str(plan["served_model_name"])


def is_answered(folder: str) -> bool:
    """Whether every request has an answer on the node: the output is written once all were sent."""
    output = Path(folder) / "output.jsonl"
    if not folder or not output.exists():
        return False
    with output.open(encoding="utf-8", errors="replace") as there:
        return all(line is not None and not lines.failure(line) for line in map(lines.read_line, there))


def main() -> None:
    """Look and report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    own, folder = module.params["own"], module.params["folder"]
    has_own = bool(own) and own in states.installed()
    here, others = [], []
    for found in instances.read(module, states.installed()):
        name, model = found["instance"], model_of(found["instance"])
        # The batch waits for an instance that is starting.
        serves = model == module.params["model"] and found["active"] in RUNNING
        if serves and (name == own or not FOR_A_BATCH.fullmatch(name)):
            here.append(name)
        else:
            others.append(f"{name}, of {model}: {found['damaged'] or found['state'].get('status') or found['active']}")
    if own and (own in here or is_answered(folder)):
        here = [own]
    mine = has_own or (bool(folder) and Path(folder).is_dir())
    module.exit_json(changed=False, instances=here, others=others, own=has_own, mine=mine)


if __name__ == "__main__":
    main()
