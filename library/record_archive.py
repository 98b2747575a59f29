#!/usr/bin/python
"""Write the records of all nodes of a run as one archive on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: record_archive
short_description: Write records of nodes as one archive on the controller
version_added: "0.3.0"
author: gaudi-serving
description:
  - Removes from the texts of M(node_record_info) names of hosts, domains and users, IP and MAC addresses, serials and
    UUIDs. The same value has the same placeholder in all texts, such as C(host-1). Addresses of PCI devices stay.
  - Writes one C(tar.gz) with a folder for each node, mode 0600. C(REMOVED.txt) in it counts what was removed, by kind
    and placeholder, without the values; C(record.json) has the date, release and card of each node.
options:
  folder:
    description: A folder on the controller. It is made where it does not exist. No file in it is replaced.
    type: str
    required: true
  records:
    description: What M(node_record_info) returned, by name of the node in the inventory.
    type: dict
    required: true
  run:
    description: A file on the controller with what a run of the playbooks printed. Secrets in it are masked.
    type: str
    default: ""
attributes:
  check_mode:
    description: Writes the archive, which changes no node.
    support: none
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
  - module: node_record_info
"""

EXAMPLES = r"""
- name: Write the archive
  record_archive:
    folder: /srv/records
    records: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'node_record'))) }}"
  run_once: true
"""

RETURN = r"""
path:
  description: The archive.
  returned: success
  type: str
  sample: /srv/records/record_1.24.1_HL-225_2026-11-27.tar.gz
removed:
  description: Lines for people, a kind each, with how often each placeholder was put in.
  returned: success
  type: list
  elements: str
  sample: ["host           12  host-1 (12)"]
files:
  description: The number of files in it.
  returned: success
  type: int
  sample: 58
"""

ARGUMENT_SPEC = {
    "folder": {"type": "str", "required": True},
    "records": {"type": "dict", "required": True},
    "run": {"type": "str", "default": ""},
}
