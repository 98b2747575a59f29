#!/usr/bin/python
"""Give a folder of weights to another node for as long as that takes, or give it no more."""

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_giving
short_description: Give a folder of weights to another node
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Serves one folder by rsync, to be read only, to whoever has the token that is made for the occasion on the node
    itself. Nothing of it survives a reboot, and all of it is taken away in the end.
options:
  state:
    description: V(present) serves the folder, V(absent) ends that and removes unit, configuration and token.
    type: str
    choices: [present, absent]
    default: present
  folder:
    description:
      - The folder whose record is returned. Without it none is, as for a folder that is still coming and is passed on.
    type: path
  record:
    description:
      - The file in it that says what it holds, by its path in O(folder). Nothing outside the folder is read, and no
        link is followed.
    type: str
    default: .gaudi-serving/manifest.json
  port:
    description: The port it is served on. One that somebody else has is refused. Needed with O(state=present).
    type: int
  unused_for:
    description:
      - With O(state=absent) leaves alone what somebody takes at the moment, or took so many seconds ago; 0 ends it at
        once.
    type: int
    default: 0
  forget:
    description: A file that is removed first, such as what an earlier attempt left there for receivers.
    type: path
  configuration:
    description: rsync's configuration, with the token in the file V(secrets) beside it. Needed with O(state=present).
    type: str
  unit:
    description: The text of the unit that serves it. Needed with O(state=present).
    type: str
  directory:
    description: Where configuration and token lie meanwhile.
    type: path
    required: true
  unit_path:
    description: Where the unit lies meanwhile.
    type: path
    required: true
requirements:
  - root (C(become))
  - rsync
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would be done and does nothing.
    support: full
  diff_mode:
    description: Shows nothing, since the token is part of it.
    support: none
"""

EXAMPLES = r"""
- name: Give no more
  weights_giving:
    state: absent
    directory: /run/gaudi-serving-give
    unit_path: /run/systemd/system/gaudi-weights-give.service
  become: true
"""

RETURN = r"""
token:
  description: What a receiver proves itself with.
  returned: with O(state=present), unless in check mode
  type: str
  sample: FdVvU3pYx8b0pP7m6gVqkK0S9tq2rQnXbWc1dTzE
manifest:
  description: The folder's record, files with their sizes and checksums.
  returned: with O(folder)
  type: dict
  sample: {"source": "site", "repository": "Qwen/Qwen3-8B", "files": []}
refused_id:
  description: Id of a refusal of the catalogue, which stays the same between releases; C(msg) has the sentence.
  returned: when O(record) is refused
  type: str
  sample: record_leads_out
"""

import errno
import os
import secrets
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import beneath
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "folder": {"type": "path"},
    "record": {"type": "str", "default": ".gaudi-serving/manifest.json"},
    "port": {"type": "int"},
    "unused_for": {"type": "int", "default": 0},
    "forget": {"type": "path"},
    "configuration": {"type": "str"},
    "unit": {"type": "str"},
    "directory": {"type": "path", "required": True},
    "unit_path": {"type": "path", "required": True},
}
TOKEN_BYTES = 30


def _systemctl(module: AnsibleModule, *arguments: str) -> str:
    rc, out, err = module.run_command(["systemctl", *arguments])
    if rc:
        module.fail_json(
            msg=f"systemctl {' '.join(arguments)} ended with status {rc}: {printable((err or out).strip())}"
        )
    return str(out)


def _write(path: Path, text: str, mode: int) -> None:
    """Nobody else can read it at any moment, unless the mode says so."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as out:
        out.write(text)


