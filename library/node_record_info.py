#!/usr/bin/python
"""Read what a first owner's run shows, without the node's secrets, and the names that are to be removed from it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_record_info
short_description: Read a record of a node, without secrets
version_added: "0.3.0"
author: gaudi-serving
description:
  - Reads all that M(node_bundle_info) reads, and more of what the vendor's tools print, the kernel's log about cards,
    durations of starts and jobs, the journal of each instance's last start until its server listens, and names and
    values of the metrics of serving instances. It never reads API keys, tokens, the environment of an instance, or
    requests. The masks are those of M(node_bundle_info).
  - Returns also what names the node, its people and its hardware. M(record_archive) removes that from the texts.
options:
  hosts:
    description: What the inventory calls the node.
    type: list
    elements: str
    default: []
  users:
    description: Accounts of those who connect to the node.
    type: list
    elements: str
    default: []
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
seealso:
  - module: node_bundle_info
  - module: record_archive
"""

EXAMPLES = r"""
- name: Read what the first hour showed
  node_record_info:
    hosts: ["{{ inventory_hostname }}"]
  register: node_record
  become: true
"""

RETURN = r"""
texts:
  description: What was read, by path, command or subject. Of what could not be read, why.
  returned: always
  type: dict
  sample: {"hl-smi -v": "HL-SMI Version: hl-1.24.1-fw-62.6.2.0"}
names:
  description: What is to be removed from the texts, by kind (C(host), C(domain), C(user), C(serial), C(uuid)).
  returned: always
  type: dict
  sample: {"host": ["gaudi-01"], "serial": ["AM50016138"]}
"""

from typing import Any

from ansible.module_utils.gaudi.node import recording
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "hosts": {"type": "list", "elements": "str", "default": []},
    "users": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Read, mask, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.exit_json(changed=False, **recording.record(module.params["hosts"], module.params["users"]))


if __name__ == "__main__":
    main()
