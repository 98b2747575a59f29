#!/usr/bin/python
"""Follow starting vLLM instances until they serve."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_wait
short_description: Follow starting vLLM instances until they serve
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - "Shows how far each instance is (warm-up: prompt 12/24, decode 0/48), and ends when all units are active,
    which they are when the server has answered under its own name."
  - Fails as soon as a unit has failed for good, or waits for a card that was lost, with the supervisor's own sentence.
    A failed try that the supervisor repeats is shown and followed further.
  - Fails as well where an instance serves again with the plan that served before the one of O(labels), because that did
    not come to serve; both reasons are said.
  - Runs on the controller and looks with M(vllm_service_info). A lost connection or Ctrl-C costs nothing; the
    units go on, and running the playbook again follows them again.
options:
  instances:
    description: The instances to follow.
    type: list
    elements: str
    required: true
  labels:
    description: The label that the container of an instance is to have, by the name of the instance.
    type: dict
    default: {}
  timeout:
    description: Give up following after so many seconds. The units go on; what bounds them is their
      supervisors' own patience, which counts only time without progress.
    type: int
    default: 14400
  interval:
    description: Show progress within one phase at most every so many seconds.
    type: int
    default: 10
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Looks once and follows nothing, since nothing was started.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  action:
    description: Runs on the controller, with a module on the node.
    support: full
seealso:
  - module: vllm_service_info
"""

EXAMPLES = r"""
- name: Follow the start of an instance
  vllm_service_wait:
    instances: [qwen3-8b]
  become: true
"""

RETURN = r"""
instances:
  description: What RV(vllm_service_info#module:instances) of M(vllm_service_info) is, at the end.
  returned: always
  type: list
  elements: dict
  sample:
    - {instance: qwen3-8b, active: active, sub: running, state: {phase: serving}}
progress:
  description: The lines that were shown.
  returned: always
  type: list
  elements: str
  sample: ["[node1: qwen3-8b] warm-up: prompt 12/24, decode 0/48"]
"""
