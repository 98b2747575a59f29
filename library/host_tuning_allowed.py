#!/usr/bin/python
"""Refuse to serve on a kernel that would corrupt answers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning_allowed
short_description: Refuse to serve on a kernel that would corrupt the answers
version_added: "0.1.0"
author: gaudi-serving
description:
  - Asks the node's own program, which decides for every instance at every start, and fails with its sentence.
  - A host that was never tuned has no such program, and then only the cards' IOMMU groups count.
options:
  program:
    description: The program of the role host_tuning. Empty asks for the cards' IOMMU groups only.
    type: path
    default: ""
  release:
    description:
      - The release to be served. From 1.24 on it fails where an IOMMU translates what a card addresses, as each
        instance's supervisor does. Empty counts as an old one.
    type: str
    default: ""
  translated:
    description: Whether the site allows that an IOMMU translates (C(preflight_allow_mismatch)).
    type: bool
    default: false
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
"""

EXAMPLES = r"""
- name: Ask whether the running kernel may serve
  host_tuning_allowed:
    program: /usr/local/lib/gaudi-serving/host_tuning.py
    release: "1.24.1"
  become: true
"""

RETURN = r"""
asked:
  description: Whether the program exists on the node.
  type: bool
  returned: always
  sample: true
"""

import sys
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.node import iommu
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.serving import unserved

ARGUMENT_SPEC: dict[str, Any] = {
    "program": {"type": "path", "default": ""},
    "release": {"type": "str", "default": ""},
    "translated": {"type": "bool", "default": False},
}


def main() -> None:
    """Ask, and fail where the answer is no."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    program = module.params["program"]
    refused = "" if module.params["translated"] else unserved.translated(iommu.translated([module.params["release"]]))
    if refused:
        module.fail_json(msg=refused)
    if not program or not Path(program).exists():
        module.exit_json(changed=False, asked=False)
    # This module's own interpreter, as the program only needs the standard library.
    code, out, err = module.run_command([sys.executable, program, "allow"])
    if code != 0:
        module.fail_json(msg=printable((err or out).strip()), rc=code)
    module.exit_json(changed=False, asked=True)


if __name__ == "__main__":
    main()
