#!/usr/bin/python
"""Read a part of a batch's answers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: batch_answers
short_description: Bring the answers of a batch to the controller
version_added: "0.2.0"
author: The gaudi-serving authors
description:
  - Brings a file of root's on the node to the controller, however large it is, in parts of a few megabytes. Neither
    side has more than one of them in its memory.
  - The file appears under its name as a whole, once its SHA-256 is the one of the node.
  - With O(look) reads the file on the node alone, and says whether every request has an answer in it.
  - The parameters O(offset) and O(length) are the action's own; a task gives O(src) and O(dest), or O(look).
options:
  src:
    description: The file on the node.
    type: path
    required: true
  dest:
    description: The file on the controller.
    type: path
  look:
    description: Whether only to look what is there (RV(there), RV(answered)). Brings nothing.
    type: bool
    default: false
  offset:
    description: Where the part begins, in bytes.
    type: int
    default: 0
  length:
    description: How many bytes it has.
    type: int
    default: 0
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  action:
    description: Runs on the controller, with a module on the node.
    support: full
  check_mode:
    description: Says whether the file would change, and leaves it.
    support: full
  diff_mode:
    description: Answers are not shown.
    support: none
seealso:
  - module: batch_input
"""

EXAMPLES = r"""
- name: Bring the answers here
  batch_answers:
    src: "/var/lib/gaudi-serving/batches/{{ batch }}/output.jsonl"
    dest: /srv/questions.output.jsonl
  become: true
"""

RETURN = r"""
there:
  description: Whether the node has the folder of the file.
  returned: if O(look)
  type: bool
  sample: true
answered:
  description: Whether every line of the file is a successful answer. The batch's program writes it once all were sent.
  returned: if O(look)
  type: bool
  sample: false
size:
  description: The size of the file, in bytes.
  returned: unless O(look)
  type: int
  sample: 51234
digest:
  description: SHA-256 of the whole file. A part has it where O(length) is 0.
  returned: unless O(look)
  type: str
  sample: 0d599f0ec05c3bda8c3b8a68c32a1b47e1b2f9b6a0b0cc0b4b1f6f6f6b8a2e11
content:
  description: The part, compressed with zlib, in base64. Of the action's own parts only.
  returned: where O(length) is not 0
  type: str
  sample: eJzLSM3JyQcABiwCFQ==
"""

import base64
import os
import zlib
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.batch import lines
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "src": {"type": "path", "required": True},
    "dest": {"type": "path"},
    "look": {"type": "bool", "default": False},
    "offset": {"type": "int", "default": 0},
    "length": {"type": "int", "default": 0},
}


def is_answered(output: Path) -> bool:
    """Whether every request has an answer on the node: the output is written once all were sent."""
    if not output.is_file():
        return False
    with output.open(encoding="utf-8", errors="replace") as there:
        return all(line is not None and not lines.failure(line) for line in map(lines.read_line, there))


def main() -> None:
    """Read and report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    if module.params["look"]:
        source = Path(module.params["src"])
        module.exit_json(changed=False, there=source.parent.is_dir(), answered=is_answered(source))
    try:
        with Path(module.params["src"]).open("rb") as there:
            if not module.params["length"]:
                size = there.seek(0, os.SEEK_END)
                module.exit_json(changed=False, digest=module.sha256(module.params["src"]), size=size)
            there.seek(module.params["offset"])
            part = there.read(module.params["length"])
    except OSError as error:
        module.fail_json(msg=f"{module.params['src']} cannot be read: {printable(str(error.strerror))}.")
        return
    module.exit_json(changed=False, content=base64.b64encode(zlib.compress(part)).decode(), size=len(part))


if __name__ == "__main__":
    main()
