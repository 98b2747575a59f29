#!/usr/bin/python
"""Read how the vLLM instances of a node are doing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_info
short_description: Read how the vLLM instances of a node are doing
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Says of each instance what systemd says of its unit and what its supervisor wrote last
    (C(/var/lib/gaudi-serving/instances/NAME/state.json)).
  - With O(follow) shows how far each instance is (warm-up - prompt 12/24, decode 0/48), and ends when all units are
    active, which they are when the server has answered under its own name. Fails as soon as a unit has failed for good,
    or waits for a card that was lost, with the supervisor's own sentence. A failed try that the supervisor repeats is
    shown and followed further. Fails as well where an instance serves again with the plan that served before the one of
    O(labels), because that did not come to serve; both reasons are said. A lost connection or Ctrl-C costs nothing; the
    units go on, and running the playbook again follows them again.
  - On request reads the last five plans that served, and as many that failed, which the supervisor of an instance
    keeps. The value of a variable or an option whose name looks like a secret's is never returned.
  - With O(log) reads the journal of an instance's unit alone, which holds the server's own output and what its
    supervisor says.
options:
  instances:
    description: The instances to read. Without it all that are installed on the node. Needed with O(follow).
    type: list
    elements: str
  seen:
    description: What the caller knows already, RV(digest) of an earlier call. Only with O(wait).
    type: str
    default: ""
  wait:
    description: How many seconds to wait for a state other than O(seen), or with O(log) for a line.
    type: int
    default: 0
  again:
    description: Whether also to look if the instances could start again (RV(lacking)).
    type: bool
    default: false
  follow:
    description: Whether to follow the instances until they serve. The action of the same name does that.
    type: bool
    default: false
  labels:
    description: With O(follow), the label that the container of an instance is to have, by the name of the instance.
    type: dict
    default: {}
  timeout:
    description: With O(follow), give up following after so many seconds. The units go on; what bounds them is their
      supervisors' own patience, which counts only time without progress.
    type: int
    default: 14400
  interval:
    description: With O(follow), show progress within one phase at most every so many seconds.
    type: int
    default: 10
  history:
    description: Whether also to read which plans the installed ones among the instances had (RV(history), RV(lines)).
    type: bool
    default: false
  log:
    description: What to read of the journal instead (RV(lines), RV(cursor)).
    type: dict
    suboptions:
      instance:
        description: Name of the instance.
        type: str
        required: true
      lines:
        description: How many of the last lines to read.
        type: int
        default: 100
      since:
        description: >-
          Leaves out what is older, in the words of C(journalctl --since), such as C(10 min ago) or C(2026-01-31 08:00).
        type: str
        default: ""
      after:
        description: RV(cursor) of an earlier read. Everything written since is read, whatever the others say.
        type: str
        default: ""
requirements:
  - root (C(become))
  - journalctl, for O(log)
extends_documentation_fragment: attributes.reads
attributes:
  check_mode:
    description: Reads once and follows nothing, since nothing was started.
    support: full
  action:
    description: With O(follow) runs on the controller, with a module on the node.
    support: full
seealso:
  - module: vllm_service_rollback
"""

EXAMPLES = r"""
- name: Read all instances
  vllm_service_info:
  become: true
  register: services

- name: Show the states
  ansible.builtin.debug:
    msg: "{{ services.instances | map(attribute='instance') | zip(services.instances | map(attribute='active')) }}"

- name: Follow the start of an instance
  vllm_service_info:
    instances: [qwen3-8b]
    follow: true
  become: true

- name: Read the plans of an instance
  vllm_service_info:
    instances: [qwq-32b]
    history: true
  become: true
  register: services

- name: Read the last ten minutes of an instance's log
  vllm_service_info:
    log: {instance: qwq-32b, since: 10 min ago, lines: 1000}
  become: true
"""

