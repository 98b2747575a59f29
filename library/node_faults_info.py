#!/usr/bin/python
"""Read what shows faults of a node that serves, or is to: who has its cards, its verdict, its engine, its instances."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_faults_info
short_description: Read the facts from which faults of a serving node are found
version_added: "0.1.0"
author: gaudi-serving
description:
  - Reads what neither M(gaudi_preflight) nor M(host_tuning_info) reads - who has cards reserved, the last verdict on
    cards and links, the container engine, the driver's errors in the kernel's log, the host's low memory, whether
    what instances need can be written, whether each instance serves what lies on the node, and what its supervisor
    has counted while it served.
  - Never fails because of a fault; C(playbooks/doctor.yml) puts all faults of a node together.
options:
  host:
    description: What the inventory calls the node; advice names it.
    type: str
    required: true
  versions:
    description:
      - The release whose driver the node has, or will have, and the version of its driver. With one from 1.24 on,
        corrupted page tables in the kernel's log are the IOMMU's fault where it translates what a card addresses.
    type: list
    elements: str
    default: []
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
seealso:
  - module: gaudi_preflight
  - module: node_report
"""

EXAMPLES = r"""
- name: Look for faults
  node_faults_info:
    host: "{{ inventory_hostname }}"
  register: node
  become: true
"""

RETURN = r"""
acceptance:
  description: The last verdict on cards and links, as the part V(acceptance) of M(node_report).
  returned: always
  type: dict
  sample: {text: null}
holders:
  description: The instance that a card is reserved for, by module id.
  returned: always
  type: dict
  sample: {"3": chat}
running:
  description: Whether the unit of an instance runs, starts or stops, by instance.
  returned: always
  type: dict
  sample: {chat: false}
found:
  description:
    - What was found - C(id) for programs, C(seen_in) (the part of the node), C(sentence) (what was seen and what to do)
      and C(fault), false for what is only worth knowing.
  returned: always
  type: list
  elements: dict
  sample:
    - id: stopped
      seen_in: instances
      sentence: chat is stopped. Start it with playbooks/start.yml -e instance=chat.
      fault: true
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import kernel_log
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.doctor import findings, while_serving
from ansible.module_utils.gaudi.doctor.covering import cover_of
from ansible.module_utils.gaudi.doctor.findings import Finding
from ansible.module_utils.gaudi.faults.words import fault, say
from ansible.module_utils.gaudi.host.iommu import required
from ansible.module_utils.gaudi.node import containers, instances, iommu, startable, states, weight_folders
from ansible.module_utils.gaudi.node.files import text_of
from ansible.module_utils.gaudi.node.kept import InstancePaths
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.reader import read_containers, read_holders
from ansible.module_utils.gaudi.node.report import acceptance
from ansible.module_utils.gaudi.serving import kept as decisions
from ansible.module_utils.gaudi.serving import unserved
from ansible.module_utils.gaudi.serving.state import RUNNING

ARGUMENT_SPEC: dict[str, Any] = {
    "host": {"type": "str", "required": True},
    "versions": {"type": "list", "elements": "str", "default": []},
}

BUDDYINFO = Path("/proc/buddyinfo")
# The driver's errors; journalctl exits with status 1 if there are none.
KERNEL_LOG = ["journalctl", "--dmesg", "--boot", "--priority=err", "--grep=habanalabs", "--output=cat", "--no-pager"]
# Of earlier boots too: the kernel may have ended by it.
PAGE_TABLES = [
    *("journalctl", "_TRANSPORT=kernel", "--since=-7day", "--lines=1000", "--quiet", "--output=cat", "--no-pager"),
    f"--grep={kernel_log.PAGE_TABLES}",
]
# Of the driver and its firmware, what the kernel prints as warnings, and so not among the errors.
KERNEL_WARNINGS = [
    *("journalctl", "--dmesg", "--boot", "--priority=warning", "--output=cat", "--no-pager"),
    f"--grep={kernel_log.WARNINGS}",
]


def of_kernel(module: AnsibleModule, *versions: str) -> list[Finding]:
    """What the kernel says of its memory and of the driver; ``versions``: the release, and the driver's."""
    _code, out, _err = module.run_command(KERNEL_LOG)
    _code, warnings, _err = module.run_command(KERNEL_WARNINGS)
    memory = text_of(BUDDYINFO)
    page = os.sysconf("SC_PAGE_SIZE")
    found = [*findings.of_low_memory(memory, page), *findings.of_kernel_log(out.splitlines(), warnings.splitlines())]
    return [*found, *(of_page_tables(module) if required(*versions) else ())]


