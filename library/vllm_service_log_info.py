#!/usr/bin/python
"""Read what a vLLM instance has written to the journal of its node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_log_info
short_description: Read what a vLLM instance wrote to the journal
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Reads the journal of an instance's unit, which holds the server's own output and what its supervisor says.
  - Goes on behind an earlier read, and waits for something new on request, so that a follower needs few connections.
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  lines:
    description: How many of the last lines to read.
    type: int
    default: 100
  since:
    description: >-
      Leaves out what is older, in the words of C(journalctl --since), such as C(10 min ago) or C(2026-01-31 08:00).
    type: str
    default: ""
  after:
    description: RV(cursor) of an earlier read. Everything written since is read, whatever O(lines) and O(since) say.
    type: str
    default: ""
  wait:
    description: How many seconds to wait for a line where there is none.
    type: int
    default: 0
requirements:
  - root (C(become))
  - journalctl
extends_documentation_fragment: attributes.reads
seealso:
  - module: vllm_service_info
"""

EXAMPLES = r"""
- name: Read the last ten minutes of an instance
  vllm_service_log_info:
    instance: qwen3-8b
    since: 10 min ago
    lines: 1000
  become: true
  register: log

- name: Read what came since
  vllm_service_log_info:
    instance: qwen3-8b
    after: "{{ log.cursor }}"
    wait: 10
  become: true
"""

RETURN = r"""
lines:
  description: The lines, oldest first, each with its time and the program that wrote it.
  returned: success
  type: list
  elements: str
  sample: ["2026-01-31T08:00:00+0000 gaudi-1 vllm-qwen3-8b[812]: warm-up: prompt 12/24, decode 0/48"]
cursor:
  description: Where the journal was read to; empty where it has no line of the instance.
  returned: success
  type: str
  sample: s=0639;i=4f2;b=a1;m=5c;t=61;x=d3
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.serving.log import command, lines_and_cursor, newest, onwards

ARGUMENT_SPEC = {
    "instance": {"type": "str", "required": True},
    "lines": {"type": "int", "default": 100},
    "since": {"type": "str", "default": ""},
    "after": {"type": "str", "default": ""},
    "wait": {"type": "int", "default": 0},
}

# Seconds between two looks for a new line.
INTERVAL = 1.0
# Ansible ends a value of -e at its first space.
MARKS = """A time with spaces needs marks of its own: -e "since='10 min ago'"."""


def journal(module: AnsibleModule, arguments: list[str]) -> str:
    """What journalctl prints. Ends the module with its own words where it cannot."""
    program = module.get_bin_path("journalctl", required=True)
    status, printed, complaint = module.run_command([program, *arguments], errors="replace")
    if status:
        module.fail_json(
            msg=f"journalctl cannot read the log of {module.params['instance']}: "
            f"{printable(complaint.strip()) or f'status {status}'}" + (f". {MARKS}" if module.params["since"] else "")
        )
    return str(printed)


def asked_for(module: AnsibleModule) -> list[str]:
    """The arguments for what is wanted: of the lines since a time, it is looked up where the last of them begin."""
    instance, lines, since, after = (module.params[name] for name in ("instance", "lines", "since", "after"))
    if since and not after and (found := onwards(instance, journal(module, newest(instance, lines, since)))):
        return found
    return command(instance, lines, since, after)


def main() -> None:
    """Read, and wait for something new on request."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    arguments, deadline = asked_for(module), time.monotonic() + module.params["wait"]
    while True:
        lines, cursor = lines_and_cursor(journal(module, arguments))
        if lines or time.monotonic() >= deadline:
            module.exit_json(changed=False, lines=lines, cursor=cursor or module.params["after"])
        time.sleep(INTERVAL)


if __name__ == "__main__":
    main()
