#!/usr/bin/python
"""Start long work on a node, or attach to it, and bring back its result."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_job
short_description: Run long work that belongs to the node, and follow it
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Starts C(gaudi-job@KEY.service) for a command, or attaches to the one that already runs for the same key, or
    returns the recorded result of a finished one with the same command, environment and inputs.
  - The work goes on when the connection drops, the controller dies or Ctrl-C is pressed; running the same task
    again follows it again and never starts it twice. After a reboot it is C(interrupted), and the next run
    starts the command again, which is expected to continue where it stopped.
  - On the controller the work's progress is shown, a bar on a terminal and a line every O(interval) seconds in
    a log. How to come back to it is said first, since after Ctrl-C nothing can be said.
  - The role P(gaudi_serving.node_job#role) installs what runs the work.
options:
  key:
    description: Name of the work on this node, such as C(fetch.qwen3-8b).
    type: str
    required: true
  command:
    description: The command, as an argument vector. Needed to start; no shell is involved.
    type: list
    elements: str
  environment:
    description: Environment of the command. Not for secrets, which belong into root-only files the command reads.
    type: dict
    default: {}
  inputs:
    description: What the result depends on besides the command, such as a revision; compared, not passed on.
    type: dict
    default: {}
  state:
    description:
      - V(finished) starts or attaches and follows until it ends. V(started) does not wait.
      - V(followed) attaches to what runs under this key, whatever it is, and starts nothing.
      - V(cancelled) stops it and says so in its state. V(read) only looks.
    type: str
    choices: [finished, started, followed, cancelled, read]
    default: finished
  mounts_for:
    description:
      - Paths the work is about. It may write to them (C(ReadWritePaths=) of the unit), and to no other folder of the
        node but those that its unit names. One that is not there yet stands for the nearest folder above it.
      - Their file systems must be mounted while the work runs (C(RequiresMountsFor=)). One that is known to systemd and
        not mounted is mounted first, or the work is not started.
    type: list
    elements: path
    default: []
  make_folders:
    description:
      - Whether a path of O(mounts_for) is made where no folder above it is there but the node's own, or that of all
        homes. Otherwise the work finds it missing, and may write nowhere in its place.
    type: bool
    default: true
  node_services:
    description:
      - Whether the work may use Unix sockets and devices of the node, such as the sockets of Docker and systemd, and
        the cards. Whoever may use these sockets is root on the node, so only work that needs them should have them.
    type: bool
    default: false
  force:
    description: Do the work even if the same work succeeded before.
    type: bool
    default: false
  interval:
    description: Show progress in a log every so many seconds.
    type: int
    default: 30
  seen:
    description: The RV(digest) of an earlier look, for whoever follows.
    type: str
    default: ""
  wait:
    description:
      - Wait up to so many seconds for something newer than O(seen). Progress within a phase is not; it is shown as it
        is when the wait is over.
    type: int
    default: 0
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says whether the work would be started, and starts nothing.
    support: full
  diff_mode:
    description: Changes no file of interest.
    support: none
  action:
    description: Runs on the controller, with a module on the node.
    support: full
"""

EXAMPLES = r"""
- name: Convert the weights, and follow until it is done
  node_job:
    key: convert.deepseek-r1
    command: [/usr/bin/python3, /usr/local/lib/gaudi-serving/fp8_convert.py, /data/models/IN, /data/models/OUT]
    inputs:
      source_manifest: 5f0c
  become: true

- name: Stop it; what is finished stays
  node_job:
    key: convert.deepseek-r1
    state: cancelled
  become: true
"""

