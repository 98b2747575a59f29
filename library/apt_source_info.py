#!/usr/bin/python
"""Ansible module: tell whether the node has a source for a repository already."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_source_info
short_description: Tell whether the node has a source for a repository already
description:
  - Reads C(sources.list) and the files of C(sources.list.d). apt reads no repository at all if two sources of one
    repository and suite name different keys, so that a second one must not be written.
  - Fails if such a source cannot be used, and names its file.
author: gaudi-serving
extends_documentation_fragment: attributes.reads
options:
  repository:
    description: Address of the repository, without an account.
    type: str
    required: true
  suite:
    description: Suite of the repository. Empty means the system's codename.
    type: str
    default: ""
  fingerprint:
    description: Fingerprint of the key that the site names. Empty means that any key is accepted.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Read which source apt has
  apt_source_info:
    repository: https://vault.habana.ai/artifactory/debian
"""

RETURN = r"""
file:
  description: File with the source that is used instead of this project's. Empty where there is none.
  type: str
  returned: always
  sample: /etc/apt/sources.list.d/artifactory.list
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: source_of_other_key
"""

from typing import Any

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import apt
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "repository": {"type": "str", "required": True},
    "suite": {"type": "str", "default": ""},
    "fingerprint": {"type": "str", "default": ""},
}


def main() -> None:
    """Read the sources, compare, return the file."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    wanted = module.params
    try:
        file = apt.existing_source(wanted["repository"], wanted["suite"], wanted["fingerprint"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    module.exit_json(changed=False, file=file)


if __name__ == "__main__":
    main()
