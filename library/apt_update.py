#!/usr/bin/python
"""Ansible module: have apt read its repositories, and tell the fault of ours from those of others."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_update
short_description: Have apt read its repositories, and tell the fault of ours from those of others
description:
  - Runs C(apt-get update). A repository of others that is broken is a warning; one that O(repository) names
    fails the task with the cause. So does a package of O(packages) that no repository offers.
  - Waits while another program reads the lists.
author: gaudi-serving
extends_documentation_fragment: attributes.node
attributes:
  check_mode: {support: full, description: Reads nothing.}
  diff_mode: {support: none, description: Changes only what apt knows of its repositories.}
options:
  repository:
    description: Address of the repository that is needed. Without an account. Empty where none is needed.
    type: str
    default: ""
  suite:
    description: Suite of that repository. Empty means the system's codename.
    type: str
    default: ""
  options:
    description: Prefix of the options that describe the repository, for messages.
    type: str
    default: gaudi_driver
  packages:
    description:
      - Names of packages that a repository must offer. If all of them are installed, nothing is read.
    type: list
    elements: str
    default: []
  valid_seconds:
    description: Age in seconds up to which the lists are not read again. 0 reads them each time.
    type: int
    default: 0
  lock_timeout:
    description: Maximum duration in seconds of waiting for another program.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Read the package lists
  apt_update:
    repository: https://vault.habana.ai/artifactory/debian
    suite: jammy
"""

RETURN = r"""
faults:
  description: Faults of other repositories, as sentences.
  type: list
  elements: str
  returned: always
  sample: []
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: repository_down
"""

from typing import Any

from ansible.module_utils.gaudi.apt import faults
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import apt
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "repository": {"type": "str", "default": ""},
    "suite": {"type": "str", "default": ""},
    "options": {"type": "str", "default": "gaudi_driver"},
    "packages": {"type": "list", "elements": "str", "default": []},
    "valid_seconds": {"type": "int", "default": 0},
    "lock_timeout": {"type": "int", "default": 120},
}


def lacking(module: NodeModule, field: str) -> list[str]:
    """Return the wanted packages of which apt has no version; field: ``Installed`` or ``Candidate``."""
    names = module.params["packages"]
    if not names:
        return []
    _, out, _ = module.run_command([module.get_bin_path("apt-cache", required=True), "policy", *names])
    return [name for name in names if name not in faults.with_version(out, field)]


def not_due(module: NodeModule) -> bool:
    """Whether nothing has to be read: the packages are installed, or are offered by lists that are recent."""
    if module.params["packages"] and not lacking(module, "Installed"):
        return True
    return bool(apt.age() < module.params["valid_seconds"]) and not lacking(module, "Candidate")


def main() -> None:
    """Read the repositories, judge the faults, return those of others."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    wanted = module.params
    if module.check_mode or not_due(module):
        module.exit_json(changed=False, faults=[])
    try:
        found, unknown = apt.update(module, wanted["lock_timeout"])
        suite = wanted["suite"] or apt.codename()
        ca_file = apt.environment(module, wanted["repository"]).get("SSL_CERT_FILE", "") if found else ""
        proxies = {fault.uri: apt.proxy(module, fault.uri) for fault in found}
        others = faults.judge(
            found, apt.read_sources(), wanted["repository"], suite, wanted["options"], ca_file, proxies
        )
        nowhere = lacking(module, "Candidate")
        if nowhere:
            raise faults.not_offered(nowhere, others)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    if unknown:
        others.append(f"apt-get update failed: {unknown}")
    for sentence in others:
        module.warn(sentence)
    module.exit_json(changed=False, faults=others)


if __name__ == "__main__":
    main()
