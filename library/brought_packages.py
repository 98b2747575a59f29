#!/usr/bin/python
"""Ansible module: record which packages a node gets with a part of this project, and remove these again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: brought_packages
short_description: Record which packages this project installed, and remove them again
version_added: "0.2.0"
author: gaudi-serving
description:
  - With V(noted), before an installation, has the package manager simulate it, and writes down which packages it would
    bring that are not on the node, those that come along included.
  - Fails before anything is changed if the installation would remove or downgrade packages that this project did not
    install, change packages on hold, or finish packages that are installed by half. Warns of packages of others that it
    would upgrade.
  - With V(removed) purges what was written down for a part, and says what of it was there before. What was written down
    stays until V(forgotten), so that a removal that is cut off knows the next time what came with ours. A package that
    another part needs stays, and is written down for that part from then on.
  - With V(forgotten), also removes the package files that the part's installation left in C(/var/cache/apt/archives),
    of packages that are not installed any more.
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
      - For V(noted), what is about to be installed, as apt-get or dnf takes it. Those that are installed are passed
        over.
      - For V(removed), names that are the part's; those that stay because they were there before are returned.
    type: list
    elements: str
    default: []
  options:
    description: Further options that apt-get is given for the installation.
    type: list
    elements: str
    default: []
  own:
    description: How names of packages begin that the part may remove, downgrade or finish.
    type: list
    elements: str
    default: []
  keep_needed:
    description:
      - For V(removed), whether packages that packages of others need by now stay. Otherwise the removal is refused.
    type: bool
    default: false
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
    description: Debian and Ubuntu; on RHEL nothing is removed.
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
kept:
  description: What this project installed and stays, and why, for "Stays" in a message.
  returned: always
  type: list
  elements: str
  sample: ["git, which this project installed and git-lfs of others needs"]
upgrades:
  description: The warning about packages of others that the installation upgrades.
  returned: always
  type: list
  elements: str
  sample: []
files:
  description: Package files that were removed from apt's cache, or would be.
  returned: always
  type: list
  elements: str
  sample: [/var/cache/apt/archives/runc_1.1.5+ds1-1+b1_amd64.deb]
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: packages_needed_by_others
"""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.driver.troubles import recognised
from ansible.module_utils.gaudi.engine import brought, transaction
from ansible.module_utils.gaudi.engine.transaction import DEBIAN
from ansible.module_utils.gaudi.node import apt, package_look, package_states
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.files import write_json
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "part": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["noted", "removed", "forgotten"], "default": "noted"},
    "packages": {"type": "list", "elements": "str", "default": []},
    "options": {"type": "list", "elements": "str", "default": []},
    "own": {"type": "list", "elements": "str", "default": []},
    "keep_needed": {"type": "bool", "default": False},
    "record": {"type": "path", "default": paths.BROUGHT},
}
# Packages by part; a part without an entry brought none.
FORM = {"packages": {str: [str]}}
LISTS = ("packages", "ours", "stays", "kept", "upgrades", "files")
ARCHIVES = Path("/var/cache/apt/archives")


def said(module: AnsibleModule, command: list[str]) -> str:
    """Return apt-get's output; fail the module with its message on an error."""
    code, out, err = module.run_command(command, environ_update=package_look.ENVIRONMENT)
    if code != 0:
        refusal = apt.in_conflict(err) or recognised(err) or recognised(out)
        module.fail_json(
            msg=str(refusal or printable((err or out).strip())), refused_id=refusal.id if refusal else "apt_failed"
        )
    return str(out)


def installed(module: AnsibleModule, family: str, names: list[str]) -> list[str]:
    """Those of some packages that are on the node, completely or in part."""
    found = package_states.states(module, family, names)
    return sorted(name for name in set(names) if found.get(name, package_states.GONE[0]) not in package_states.GONE)


