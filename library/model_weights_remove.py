#!/usr/bin/python
"""Remove weights that nothing uses."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_weights_remove
short_description: Remove weights that nothing uses
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Removes one folder below the weights root that the role P(gaudi_serving.model_weights#role) has fetched, or what an
    interrupted fetch has left.
  - Refuses weights an instance's plan uses, whether it runs or not, weights that are being fetched, and folders without
    a record of ours, which are somebody's own.
options:
  root:
    description: The weights root.
    type: path
    required: true
  directory:
    description: Name of the folder.
    type: str
    required: true
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would be removed, and removes nothing.
    support: full
  diff_mode:
    description: Shows the folder that is removed.
    support: full
seealso:
  - module: node_report
"""

EXAMPLES = r"""
- name: Remove weights that are no longer served
  model_weights_remove:
    root: /data/models
    directory: Qwen3-8B
  become: true
"""

RETURN = r"""
bytes:
  description: Bytes of the files that were (or would be) removed.
  returned: always
  type: int
  sample: 16392960421
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when others than root may write to the weights root, or a link lies where a folder is to be
  type: str
  sample: others_may_write
"""

import fcntl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import beneath
from ansible.module_utils.gaudi.node import weight_folders as weights_folders
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.weights import record as weights

ARGUMENT_SPEC: dict[str, Any] = {
    "root": {"type": "path", "required": True},
    "directory": {"type": "str", "required": True},
}


def refusal(folder: Path, described: dict[str, Any], damaged: Sequence[Path]) -> str:
    """Return why a folder may not be removed; "" if it may. ``damaged``: unreadable plans of the node."""
    if described["used_by"]:
        names = ", ".join(described["used_by"])
        return (
            f"{folder} is used by {names}. Remove the instance first (playbooks/remove.yml), or serve something else."
        )
    if damaged:
        return (
            f"{damaged[0]} is damaged, so that nobody can tell whether {damaged[0].parent.name} uses {folder}. "
            "Run site.yml, which writes it again, or remove the instance (playbooks/remove.yml)."
        )
    if described["status"] == "unknown":
        return f"{folder} has no record of this project, so it is somebody's own. Remove it by hand if it may go."
    if described["status"] == "unfinished" and being_fetched(folder):
        return f"{folder} is being fetched. Cancel that first: playbooks/jobs.yml shows how."
    return ""


def being_fetched(staging: Path) -> bool:
    """Whether a fetch holds the lock of a staging folder."""
    lock = staging / weights.LOCK
    try:
        handle = beneath.open_file(lock, staging, "r+b")
    except FileNotFoundError:
        return False
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def remove(folder: Path) -> None:
    """Remove a folder so that an interrupted removal is recognised as unfinished weights."""
    if not folder.name.endswith(weights.STAGING_SUFFIX):
        staging = folder.with_name(folder.name + weights.STAGING_SUFFIX)
        # The manifest is removed first. Converted weights have none; their converter's record is removed with the rest.
        beneath.remove(folder / weights.MANIFEST, folder)
        if beneath.look(staging, staging) is None:
            beneath.rename(folder, folder, staging, staging)
            folder = staging
    beneath.remove_tree(folder, folder)


def main() -> None:
    """Look, decide, act."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    root, name = Path(module.params["root"]), module.params["directory"]
    if weights.unsafe(name) or "/" in name:
        module.fail_json(
            msg=f"{name!r} is no folder's name; give one of those playbooks/weights.yml lists.",
            refused_id="not_a_folder_name",
        )
    found = weights_folders.look(root, [name])
    if not found:
        module.exit_json(changed=False, bytes=0)
    folder = root / name
    try:
        beneath.refuse_writers(root)
        refused = refusal(folder, found[0], weights_folders.damaged_plans(weights_folders.PLANS))
        if refused:
            module.fail_json(msg=refused, refused_id="folder_in_use")
        if not module.check_mode:
            remove(folder)
    except Refusal as hostile:
        module.fail_json(msg=f"{hostile}.", refused_id=hostile.id)
    diff = {"before": f"{folder}\n", "after": "", "before_header": str(folder), "after_header": str(folder)}
    module.exit_json(changed=True, bytes=found[0]["bytes"], diff=diff)


if __name__ == "__main__":
    main()
