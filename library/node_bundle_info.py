#!/usr/bin/python
"""Read the contents of a support bundle for remote help, without the node's secrets."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_bundle_info
short_description: Read a support bundle of a node, without secrets
version_added: "0.1.0"
author: gaudi-serving
description:
  - Reads a fixed list of files and of commands' output - verdict, host tuning, images, reservations, plans and states
    of instances, hl-smi, kernel, disks, containers, units. It never reads API keys, tokens, the environment of an
    instance, or what servers log.
  - What a name calls a token, key, secret, password or the like, and the account and query of an address, is taken out
    of what was read. Variables of instances and arguments of the kernel are shown by name alone where the release and
    this project do not know them.
options: {}
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
seealso:
  - module: node_faults_info
"""

EXAMPLES = r"""
- name: Read what helps others to help
  node_bundle_info:
  register: bundle
  become: true
"""

RETURN = r"""
text:
  description: What was read, each file and command under a line with its name. Of what could not be read, why.
  returned: always
  type: str
  sample: "==== uname -a\\nLinux gaudi-01 5.15.0-91-generic ..."
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.doctor import bundle
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.recording import files_of_instances, run_command, text_of

ARGUMENT_SPEC: dict[str, Any] = {}


def files() -> Iterator[Path]:
    """Return the paths of the bundle's files, existing or not."""
    yield from map(Path, bundle.FILES)
    yield from files_of_instances()


def main() -> None:
    """Read, mask, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    texts = {str(file): text_of(file) for file in files()}
    texts.update({" ".join(command): run_command(command).text for command in bundle.COMMANDS})
    module.exit_json(changed=False, text=bundle.page(texts))


if __name__ == "__main__":
    main()
