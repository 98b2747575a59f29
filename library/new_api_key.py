#!/usr/bin/python
"""Draw an API key on the controller and show it there once."""

from __future__ import annotations

DOCUMENTATION = r"""
module: new_api_key
short_description: Draw an API key on the controller and show it there once
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Draws a key with 256 random bits and writes it to the screen of whoever runs the playbook. It is in no result, no
    log and on no node; what goes on is its SHA-256 digest, for M(instance_keys).
  - Fails where standard output is no terminal, and where ansible-runner or a CI job records it.
options:
  words:
    description: What is said above the key.
    type: str
    required: true
  show_in_log:
    description: Whether to show the key although standard output is no terminal or is recorded.
    type: bool
    default: false
attributes:
  check_mode:
    description: Draws and shows nothing, and returns a digest of zeros. Fails where a run would fail.
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
  - module: instance_keys
"""

EXAMPLES = r"""
- name: Draw a key
  new_api_key:
    words: The key alice of chat, shown this once
  register: drawn
  run_once: true
"""

RETURN = r"""
digest:
  description: SHA-256 of the key, 64 hexadecimal digits.
  returned: always
  type: str
  sample: 0d599f0ec05c3bda8c3b8a68c32a1b47e1b2f9b6a0b0cc0b4b1f6f6f6b8a2e11
"""
