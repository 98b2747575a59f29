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
attributes:
  check_mode:
    description: Only reads, so check mode makes no difference.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  platform:
    description: Linux with systemd.
    support: full
    platforms: posix
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

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.doctor import bundle
from ansible.module_utils.gaudi.node import instances
from ansible.module_utils.gaudi.node.module import UNTRANSLATED, NodeModule

ARGUMENT_SPEC: dict[str, Any] = {}


def files() -> Iterator[Path]:
    """Return the paths of the bundle's files, existing or not."""
    yield from map(Path, bundle.FILES)
    for name in instances.installed():
        yield from (instances.PLANS / name / file for file in bundle.OF_PLAN)
        yield from (instances.STATES / name / file for file in bundle.OF_STATE)


def text_of(file: Path) -> str:
    """Return a file's content, or why it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}\n"


def said_by(command: Sequence[str]) -> str:
    """Return a command's output, or why it failed."""
    try:
        done = subprocess.run(
            command,
            check=False,
            env={**os.environ, **UNTRANSLATED},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=bundle.COMMAND_SECONDS,
        )
    except FileNotFoundError:
        return f"{command[0]} is not on the node\n"
    except subprocess.TimeoutExpired:
        return f"{' '.join(command)} did not end within {bundle.COMMAND_SECONDS} s\n"
    return done.stdout.decode("utf-8", "replace")


def main() -> None:
    """Read, mask, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    texts = {str(file): text_of(file) for file in files()}
    texts.update({" ".join(command): said_by(command) for command in bundle.COMMANDS})
    module.exit_json(changed=False, text=bundle.page(texts))


if __name__ == "__main__":
    main()
