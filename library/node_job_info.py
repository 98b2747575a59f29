#!/usr/bin/python
"""List the long work of a node, running and past."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_job_info
short_description: List the long work of a node
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Reads every job M(node_job) has ever started on this node, with how it stands and how far it is.
options: {}
extends_documentation_fragment: attributes.reads
seealso:
  - module: node_job
"""

EXAMPLES = r"""
- name: Read all jobs
  node_job_info:
  become: true
  register: seen
"""

RETURN = r"""
jobs:
  description: The jobs, by key.
  returned: always
  type: list
  elements: dict
  sample:
    - key: fetch.qwen3-8b
      status: succeeded
      text: "fetch: 16.4 GB of 16.4 GB (100 %)"
      since: "2026-01-31T08:00:00Z"
      message: ""
table:
  description: The same as lines of text.
  returned: always
  type: list
  elements: str
  sample: ["fetch.qwen3-8b    succeeded    2026-01-31T08:00:00Z  fetch: 16.4 GB of 16.4 GB (100 %)"]
"""

from typing import Any

from ansible.module_utils.gaudi.jobs import decisions as jobs
from ansible.module_utils.gaudi.node import long_work
from ansible.module_utils.gaudi.node.module import NodeModule, systemctl

ARGUMENT_SPEC: dict[str, Any] = {}


def main() -> None:
    """Read every job's files and ask systemd once for all of them."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    found = [*map(jobs.described, long_work.read_all(lambda *words: systemctl(module, *words)))]
    module.exit_json(changed=False, jobs=found, table=jobs.table(found))


if __name__ == "__main__":
    main()