RETURN = r"""
instances:
  description: One entry an instance, sorted by name.
  returned: unless O(log)
  type: list
  elements: dict
  contains:
    instance:
      description: Name of the instance.
      type: str
      sample: qwen3-8b
    load:
      description: >-
        Whether systemd has its unit: C(loaded); C(not-found) where its installation or its removal was cut off, or
        somebody took the unit away; else what is wrong with the unit, such as C(bad-setting) or C(masked).
      type: str
      sample: loaded
    active:
      description: State of the unit as systemd has it.
      type: str
      sample: activating
    sub:
      description: Finer state of the unit.
      type: str
      sample: start
    job:
      description: Whether systemd still works at starting or stopping it.
      type: bool
      sample: true
    result:
      description: How the unit ended last, C(success) if well.
      type: str
      sample: success
    enabled:
      description: Whether it starts at boot.
      type: bool
      sample: true
    restarts:
      description: How often systemd has started it by itself since somebody did.
      type: int
      sample: 0
    state:
      description: What the supervisor wrote last; empty if it never ran, and where RV(instances[].damaged) says why.
      type: dict
      sample:
        phase: warming-up
        status: "warm-up: prompt 12/24, decode 0/48"
        since: "2026-01-31T08:00:00Z"
    damaged:
      description: Why what the supervisor wrote cannot be read, and what to do; empty where it can.
      type: str
      sample: ""
    current:
      description: >-
        Whether its supervisor runs with the program, the library and the unit that are on the disk. One that does not
        takes them up when it is reloaded.
      type: bool
      sample: true
    unwritten:
      description: >-
        Why its supervisor cannot write down what it runs with, such as a full file system; empty where it can, and
        where RV(instances[].current) is true.
      type: str
      sample: ""
    let_through:
      description: >-
        Mismatches of the node that C(preflight_allow_mismatch) let through when the instance was set up, each with what
        was found and wanted.
      type: list
      elements: str
      sample: ["driver: found 1.21.3-1a2b3c4, wanted 1.22 (1.22.2-32)"]
    drop_ins:
      description: Drop-ins of its unit that an administrator wrote. They are kept, and count.
      type: list
      elements: str
      sample: [/etc/systemd/system/vllm-qwen3-8b.service.d/local.conf]
    pace:
      description: >-
        How quickly it wrote when M(vllm_service_verify) last asked it with the plan that it runs, for people; with what
        is usual for that plan, where that is more. Empty where it was not asked.
      type: str
      sample: 36.2 of 38.5 tokens/s, first after 0.21 s
    said:
      description: >-
        What the supervisor told systemd last, which it can where it can write no file. Empty where it said nothing,
        and where unit and state agree that the instance serves.
      type: str
      sample: ""
strangers:
  description: >-
    Paths of what lies among the directories of the instances and is none of theirs, such as a copy by hand under a name
    that no instance can have.
  returned: unless O(follow) or O(log)
  type: list
  elements: str
  sample: []
lacking:
  description: >-
    What keeps an instance from starting again, a sentence each: its image is gone, or its weights are not whole.
    What runs goes on without them.
  returned: if O(again)
  type: list
  elements: str
  sample: ["qwen3-8b could not start again: /data/models/Qwen3-8B has no config.json."]
history:
  description: The plans by the name of the instance, the last first, and in what each differs from the one on the node.
  returned: if O(history)
  type: dict
  sample:
    qwq-32b:
      - plan: 3f2a91c07d1e
        current: true
        image: registry.example/vllm:1.22
        image_id: sha256:0d599f0ec05c
        served: "2026-01-31T08:00:00Z"
        failed:
        differs: []
lines:
  description:
    - The same as lines of text.
    - With O(log), the lines of the journal, oldest first, each with its time and the program that wrote it.
  returned: if O(history) or O(log)
  type: list
  elements: str
  sample: ["qwq-32b:", " * 3f2a91c07d1e  served at 2026-01-31T08:00:00Z, image registry.example/vllm:1.22"]
cursor:
  description: Where the journal was read to; empty where it has no line of the instance.
  returned: if O(log)
  type: str
  sample: s=0639;i=4f2;b=a1;m=5c;t=61;x=d3
progress:
  description: The lines that were shown.
  returned: if O(follow)
  type: list
  elements: str
  sample: ["[node1: qwen3-8b] warm-up: prompt 12/24, decode 0/48"]
digest:
  description: >-
    Stands for RV(instances) but for RV(instances[].said), and for the phase of each state; the same as long as none of
    that changes.
  returned: unless O(follow) or O(log)
  type: str
  sample: 0d599f0ec05c3bda8c3b8a68c32a1b47
"""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.node.instances import digest, read, said_last, strangers
from ansible.module_utils.gaudi.node.kept import InstancePaths
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.startable import why_not
from ansible.module_utils.gaudi.node.states import installed
from ansible.module_utils.gaudi.pages import history
from ansible.module_utils.gaudi.serving.log import command, lines_and_cursor, newest, onwards
from ansible.module_utils.gaudi.serving.unserved import no_other_start

