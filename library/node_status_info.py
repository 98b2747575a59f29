#!/usr/bin/python
"""Read how a node and its instances are: cards, what waits for a reboot, instances."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_status_info
short_description: Read how a node and its vLLM instances are
version_added: "0.1.0"
author: gaudi-serving
description:
  - Reads in one round trip what M(gaudi_topology_info), M(vllm_service_info) and M(node_job_info) say, and asks the
    program of the role host_tuning what waits for a reboot.
options:
  tuning_program:
    description: The program of the role host_tuning. A host that was never tuned has none, and nothing waits there.
    type: path
    default: /usr/local/lib/gaudi-serving/host_tuning.py
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
seealso:
  - module: gaudi_topology_info
  - module: vllm_service_info
  - module: node_job_info
"""

EXAMPLES = r"""
- name: Read the node
  node_status_info:
  register: node
  become: true
"""

RETURN = r"""
picture:
  description: The cards, their NUMA nodes and who has them, as text for people.
  returned: always
  type: str
  sample: 8 x HL-225 (96 GiB), driver 1.22.1-97ec1a4, hl-smi 1.22.1, eth0 10.20.0.11/24
waits:
  description:
    - What waits for a reboot, and whether serving is refused until then; also that a reboot would leave the
      node without its driver. Empty when nothing waits.
  returned: always
  type: str
  sample: ""
let_through:
  description: >-
    What C(preflight_allow_mismatch) let through when instances were set up, a line each; empty where nothing was.
  returned: always
  type: list
  elements: str
  sample: ["chat runs although driver: found 1.21.3-1a2b3c4, wanted 1.22 (1.22.2-32) (preflight_allow_mismatch)"]
drop_ins:
  description: A line for each instance whose unit has drop-ins of an administrator, which are kept.
  returned: always
  type: list
  elements: str
  sample:
    - "vllm-a.service runs with drop-ins that are not ours and are kept: /etc/systemd/system/vllm-a.service.d/my.conf"
acceptance:
  description: >-
    The verdict of M(fabric_check) on cards and links, lines for people; empty before the first one.
  returned: always
  type: list
  elements: str
  sample: ["cards and links: accepted at 2026-11-24T00:00:00+00:00"]
lost_weights:
  description: >-
    A sentence for each instance that runs though its weights are no longer whole. It goes on until it starts once more.
  returned: always
  type: list
  elements: str
  sample: ["qwen3-8b could not start again: /data/models/Qwen3-8B has no config.json."]
while_serving:
  description: >-
    A sentence for each thing that goes badly while an instance serves, such as shapes that were not warmed up, with
    what to do; counted by its supervisor since the start.
  returned: always
  type: list
  elements: str
  sample:
    - "chat: since 2026-01-31T08:00:00Z, requests waited at 3 of 41 checks with requests, at most 2 at once."
jobs:
  description: >-
    A line for each job of the node that runs, failed or was cut off, with how far it is or why it ended. Work that
    succeeded or was cancelled is left to M(node_job_info).
  returned: always
  type: list
  elements: str
  sample:
    - >-
      long work fetch.qwen3-8b, begun 2026-01-31T08:00:00Z, runs: fetch (for 41 s): 4.1 GB of 16.4 GB (25 %),
      101.2 MB/s, 2 min to go
instances:
  description: What RV(instances#module:vllm_service_info) of M(vllm_service_info) is.
  returned: always
  type: list
  elements: dict
  sample: []
strangers:
  description: >-
    A sentence for each path among the directories of the instances that is none of theirs, for people; empty where
    there is none.
  returned: always
  type: str
  sample: ""
"""

import sys
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.cards.text import describe_node
from ansible.module_utils.gaudi.doctor import while_serving
from ansible.module_utils.gaudi.fabric import asked
from ansible.module_utils.gaudi.faults.words import with_id
from ansible.module_utils.gaudi.jobs.decisions import unfinished
from ansible.module_utils.gaudi.node import instances, links, long_work, states, weight_folders
from ansible.module_utils.gaudi.node.containers import systemctl
from ansible.module_utils.gaudi.node.driver import next_boot
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.reader import read_holders, read_topology
from ansible.module_utils.gaudi.preflight.compatibility import remembered

ARGUMENT_SPEC: dict[str, Any] = {
    "tuning_program": {"type": "path", "default": "/usr/local/lib/gaudi-serving/host_tuning.py"}
}


def of_verdict() -> list[str]:
    """The verdict on cards and links, a line each; of a damaged file that it is."""
    document, damage = links.last_verdict()
    return [f"cards and links: {damage}"] if damage else asked.lines(document)


def waits(module: AnsibleModule, program: str) -> str:
    """What the node's own program says; it knows what the kernel that runs now was started with."""
    if not Path(program).exists():
        return ""
    # The interpreter of this module: the program needs the standard library only.
    code, out, err = module.run_command([sys.executable, program, "waits"])
    if code != 0:
        module.fail_json(msg=f"{program} waits failed with status {code}: {printable(err.strip())}")
    return str(out).strip()


def counted(found: list[dict[str, Any]]) -> list[str]:
    """What the supervisors of running instances counted while these served, a sentence each."""
    plans = weight_folders.plans_on_node(states.PLANS)
    running = [each for each in found if each["active"] in instances.RUNNING]
    return [
        with_id(note.sentence, note.id)
        for each in running
        for note in while_serving.of_counts(each["instance"], each["state"], plans.get(each["instance"]))
    ]


def main() -> None:
    """Read, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    topology = read_topology(module)
    holders, unreadable = read_holders()
    topology["findings"] += unreadable
    found = instances.read(module, states.installed())
    boot = next_boot.read(module)
    module.exit_json(
        changed=False,
        picture=describe_node(topology, holders),
        waits="\n".join(
            filter(None, (waits(module, module.params["tuning_program"]), boot.kernel_waits, boot.loses_driver))
        ),
        acceptance=of_verdict(),
        let_through=remembered(found),
        drop_ins=instances.say_drop_ins(found),
        lost_weights=list(filter(None, map(instances.lost_weights, found))),
        while_serving=counted(found),
        jobs=unfinished(long_work.read_all(lambda *words: systemctl(module, *words))),
        instances=[{**each, "said": instances.said_last(module, each)} for each in found],
        strangers="\n".join(map(instances.say_stranger, instances.strangers())),
    )


if __name__ == "__main__":
    main()