RETURN = r"""
job:
  description: The state of the job.
  returned: always
  type: dict
  contains:
    key:
      description: Name of the job.
      type: str
      sample: convert.deepseek-r1
    status:
      description: One of absent, running, succeeded, failed, cancelled, interrupted.
      type: str
      sample: succeeded
    progress:
      description: The last progress the work wrote; empty if none.
      type: dict
      sample: {phase: convert, done: 4200000000, total: 4200000000, unit: bytes, rate: 2100000000, eta: 0.0}
    text:
      description: The same in words.
      type: str
      sample: "convert: 4.2 GB of 4.2 GB (100 %), 2.1 GB/s"
    state:
      description: The recorded message of its last run, with the last lines of its log.
      type: dict
      sample: {state: succeeded, started: "2026-01-31T08:00:00Z", ended: "2026-01-31T08:05:00Z", status: 0, log: []}
result:
  description: The result that the work recorded; empty if none.
  returned: when it succeeded
  type: dict
  sample: {shards: 163}
digest:
  description: Stands for all of the above but the figures of the progress; the same as long as nothing else changes.
  returned: always
  type: str
  sample: 0d599f0ec05c3bda8c3b8a68c32a1b47
refused_id:
  description: >-
    Id of the refusal, the same in every release; C(msg) has the sentence. Empty where the work that was followed
    gave no refusal as its result.
  returned: when the task fails for a refusal, or the work that was followed did not succeed
  type: str
  sample: other_work_runs
"""

import hashlib
import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.jobs import decisions as jobs
from ansible.module_utils.gaudi.node import long_work
from ansible.module_utils.gaudi.node.documents import make_room
from ansible.module_utils.gaudi.node.files import take_turn, write_json, write_text
from ansible.module_utils.gaudi.node.module import NodeModule, systemctl

ARGUMENT_SPEC: dict[str, Any] = {
    "key": {"type": "str", "required": True, "no_log": False},
    "command": {"type": "list", "elements": "str"},
    "environment": {"type": "dict", "default": {}},
    "inputs": {"type": "dict", "default": {}},
    "mounts_for": {"type": "list", "elements": "path", "default": []},
    "make_folders": {"type": "bool", "default": True},
    "node_services": {"type": "bool", "default": False},
    "state": {
        "type": "str",
        "choices": ["finished", "started", "followed", "cancelled", "read"],
        "default": "finished",
    },
    "force": {"type": "bool", "default": False},
    "interval": {"type": "int", "default": 30},
    "seen": {"type": "str", "default": ""},
    "wait": {"type": "int", "default": 0},
}

JOBS = Path(paths.JOBS)
# A drop-in in /run lasts until the next boot, like a job.
UNITS = Path("/run/systemd/system")
# Seconds between two checks while waiting; progress is written twice a second.
LOOK_AGAIN = 0.5
# Seconds to wait for another controller's request; starting work may have to mount a file system.
PATIENCE = 300.0


def look(module: AnsibleModule, key: str) -> dict[str, Any]:
    """Read a job's status, progress and result."""
    folder = JOBS / key
    active = systemctl(module, "show", "--property=ActiveState", "--value", f"gaudi-job@{key}.service").strip()
    state, progress = long_work.state(folder), long_work.progress(folder)
    status = jobs.status(state, active)
    return {
        "key": key,
        "status": status,
        "digest": long_work.digest(folder),
        "progress": progress,
        "text": jobs.progress_text(progress, time.time() if status == "running" else None),
        "state": state,
    }