ARGUMENT_SPEC: dict[str, Any] = {
    "instances": {"type": "list", "elements": "str"},
    "seen": {"type": "str", "default": ""},
    "wait": {"type": "int", "default": 0},
    "again": {"type": "bool", "default": False},
    "follow": {"type": "bool", "default": False},
    "labels": {"type": "dict", "default": {}},
    "timeout": {"type": "int", "default": 14400},
    "interval": {"type": "int", "default": 10},
    "history": {"type": "bool", "default": False},
    "log": {
        "type": "dict",
        "options": {
            "instance": {"type": "str", "required": True},
            "lines": {"type": "int", "default": 100},
            "since": {"type": "str", "default": ""},
            "after": {"type": "str", "default": ""},
        },
    },
}

# Seconds between two looks; a warm-up step takes longer.
INTERVAL = 1.0
# Ansible ends a value of -e at its first space.
MARKS = """A time with spaces needs marks of its own: -e "since='10 min ago'"."""


def history_of(names: Collection[str]) -> dict[str, Any]:
    """Return the plans that installed instances had, by name, and the same as lines."""
    plans: dict[str, list[dict[str, Any]]] = {}
    lines: list[str] = []
    for name in installed():
        if name not in names:
            continue
        paths = InstancePaths.of(name)
        kept, damaged = paths.kept()
        rollback = None
        try:
            rollback = paths.back()
        except Damaged as damage:
            damaged = [*damaged, str(damage)]
        plans[name] = history.entries(kept, paths.files())
        lines += history.lines(name, plans[name], rollback, damaged)
    return {"history": plans, "lines": lines}


def report(module: NodeModule, instances: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return the instances with what they said last, and what else was asked for."""
    found: dict[str, Any] = {
        "instances": [{**instance, "said": said_last(module, instance)} for instance in instances],
        "strangers": [str(path) for path in strangers()],
    }
    if module.params["history"]:
        found.update(history_of(names))
    if module.params["again"]:
        found["lacking"] = [no_other_start(name, why) for name in sorted(names) if (why := why_not(module, name))]
    return found


def journal(module: NodeModule, asked: Mapping[str, Any], arguments: Sequence[str]) -> str:
    """What journalctl prints. Ends the module with its own words where it cannot."""
    program = module.get_bin_path("journalctl", required=True)
    status, printed, complaint = module.run_command([program, *arguments], errors="replace")
    if status:
        module.fail_json(
            msg=f"journalctl cannot read the log of {asked['instance']}: "
            f"{printable(complaint.strip()) or f'status {status}'}" + (f". {MARKS}" if asked["since"] else "")
        )
    return str(printed)


def read_log(module: NodeModule, asked: Mapping[str, Any], deadline: float) -> dict[str, Any]:
    """Return lines of an instance's log; of those since a time, it is looked up where the last of them begin."""
    instance, lines, since, after = (asked[name] for name in ("instance", "lines", "since", "after"))
    arguments = command(instance, lines, since, after)
    if since and not after:
        arguments = onwards(instance, journal(module, asked, newest(instance, lines, since))) or arguments
    while True:
        found, cursor = lines_and_cursor(journal(module, asked, arguments))
        if found or time.monotonic() >= deadline:
            return {"lines": found, "cursor": cursor or after}
        time.sleep(INTERVAL)


def main() -> None:
    """Read, and wait for something new on request."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    if module.params["follow"]:
        module.leave_to_action("follow")
    deadline = time.monotonic() + module.params["wait"]
    if module.params["log"]:
        module.exit_json(changed=False, **read_log(module, module.params["log"], deadline))
    names = module.params["instances"]
    if names is None:
        names = installed()
    while True:
        instances = read(module, sorted(names))
        current = digest(instances)
        if current != module.params["seen"] or time.monotonic() >= deadline:
            module.exit_json(changed=False, digest=current, **report(module, instances, names))
        time.sleep(INTERVAL)


if __name__ == "__main__":
    main()
