#!/usr/bin/python
"""Ansible module: read which source apt has for a repository, or remove this project's own."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_source
short_description: Read which source apt has for a repository, or remove this project's own
description:
  - With V(read) reads C(sources.list) and the files of C(sources.list.d). apt reads no repository at all if two sources
    of one repository and suite name different keys, so that a second one must not be written. Fails if such a source
    cannot be used, and names its file.
  - With V(absent) removes C(habana.sources) from C(sources.list.d), and files in C(/var/lib/apt/lists) that belong to
    its sources and to no other source of the node. apt reads no repository for that. A file of that name that is not
    signed by this project's keyring was written by others, and stays.
author: gaudi-serving
extends_documentation_fragment: attributes.node
attributes:
  check_mode: {support: full, description: Returns what would be removed.}
  diff_mode: {support: none, description: Only removes files.}
options:
  state:
    description: Whether to read the sources, or to remove this project's own.
    type: str
    choices: [read, absent]
    default: read
  repository:
    description: Address of the repository, without an account. Needed with O(state=read).
    type: str
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
  apt_source:
    repository: https://vault.habana.ai/artifactory/debian

- name: Remove our source
  apt_source:
    state: absent
  become: true
"""

RETURN = r"""
file:
  description: File with the source that is used instead of this project's. Empty where there is none.
  type: str
  returned: with O(state=read)
  sample: /etc/apt/sources.list.d/artifactory.list
removed:
  description: Paths that were removed, or would be.
  returned: with O(state=absent)
  type: list
  elements: str
  sample: [/etc/apt/sources.list.d/habana.sources]
stays:
  description: What stays and why, for "Stays" in a message.
  returned: with O(state=absent)
  type: list
  elements: str
  sample: []
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  type: str
  returned: when the task fails for a refusal
  sample: source_of_other_key
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.apt import lists
from ansible.module_utils.gaudi.apt.sources import OWN_FILE, OWN_KEYRING
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import apt
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["read", "absent"], "default": "read"},
    "repository": {"type": "str"},
    "suite": {"type": "str", "default": ""},
    "fingerprint": {"type": "str", "default": ""},
}
# apt also keeps what it is reading, and what it needs beside the lists.
FOLDERS = ("", "partial", "auxfiles")


def remove(*, check: bool) -> dict[str, Any]:
    """Remove our source and its lists, or in check mode nothing; return what went, and what stays."""
    own = apt.ETC / "sources.list.d" / Path(OWN_FILE).name
    sources = apt.read_sources()
    ours = [source for source in sources if source.file == str(own)]
    # Disabled sources are in the file alone, not in what read_sources() returns.
    foreign = own.is_file() and OWN_KEYRING not in own.read_text(encoding="utf-8", errors="replace")
    if foreign or any(source.signed_by != OWN_KEYRING for source in ours):
        return {"changed": False, "removed": [], "stays": [f"{own}, which others wrote"]}
    folders = [apt.LISTS / name for name in FOLDERS if (apt.LISTS / name).is_dir()]
    found = [file for folder in folders for file in folder.iterdir() if file.is_file()]
    names = lists.only_of({file.name for file in found}, ours, [each for each in sources if each not in ours])
    # The source last: the names come from it.
    going = [*sorted(file for file in found if file.name in names), *([own] if own.is_file() else [])]
    for file in going if not check else []:
        file.unlink()
    return {"changed": bool(going), "removed": [str(file) for file in going], "stays": []}


def main() -> None:
    """Read the sources; return the file, or what was removed."""
    module = NodeModule(
        argument_spec=ARGUMENT_SPEC, supports_check_mode=True, required_if=[("state", "read", ["repository"])]
    )
    wanted = module.params
    if wanted["state"] == "absent":
        module.exit_json(**remove(check=module.check_mode))
    try:
        file = apt.existing_source(wanted["repository"], wanted["suite"], wanted["fingerprint"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    module.exit_json(changed=False, file=file)


if __name__ == "__main__":
    main()
