#!/usr/bin/python
"""Ansible module: record which packages a node gets with a part of this project, and remove these again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: brought_packages
short_description: Record which packages this project installed, and remove them again
version_added: "0.2.0"
author: gaudi-serving
description:
  - With V(noted), before an installation, asks apt which packages it would bring that are not on the node, those that
    come along included, and writes them down.
  - With V(removed) purges what was written down for a part, and says what of it was there before. What was written down
    stays until V(forgotten), so that a removal that is cut off knows the next time what came with ours.
  - Without a record, nothing is removed.
options:
  part:
    description: What the packages belong to, such as V(driver) or V(engine).
    type: str
    required: true
  state:
    description: What to do.
    type: str
    choices: [noted, removed, forgotten]
    default: noted
  packages:
    description:
      - For V(noted), what is about to be installed, as apt-get takes it.
      - For V(removed), names that are the part's; those that stay because they were there before are returned.
    type: list
    elements: str
    default: []
  options:
    description: Further options that apt-get is given for the installation.
    type: list
    elements: str
    default: []
  record:
    description: Path of the record.
    type: path
    default: /var/lib/gaudi-serving/brought.json
requirements:
  - root (C(become))
attributes:
  check_mode:
    description: Says what would be removed, and changes nothing.
    support: full
  diff_mode:
    description: Not supported.
    support: none
  platform:
    description: Debian and Ubuntu. On other systems nothing is recorded or removed.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Write down what the engine's packages bring
  brought_packages:
    part: engine
    packages: [docker.io]
  become: true

- name: Take away what they brought
  brought_packages:
    part: engine
    packages: [docker.io]
    state: removed
  become: true

- name: Forget it, once everything else of the part is gone as well
  brought_packages:
    part: engine
    state: forgotten
  become: true
"""

RETURN = r"""
packages:
  description: Packages recorded for the part, or removed.
  returned: always
  type: list
  elements: str
  sample: [containerd, docker.io, runc]
ours:
  description: Packages installed with the part, even if they are gone now.
  returned: always
  type: list
  elements: str
  sample: [containerd, docker.io, runc]
stays:
  description: Packages of O(packages) that are on the node and were there before us.
  returned: always
  type: list
  elements: str
  sample: []
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: packages_needed_by_others
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.driver import packages as listed
from ansible.module_utils.gaudi.driver.facts import DEB
from ansible.module_utils.gaudi.driver.troubles import recognised
from ansible.module_utils.gaudi.engine import brought
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.files import write_json
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "part": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["noted", "removed", "forgotten"], "default": "noted"},
    "packages": {"type": "list", "elements": "str", "default": []},
    "options": {"type": "list", "elements": "str", "default": []},
    "record": {"type": "path", "default": paths.BROUGHT},
}
ENVIRONMENT = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
# Packages by part; a part without an entry brought none.
FORM = {"packages": {str: [str]}}


def said(module: AnsibleModule, command: list[str]) -> str:
    """Return apt-get's output; fail the module with its message on an error."""
    code, out, err = module.run_command(command, environ_update=ENVIRONMENT)
    if code != 0:
        refusal = recognised(err) or recognised(out)
        module.fail_json(
            msg=str(refusal or printable((err or out).strip())), refused_id=refusal.id if refusal else "apt_failed"
        )
    return str(out)


def installed(module: AnsibleModule, names: list[str]) -> list[str]:
    """Those of some packages that are on the node."""
    if not names:
        return []
    _, out, _ = module.run_command(listed.query(DEB, names))
    return sorted(set(listed.parse(out)) & set(names))


def note(module: AnsibleModule, record: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the record with the packages that an installation will add."""
    params = module.params
    new = brought.new_of(said(module, brought.simulation(params["options"], params["packages"])))
    after: dict[str, list[str]] = brought.noted(record, params["part"], new)
    return after


def remove(module: AnsibleModule, ours: list[str]) -> list[str]:
    """Remove a part's remaining packages; return them."""
    there = installed(module, ours)
    if there:
        refusal = brought.needed_by_others(brought.going_of(said(module, brought.removal(there, simulate=True))), ours)
        if refusal:
            module.fail_json(msg=str(refusal), refused_id=refusal.id)
        if not module.check_mode:
            said(module, brought.removal(there, simulate=False))
    return there


def main() -> None:
    """Read, ask apt, write or remove."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, path = module.params, Path(module.params["record"])
    if module.get_bin_path("apt-get") is None:
        module.exit_json(changed=False, packages=[], ours=[], stays=[])
    try:
        record = (read_json(path, FORM) or {"packages": {}})["packages"]
    except Damaged as damage:
        module.fail_json(msg=f"{damage}. Move it away: then nothing counts as ours.", refused_id="record_damaged")
    part, state, after = params["part"], params["state"], record
    ours: list[str] = record.get(part, [])
    packages: list[str] = []
    if state == "noted":
        after = note(module, record)
        packages = ours = after.get(part, [])
    elif state == "removed":
        packages = remove(module, ours)
    else:
        after = brought.without(record, part)
    stays = installed(module, [name for name in params["packages"] if name not in ours and "=" not in name])
    if after != record and not module.check_mode:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_json(path, {"packages": after}, mode=0o644) if after else path.unlink()
    module.exit_json(changed=state == "removed" and bool(packages), packages=packages, ours=ours, stays=stays)


if __name__ == "__main__":
    main()
