#!/usr/bin/python
"""Ansible module: remove this project's source for apt, and the package lists that apt has read from it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_source_remove
short_description: Remove this project's source for apt, and the package lists that apt has read from it
description:
  - Removes C(habana.sources) from C(sources.list.d), and files in C(/var/lib/apt/lists) that belong to its sources and
    to no other source of the node. apt reads no repository for that.
  - A file of that name that is not signed by this project's keyring was written by others, and stays.
author: gaudi-serving
extends_documentation_fragment: attributes.node
attributes:
  check_mode: {support: full, description: Returns what would be removed.}
  diff_mode: {support: none, description: Only removes files.}
options: {}
"""

EXAMPLES = r"""
- name: Remove our source
  apt_source_remove:
  become: true
"""

RETURN = r"""
removed:
  description: Paths that were removed, or would be.
  returned: always
  type: list
  elements: str
  sample: [/etc/apt/sources.list.d/habana.sources]
stays:
  description: What stays and why, for "Stays" in a message.
  returned: always
  type: list
  elements: str
  sample: []
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.apt import lists
from ansible.module_utils.gaudi.apt.sources import OWN_FILE, OWN_KEYRING
from ansible.module_utils.gaudi.node import apt
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {}
# apt also keeps what it is reading, and what it needs beside the lists.
FOLDERS = ("", "partial", "auxfiles")


def main() -> None:
    """Read the sources, decide, remove."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    own = apt.ETC / "sources.list.d" / Path(OWN_FILE).name
    sources = apt.read_sources()
    ours = [source for source in sources if source.file == str(own)]
    if any(source.signed_by != OWN_KEYRING for source in ours):
        module.exit_json(changed=False, removed=[], stays=[f"{own}, which others wrote"])
    folders = [apt.LISTS / name for name in FOLDERS if (apt.LISTS / name).is_dir()]
    found = [file for folder in folders for file in folder.iterdir() if file.is_file()]
    names = lists.only_of({file.name for file in found}, ours, [each for each in sources if each not in ours])
    # The source last: the names come from it.
    going = [*sorted(file for file in found if file.name in names), *([own] if own.is_file() else [])]
    for file in going if not module.check_mode else []:
        file.unlink()
    module.exit_json(changed=bool(going), removed=[str(file) for file in going], stays=[])


if __name__ == "__main__":
    main()