def _record(module: AnsibleModule) -> dict[str, Any]:
    if module.params["folder"] is None:
        return {}
    folder = Path(module.params["folder"])
    record = folder / module.params["record"]
    # Its content goes to other nodes.
    if folder not in record.parents or ".." in record.parts:
        refusal = Refusal("record_leads_out", f"{record} is not in {folder}; only files in it are sent to other nodes.")
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    try:
        manifest = read_json(record, place=folder)
        wrong = "nothing is there" if manifest is None else ""
    except Damaged as damage:
        wrong = damage.what
    if wrong:
        module.fail_json(
            msg=f"{record} cannot be read ({wrong}); playbooks/verify_weights.yml says what is wrong with it."
        )
    return {"manifest": manifest}


def _give(module: AnsibleModule, directory: Path, unit: Path) -> dict[str, Any]:
    said = _record(module)
    if module.check_mode:
        return said
    if unit.exists():
        _systemctl(module, "stop", unit.name)
    _refuse_taken(module, module.params["port"])
    token = secrets.token_urlsafe(TOKEN_BYTES)
    directory.mkdir(mode=0o700, exist_ok=True)
    unit.parent.mkdir(parents=True, exist_ok=True)
    if module.params["forget"] is not None:
        forget = Path(module.params["forget"])
        beneath.remove(forget, forget.parents[1])
    _write(directory / "secrets", f"receiver:{token}\n", 0o600)
    _write(directory / "rsyncd.conf", module.params["configuration"], 0o600)
    _write(unit, module.params["unit"], 0o644)
    _systemctl(module, "daemon-reload")
    _systemctl(module, "restart", unit.name)
    return {**said, "token": token}


def _refuse_taken(module: AnsibleModule, port: int) -> None:
    """Fail if the port is taken: the daemon itself would fail only after its start, and no task would see that."""
    with socket.socket() as probe:
        # The daemon sets SO_REUSEADDR too: a connection of the last run in TIME_WAIT does not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            module.fail_json(
                msg=f"Port {port} is taken by another process, so this node gives no weights to others. ss -ltnp names "
                "it: stop it, or set weights_supply_port to a free port."
            )


def _used(module: AnsibleModule, directory: Path, unit: Path) -> bool:
    """Whether a node downloads now, or did within the last ``unused_for`` seconds, or the daemon has begun since.

    Only the log is dated by the wall clock. Where that was set back since, the log lies in the future and does not
    count; where it was set forward, the log counts for less long, but never a download that goes on.
    """
    of = "--property=TasksCurrent,ActiveEnterTimestampMonotonic"
    shown = dict(line.partition("=")[::2] for line in _systemctl(module, "show", of, unit.name).splitlines())
    # One process is the daemon; every further one serves a node that downloads.
    tasks = shown.get("TasksCurrent", "")
    if tasks.isdigit() and int(tasks) > 1:
        return True
    # In millionths of a second since boot; 0 for never.
    begun = int(shown.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
    ages = [time.clock_gettime(time.CLOCK_MONOTONIC) - begun] if begun else []
    log = directory / "log"
    if log.exists():
        ages.append(time.time() - log.stat().st_mtime)
    return any(0 <= age < module.params["unused_for"] for age in ages)


def _give_no_more(module: AnsibleModule, directory: Path, unit: Path) -> bool:
    there = unit.exists() or directory.exists()
    if there and module.params["unused_for"] and _used(module, directory, unit):
        return False
    if there and not module.check_mode:
        if unit.exists():
            # First: while the unit's file is there, a run that was interrupted can be made up for.
            _systemctl(module, "stop", unit.name)
        if directory.exists():
            shutil.rmtree(directory)
        unit.unlink(missing_ok=True)
        _systemctl(module, "daemon-reload")
    return there


def main() -> None:
    """Give, or give no more."""
    module = NodeModule(
        argument_spec=ARGUMENT_SPEC,
        required_if=[("state", "present", ["configuration", "unit", "port"])],
        supports_check_mode=True,
    )
    directory, unit = Path(module.params["directory"]), Path(module.params["unit_path"])
    if module.params["state"] == "absent":
        module.exit_json(changed=_give_no_more(module, directory, unit))
    module.exit_json(changed=True, **_give(module, directory, unit))


if __name__ == "__main__":
    main()
