#!/usr/bin/python
"""Read what weights a node has."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_weights_info
short_description: Read what weights a node has
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Says of each folder below the weights root whether it is whole by its record and the sizes of its files, where it
    came from, when every byte was last verified, and which instances use it. Reads no content, so it takes under a
    second whatever the size of the model.
options:
  root:
    description: The weights root.
    type: path
    required: true
  directories:
    description: Names of folders to look at. Without it all of them. Those that are not there are left out.
    type: list
    elements: str
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
seealso:
  - module: model_weights_remove
"""

EXAMPLES = r"""
- name: Read what weights the node has
  model_weights_info:
    root: /data/models
  become: true
  register: weights
"""

RETURN = r"""
folders:
  description: One entry a folder, sorted by name.
  returned: always
  type: list
  elements: dict
  contains:
    directory:
      description: Name of the folder.
      type: str
      sample: Qwen3-8B
    status:
      description:
        - V(whole), V(incomplete) (files are missing, short, or were found damaged), V(damaged) (the record cannot be
          read), V(unfinished) (a fetch that runs or was interrupted), V(converted) (made of another folder, with the
          converter's record), or V(unknown) (no record of ours).
      type: str
      sample: whole
    bytes:
      description: Bytes of its files.
      type: int
      sample: 16392960421
    source:
      description: Name of the source it came from.
      type: str
      sample: huggingface
    repository:
      description: Repository it came from.
      type: str
      sample: Qwen/Qwen3-8B
    revision:
      description: Commit of that repository.
      type: str
      sample: b968826d9c46dd6066d109eabc6255188de91218
    fetched:
      description: When it was fetched, every byte checked.
      type: str
      sample: "2026-01-31T08:00:00Z"
    verified:
      description: When every byte was last read again; empty if never since.
      type: str
      sample: "2026-02-28T08:00:00Z"
    wrong:
      description: Names of files that are missing, of another size, or were found damaged.
      type: list
      elements: str
      sample: []
    used_by:
      description: Instances whose plan uses it, whether they run or not.
      type: list
      elements: str
      sample: [qwen3-8b]
storage:
  description: Type and source of the file system the weights root is, or would be, on.
  returned: always
  type: dict
  sample: {fstype: nfs4, source: "filer:/models"}
giving:
  description: Whether the node gives a folder to others, or a run that was cut off left that behind.
  returned: always
  type: bool
  sample: false
rsync:
  description: Whether the node has rsync, which gives and takes folders.
  returned: always
  type: bool
  sample: true
table:
  description: The same for people, a line each.
  returned: always
  type: list
  elements: str
  sample: ["Qwen3-8B  16.4 GB  whole  used by qwen3-8b"]
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.node import weight_folders as weights_folders
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.weights import table as weights_table

ARGUMENT_SPEC: dict[str, Any] = {
    "root": {"type": "path", "required": True},
    "directories": {"type": "list", "elements": "str"},
}


# There while the role weights_supply has the node give a folder.
GIVING = Path("/run/gaudi-serving-give")


def main() -> None:
    """Look, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    root = Path(module.params["root"])
    folders = weights_folders.look(root, module.params["directories"])
    for file in weights_folders.damaged_plans(weights_folders.PLANS):
        module.warn(f"{file} is damaged: which folders {file.parent.name} uses is not known.")
    fstype, source = weights_folders.mounted(Path("/proc/self/mountinfo").read_text(encoding="utf-8"), str(root))
    storage = {"fstype": fstype, "source": source}
    rsync = module.get_bin_path("rsync") is not None
    module.exit_json(
        changed=False,
        folders=folders,
        storage=storage,
        giving=GIVING.exists(),
        rsync=rsync,
        table=weights_table.table(folders),
    )


if __name__ == "__main__":
    main()