def of_page_tables(module: AnsibleModule) -> list[Finding]:
    """What the kernel says of corrupted page tables, on a node whose driver needs passthrough."""
    _code, out, _err = module.run_command(PAGE_TABLES)
    return list(findings.of_page_tables(out.splitlines(), iommu.read_groups(), iommu.read_command_line()))


def of_requests(module: AnsibleModule, instance: str) -> list[Finding]:
    """Return counts of request errors in an instance log; its lines may contain requests and are not returned."""
    unit = f"--unit=vllm-{instance}.service"
    grep = f"--grep={fault('media-fetch-timeout').signs}"
    command = ["journalctl", unit, "--since=-1day", "--lines=1000", "--quiet", "--output=cat", "--no-pager", grep]
    _code, out, _err = module.run_command(command)
    return findings.of_server_log(instance, out.splitlines())


def of_serving(module: AnsibleModule, found: dict[str, Any], plans: dict[str, dict[str, Any]]) -> list[Finding]:
    """Return notes on what goes badly while an instance serves: request errors, and its supervisor's counts."""
    name, state = found["instance"], found["state"]
    return [*of_requests(module, name), *while_serving.of_counts(name, state, cover_of(state, plans.get(name)))]


def otherwise(module: AnsibleModule, instance: str, plan: dict[str, Any] | None) -> list[str]:
    """How a running instance differs from the files on the node, a sentence each; nothing if it is stopped."""
    container = containers.look(module, f"vllm-{instance}") if plan else None
    if plan is None or container is None or not container.running:
        return []
    if not containers.lies_there(plan, container.plan or ""):
        after = waits_for(instance)
        return [say("not-as-planned", "going-back" if after else "", instance=instance, plan=after)]
    try:
        containers.check_container(module, plan, container.plan or "")
    except Refusal as refusal:
        return [str(refusal)]
    lost = unserved.no_other_start(instance, startable.lost_image(module, plan))
    return [lost] if lost else []


def waits_for(instance: str) -> str:
    """The short digest of a plan that a person went back to, if it is the current plan and has not served since."""
    place = InstancePaths(instance, states.STATES / instance, states.PLANS)
    try:
        back = place.back()
    except Damaged:
        return ""
    files = place.files()
    if back is None or not set(decisions.DETERMINING) <= set(files) or back.has_served(place.kept()[0]):
        return ""
    return back.after[: decisions.SHOWN] if decisions.digest_of(files) == back.after else ""


def of_engine(module: AnsibleModule, there: bool) -> list[Finding]:
    """Return why the engine does not answer; ``there``: the node has instances, which need one."""
    complaints: list[str] = []
    read_containers(module, complaints)
    if there and module.get_bin_path("docker") is None:
        complaints.append("The node has instances and no Docker")
    return [findings.known("engine-unreachable", what=said) for said in complaints]


def read(module: AnsibleModule) -> dict[str, Any]:
    """Read the node."""
    holders, _unreadable = read_holders()
    there = instances.read(module, states.installed())
    silent = of_engine(module, bool(there))
    running = {each["instance"]: each["active"] in (*RUNNING, "deactivating") for each in there}
    plans = weight_folders.plans_on_node(states.PLANS)
    for each in there:
        name = each["instance"]
        each["said"] = instances.said_last(module, each)
        # Without the engine this is unknown.
        each["otherwise"] = [] if silent or not running[name] else otherwise(module, name, plans.get(name))
    found = [
        *of_kernel(module, *module.params["versions"]),
        *silent,
        *findings.of_room({each["instance"]: startable.lacks_room(each["instance"]) for each in there}),
        *findings.of_instances(there, module.params["host"]),
        *(found for each in there if running[each["instance"]] for found in of_serving(module, each, plans)),
    ]
    return {
        "acceptance": acceptance.read(module),
        "found": [each.as_dict() for each in found],
        "holders": holders,
        "running": running,
    }


def main() -> None:
    """Read, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.exit_json(changed=False, **read(module))


if __name__ == "__main__":
    main()
