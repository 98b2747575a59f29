#!/usr/bin/python
"""Read a record or a support bundle of a node, without the node's secrets, and the names to remove from a record."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_record_info
short_description: Read a record or a support bundle of a node, without secrets
version_added: "0.3.0"
author: gaudi-serving
description:
  - A support bundle is a fixed list of files and of commands' output - verdict, host tuning, images, reservations,
    plans and states of instances, hl-smi, kernel, disks, containers, units.
  - A record has all of that, and more of what the vendor's tools print, the kernel's log about cards, durations of
    starts and jobs, the journal of each instance's last start until its server listens, and names and values of the
    metrics of serving instances. With it comes what names the node, its people and its hardware; M(record_archive)
    removes that from the texts.
  - Neither reads API keys, tokens, the environment of an instance, requests, or what servers log of them. What a name
    calls a token, key, secret, password or the like, and the account and query of an address, is taken out of what was
    read. Variables of instances and arguments of the kernel are shown by name alone where the release and this project
    do not know them.
options:
  bundle:
    description: Whether to read a support bundle in place of a record.
    type: bool
    default: false
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
  - module: record_archive
"""

EXAMPLES = r"""
- name: Read what the first hour showed
  node_record_info:
    hosts: ["{{ inventory_hostname }}"]
  register: node_record
  become: true

- name: Read what helps others to help
  node_record_info:
    bundle: true
  register: node_bundle
  become: true
"""

RETURN = r"""
text:
  description: The bundle, each file and command under a line with its name. Of what could not be read, why.
  returned: if O(bundle)
  type: str
  sample: "==== uname -a\\nLinux gaudi-01 5.15.0-91-generic ..."
texts:
  description: What was read, by path, command or subject. Of what could not be read, why.
  returned: unless O(bundle)
  type: dict
  sample: {"hl-smi -v": "HL-SMI Version: hl-1.24.1-fw-62.6.2.0"}
names:
  description: What is to be removed from the texts, by kind (C(host), C(domain), C(user), C(serial), C(uuid)).
  returned: unless O(bundle)
  type: dict
  sample: {"host": ["gaudi-01"], "serial": ["AM50016138"]}
"""

from typing import Any

from ansible.module_utils.gaudi.node import recording
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "bundle": {"type": "bool", "default": False},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "users": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Read, mask, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    if module.params["bundle"]:
        module.exit_json(changed=False, text=recording.support_bundle())
    module.exit_json(changed=False, **recording.record(module.params["hosts"], module.params["users"]))


if __name__ == "__main__":
    main()