def simulate(module: AnsibleModule, family: str, record: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """Return the packages that an installation adds, and warnings; fail the module if it would harm those of others."""
    params = module.params
    # Of a package without a version, an installed one stays as it is.
    absent = package_states.missing(module, family, [name for name in params["packages"] if "=" not in name])
    packages = [name for name in params["packages"] if "=" in name or name in absent]
    ours = {name for names in record.values() for name in names}
    if not packages:
        return [], []
    options = params["options"] if family == DEBIAN else []
    try:
        found = package_look.simulate(
            module, family, {params["part"]: packages}, ours=ours, own=params["own"], options=options
        )
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    warnings = transaction.upgrades(found.without(ours, params["own"]), packages)
    for warning in warnings:
        module.warn(warning)
    return list(found.new), warnings


def foresee(module: AnsibleModule, ours: list[str]) -> brought.Removal:
    """Return which of a part's packages can be removed, and which have to stay as other packages need them."""
    there = installed(module, DEBIAN, ours)
    if not there:
        return brought.Removal()

    def removed(names: Sequence[str]) -> tuple[str, ...]:
        found: transaction.Transaction = transaction.parse(DEBIAN, said(module, brought.removal(names, simulate=True)))
        return found.removed

    plan: brought.Removal = brought.divide(there, ours, removed)
    return plan


def remove(module: AnsibleModule, record: dict[str, list[str]], ours: list[str]) -> brought.Removal:
    """Remove a part's remaining packages but for those that other packages need; return both."""
    plan = foresee(module, ours)
    needing = [name for names in plan.kept.values() for name in names]
    known = {name for names in record.values() for name in names}
    refusal = None if module.params["keep_needed"] else brought.needed_by_others(dict.fromkeys(needing), known)
    if refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    if plan.going and not module.check_mode:
        said(module, brought.removal(plan.going, simulate=False))
    return plan


def write(path: Path, record: dict[str, list[str]]) -> None:
    """Write the record, or remove one that is empty."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_json(path, {"packages": record}, mode=0o644) if record else path.unlink()


def clear_cache(module: AnsibleModule, ours: list[str]) -> dict[str, Any]:
    """Remove files of a part's packages that are gone from apt's cache; return what is reported."""
    # Check mode has removed no package before this.
    there = foresee(module, ours).kept if module.check_mode else installed(module, DEBIAN, ours)
    # A package was not on the node before its part, so that its files came with it. No name has an underscore.
    files = sorted(file for name in ours if name not in there for file in ARCHIVES.glob(f"{glob.escape(name)}_*.deb"))
    for file in files if not module.check_mode else []:
        file.unlink()
    return {"changed": bool(files), "files": [str(file) for file in files]}


def read_record(module: AnsibleModule, path: Path) -> dict[str, list[str]]:
    """Return the packages by part; fail the module for a damaged record."""
    try:
        return dict((read_json(path, FORM) or {"packages": {}})["packages"])
    except Damaged as damage:
        module.fail_json(msg=f"{damage}. Move it away: then nothing counts as ours.", refused_id="record_damaged")
    raise AssertionError("fail_json ends the module")


def remove_part(module: AnsibleModule, record: dict[str, list[str]], ours: list[str]) -> tuple[dict[str, Any], Any]:
    """Remove a part's packages; return what is reported, and the record afterwards."""
    part, plan = module.params["part"], remove(module, record, ours)
    stays = installed(module, DEBIAN, [name for name in module.params["packages"] if name not in ours])
    report = {"changed": bool(plan.going), "packages": list(plan.going), "stays": stays}
    return {**report, "kept": brought.stays(record, plan.kept)}, brought.handed_over(record, part, plan.kept)


def main() -> None:
    """Read, ask the package manager, write or remove."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    part, state, path = module.params["part"], module.params["state"], Path(module.params["record"])
    family = package_states.family()
    report: dict[str, Any] = {"changed": False, **{name: [] for name in LISTS}}
    if not family:
        module.exit_json(**report)
    record = read_record(module, path)
    ours, after = record.get(part, []), record
    if state == "removed" and family != DEBIAN:
        module.exit_json(**{**report, "kept": brought.not_removed(installed(module, family, ours))})
    if state == "noted":
        new, report["upgrades"] = simulate(module, family, record)
        after = brought.noted(record, part, new)
        ours = report["packages"] = after.get(part, [])
    elif state == "removed":
        found, after = remove_part(module, record, ours)
        report.update(found)
    else:
        after = brought.without(record, part)
        report.update(clear_cache(module, ours if family == DEBIAN else []))
    if after != record and not module.check_mode:
        write(path, after)
    module.exit_json(**{**report, "ours": ours})


if __name__ == "__main__":
    main()
