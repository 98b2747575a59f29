#!/usr/bin/python
"""Read which plans an instance served with, which failed, and in what they differ."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_history
short_description: Read which plans vLLM instances of a node had, and what became of them
version_added: "0.2.0"
author: The gaudi-serving authors
description:
  - The supervisor of an instance keeps the last five plans that served, and as many that failed. This module reads
    them, with times, images and reasons, and says in words in what each differs from the plan that lies there.
  - The value of a variable or an option whose name looks like a secret's is never returned.
options:
  instance:
    description: Name of the instance; empty for all of the node.
    type: str
    default: ""
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
seealso:
  - module: vllm_service_rollback
"""

EXAMPLES = r"""
- name: Read the plans of an instance
  vllm_service_history:
    instance: qwq-32b
  register: history
  become: true
"""

RETURN = r"""
instances:
  description: The plans by the name of the instance, the last first.
  returned: always
  type: dict
  sample:
    qwq-32b:
      - plan: 3f2a91c07d1e
        current: true
        image: registry.example/vllm:1.22
        image_id: sha256:0d599f0ec05c
        served: "2026-01-31T08:00:00Z"
        failed:
        differs: []
lines:
  description: The same as lines of text.
  returned: always
  type: list
  elements: str
  sample: ["qwq-32b:", " * 3f2a91c07d1e  served at 2026-01-31T08:00:00Z, image registry.example/vllm:1.22"]
"""

from typing import Any

from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.node import states
from ansible.module_utils.gaudi.node.kept import InstancePaths
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.pages import history

ARGUMENT_SPEC: dict[str, Any] = {"instance": {"type": "str", "default": ""}}


def read(name: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The plans of one instance, as data and as lines."""
    place = InstancePaths.of(name)
    kept, damaged = place.kept()
    try:
        back = place.back()
    except Damaged as damage:
        back, damaged = None, [*damaged, str(damage)]
    told = history.entries(kept, place.files())
    return told, history.lines(name, told, back, damaged)


def main() -> None:
    """Read, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    names = [name for name in states.installed() if module.params["instance"] in ("", name)]
    found = {name: read(name) for name in names}
    module.exit_json(
        changed=False,
        instances={name: told for name, (told, _lines) in found.items()},
        lines=[line for _told, lines in found.values() for line in lines],
    )


if __name__ == "__main__":
    main()
