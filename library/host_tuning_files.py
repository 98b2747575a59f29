#!/usr/bin/python
"""Hold several files of our own in one go, or take them away."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning_files
short_description: Files of the role host_tuning
description:
  - Writes the files that differ, and makes the directories they lie in. One round trip for all of them, so that a
    run that changes nothing is a short one.
author: gaudi-serving
options:
  library_for:
    description:
      - The role whose programs are among the files. The library that they import is held for it, before the files.
      - The action of the same name does that; see the module node_library.
    type: str
  files:
    description: The files.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Where the file lies.
        type: path
        required: true
      content:
        description: Content of the file. Without it, the file is removed.
        type: str
      mode:
        description: Its permissions, in octal.
        type: str
        default: "0644"
      with_directory:
        description: Whether the directory, when the file is taken away and leaves it empty, goes too.
        type: bool
        default: false
      marked:
        description: >-
          Whether the file says in its first line that this role wrote it. One at this path that does not is somebody
          else's: the module fails, with everything as it was.
        type: bool
        default: false
  desired:
    description: >-
      Data for the record of the desired state, by which a run detects at its end that another run has written since.
    type: dict
    suboptions:
      record:
        description: Path of the record. It is rewritten if it belongs to another desired state, or is damaged.
        type: path
        required: true
      of:
        description: Name of the settings, as the beginning of a sentence.
        type: str
        required: true
      by:
        description: The name of the controller.
        type: str
        required: true
      asked:
        description: Further settings that are not in files.
        type: dict
        default: {}
  held:
    description: The text of further files that belong to the O(desired), by path; empty for one that is to be absent.
    type: dict
    default: {}
  kernel:
    description: Values that belong to the O(desired) and that the kernel runs with, by name.
    type: dict
    default: {}
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: Shows each file that differs.
    support: full
"""

EXAMPLES = r"""
- name: Write a unit and take another away
  host_tuning_files:
    files:
      - path: /etc/systemd/system/gaudi-host-tuning.service
        content: "{{ lookup('ansible.builtin.template', 'gaudi-host-tuning.service.j2') }}"
      - path: /etc/systemd/system/former.service
"""

RETURN = r"""
library_changed:
  description: Whether files of the library that the programs import were, or would be, changed.
  type: bool
  returned: always
  sample: false
written:
  description: Paths that were, or would be, written or taken away; not the record of the desired state.
  type: list
  elements: str
  returned: always
  sample: ["/etc/systemd/system/gaudi-host-tuning.service"]
desired:
  description: >-
    Data that M(desired_state_check) compares with the node at the end of the run. It contains digests, no text.
  returned: with O(desired)
  type: dict
  sample:
    {"of": "The settings of the host", "record": "/var/lib/gaudi-serving/host_tuning_wish.json", "digest": "5b3a",
     "files": {}, "kernel": {"vm.nr_hugepages": "15000"}, "boot": "1c"}
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.host import files as host_files
from ansible.module_utils.gaudi.node.host import tuning
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "library_for": {"type": "str"},
    "desired": tuning.DESIRED_OPTION,
    "held": {"type": "dict", "default": {}},
    "kernel": {"type": "dict", "default": {}},
    "files": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "path", "required": True},
            "content": {"type": "str", "no_log": False},
            "mode": {"type": "str", "default": "0644"},
            "with_directory": {"type": "bool", "default": False},
            "marked": {"type": "bool", "default": False},
        },
    },
}


def _state(path: Path) -> tuple[str | None, int | None]:
    return (path.read_text(errors="replace"), path.stat().st_mode & 0o7777) if path.is_file() else (None, None)


def _hold(module: AnsibleModule, path: Path, content: str | None, mode: int) -> None:
    if content is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w") as file:
        file.write(content)
    Path(temporary).chmod(mode)
    module.atomic_move(temporary, str(path))
    path.chmod(mode)


def _refuse(module: AnsibleModule) -> None:
    """End the module where a file cannot be written, or is somebody else's."""
    files = module.params["files"]
    there = {file["path"]: _state(Path(file["path"]))[0] for file in files}
    touched = [Path(file["path"]) for file in files if there[file["path"]] != file["content"]]
    refusals = [said for said in map(tuning.obstacle, touched) if said]
    refusals += host_files.foreign({file["path"]: there[file["path"]] for file in files if file["marked"]})
    if refusals:
        module.fail_json(msg=" ".join(refusals), refused_id="file_in_the_way")


def _note(module: AnsibleModule, *, changed: bool) -> dict[str, Any]:
    """Keep the record of the desired state, if there is one: these files, and those that the role held before."""
    params = module.params
    if not params["desired"]:
        return {"changed": changed}
    files = {**params["held"], **{file["path"]: file["content"] or "" for file in params["files"]}}
    noted, desired = tuning.note(params["desired"], files, files, params["kernel"], module.check_mode)
    return {"changed": changed or noted, "desired": desired}


def main() -> None:
    """Compare, then write what differs unless in check mode."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    if module.params["library_for"]:
        module.fail_json(
            msg="library_for is for the action of the same name, which has not run. Call it from a playbook that has "
            "action_plugins of the checkout in its path."
        )
    _refuse(module)
    written, diff = [], []
    for file in module.params["files"]:
        path, content = Path(file["path"]), file["content"]
        mode = int(file["mode"], 8) if content is not None else None
        before = _state(path)
        if before == (content, mode):
            continue
        written.append(str(path))
        diff.append({"before_header": str(path), "before": before[0] or "", "after": content or ""})
        if not module.check_mode:
            _hold(module, path, content, mode or 0)
            if content is None and file["with_directory"] and not any(path.parent.iterdir()):
                path.parent.rmdir()
    module.exit_json(written=written, diff=diff, **_note(module, changed=bool(written)))


if __name__ == "__main__":
    main()
