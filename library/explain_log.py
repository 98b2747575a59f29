#!/usr/bin/python
"""Explain a log that is on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: explain_log
short_description: Explain why a program failed, from its log on the controller
version_added: "0.4.0"
author: The gaudi-serving authors
description:
  - Reads the log of a vLLM server, of an image's build, of hccl_demo, a calibration, apt, DKMS or the kernel, and says
    what failed, what to do about it, and whether another attempt may help. No node is asked.
  - Which program wrote the log is seen by its lines. What docker, journald, Kubernetes or Compose put before each line
    is left out.
options:
  log:
    description: Path of the log. A relative one begins where ansible-playbook was started.
    type: raw
    required: true
  release:
    description: The release that ran, or a version of it such as V(v1.22.2), where it is known.
    type: raw
    default: ""
  status:
    description: The exit status of the program, 0 to 255, where it is known.
    type: raw
    default: ""
  output:
    description: File for the result as JSON. Without it nothing is written.
    type: raw
    default: ""
  variables:
    description:
      - Names that the playbook reads from the command line (C(-e)). Others are refused, except those that begin with
        C(ansible_). Without any name nothing is refused.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Explains, and does not write O(output).
    support: full
  diff_mode:
    description: Shows nothing.
    support: none
  action:
    description: Runs on the controller only.
    support: full
  platform:
    description: Asks nothing of the node.
    support: full
    platforms: all
seealso:
  - module: hccl_bandwidth_info
"""

EXAMPLES = r"""
- name: Explain the log of a server that did not start
  explain_log:
    log: server.log
    release: 1.24.1
    status: 1
  register: explained
"""

RETURN = r"""
id:
  description: Id of the cause, in docs/faults.md or docs/refusals.md; C(unknown) and C(no-failure) where there is none.
  returned: success
  type: str
  sample: card-busy
cause:
  description: What failed.
  returned: success
  type: str
  sample: "A card of this instance is held by another process or container."
remedy:
  description: What to do about it.
  returned: success
  type: str
  sample: "Stop it, or plan other cards."
retry:
  description: Whether another attempt, without any change, may help.
  returned: success
  type: bool
  sample: true
lines:
  description: The lines of the log that matter, at most three.
  returned: success
  type: list
  elements: str
  sample: ["RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."]
page:
  description: All of this as lines for people.
  returned: success
  type: list
  elements: str
  sample: ["[card-busy] A card of this instance is held by another process or container."]
refused_id:
  description: Id of the refusal of an option or a file; C(msg) has the sentence.
  returned: when an option or the log is refused
  type: str
  sample: log_unreadable
"""

ARGUMENT_SPEC = {
    "log": {"type": "raw", "required": True},
    "release": {"type": "raw", "default": ""},
    "status": {"type": "raw", "default": ""},
    "output": {"type": "raw", "default": ""},
    "variables": {"type": "list", "elements": "str", "default": []},
}