def describe(module: AnsibleModule, wanted: str) -> None:
    """Write the unit's description of the work; private to root, as commands contain details of a site."""
    folder = JOBS / module.params["key"]
    content = {
        "key": module.params["key"],
        "command": module.params["command"],
        "environment": module.params["environment"],
        "inputs": module.params["inputs"],
        "digest": wanted,
        "requested": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    make_room(folder / "job.json")
    write_json(folder / "job.json", content, mode=0o600)


def write_dropin(module: AnsibleModule) -> None:
    """Write the job's drop-in: the file systems that it requires, where it may write, and what it may use."""
    dropin = UNITS / f"gaudi-job@{module.params['key']}.service.d" / "mounts.conf"
    paths, make = module.params["mounts_for"], module.params["make_folders"]
    there = [long_work.writable_folder(Path(path), make) for path in paths]
    wanted = jobs.paths_dropin(paths, [str(folder) for folder in there if folder is not None])
    wanted += jobs.NODE_SERVICES if module.params["node_services"] else ""
    if (dropin.read_text(encoding="utf-8") if dropin.exists() else "") == wanted:
        return
    if wanted:
        dropin.parent.mkdir(parents=True, exist_ok=True)
        dropin.write_text(wanted, encoding="utf-8")
    else:
        dropin.unlink()


def decided(module: AnsibleModule, job: dict[str, Any], wanted: str) -> str:
    """Decide on the request; fails the module if other work runs under its key."""
    try:
        return str(jobs.decide(job["status"], job["digest"], wanted, module.params["force"]))
    except Refusal as refusal:
        module.fail_json(msg=f"{job['key']}: {refusal}", refused_id=refusal.id, job=job)
        raise


def request(module: AnsibleModule) -> bool:
    """Start the work unless it runs or is done; return whether it was (or would be) started."""
    key, command = module.params["key"], module.params["command"]
    if not command:
        module.fail_json(msg=f"Work {key} can only be started with a command.")
    wanted = jobs.digest(command, module.params["environment"], module.params["inputs"])
    if module.check_mode:
        job = look(module, key)
        return decided(module, job, wanted) == "start"
    folder = JOBS / key
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_room(folder / "lock")
    if (folder / "lock").is_symlink():
        (folder / "lock").unlink()  # earlier work put it there, and its target is not ours to open
    # Two controllers may ask at once: the second one waits here, then finds the unit running. Opening a pipe would
    # block until another process opens it.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(folder / "lock", flags, 0o644), "rb") as lock:
        try:
            take_turn(lock.fileno(), folder / "lock", PATIENCE)
        except Refusal as refusal:
            module.fail_json(msg=f"{key}: {refusal}", refused_id=refusal.id)
        job = look(module, key)
        todo = decided(module, job, wanted)
        if todo == "start":
            describe(module, wanted)
            for left_over in ("progress.json", "state.json"):
                make_room(folder / left_over)
                (folder / left_over).unlink(missing_ok=True)
            write_dropin(module)
            # Always reload: an interrupted run may have written units that systemd has not read.
            systemctl(module, "daemon-reload")
            systemctl(module, "start", f"gaudi-job@{key}.service")
    return todo == "start"


def cancel(module: AnsibleModule) -> bool:
    """Stop the work if it runs; returns whether it did."""
    key = module.params["key"]
    if look(module, key)["status"] != "running":
        return False
    if not module.check_mode:
        # The work may have put a link there.
        make_room(JOBS / key / "cancelled")
        write_text(JOBS / key / "cancelled", "", mode=0o644)
        systemctl(module, "stop", f"gaudi-job@{key}.service")
    return True


def stands_for(job: dict[str, Any]) -> str:
    """Return a digest of a job's status without its figures: they change too often to report each change."""
    stand = [job["status"], job["state"], job["progress"].get("phase")]
    return hashlib.sha256(json.dumps(stand, sort_keys=True).encode()).hexdigest()[:32]


def answer(module: AnsibleModule, changed: bool) -> None:
    """Return the job's status once it differs from what the caller has seen, or the wait is over."""
    deadline = time.monotonic() + module.params["wait"]
    while True:
        job = look(module, module.params["key"])
        digest = stands_for(job)
        if digest != module.params["seen"] or time.monotonic() >= deadline:
            result = job["state"].get("result", {}) if job["status"] == "succeeded" else {}
            module.exit_json(changed=changed, job=job, result=result, digest=digest)
        time.sleep(LOOK_AGAIN)


def main() -> None:
    """Decide, act, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        jobs.check_key(module.params["key"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    if os.geteuid() != 0:
        module.fail_json(msg="Work on a node is root's: run this with become: true.")
    state = module.params["state"]
    changed = False
    if state in ("finished", "started"):
        changed = request(module)
    elif state == "cancelled":
        changed = cancel(module)
    answer(module, changed)


if __name__ == "__main__":
    main()
