#!/usr/bin/python
"""Say how a host is tuned: wanted, configured, in effect now, in effect after a reboot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning_info
short_description: State of the host settings a Gaudi server needs
description:
  - Reads kernel settings, the kernel command line, GRUB, processors, limits and what can be seen of the firmware.
  - Changes nothing, in check mode as otherwise.
author: gaudi-serving
options:
  wanted:
    description: What the role wants, as it is in the role's variables.
    type: dict
    required: true
    suboptions:
      sysctl:
        description: Kernel settings, name and value.
        type: dict
        required: true
      max_memory_share:
        description: Largest part of the memory that hugepages may take, in percent.
        type: int
        required: true
      hugepage_size:
        description: Size of the hugepages that V(vm.nr_hugepages) counts among the settings.
        type: str
        choices: [2MiB, 1GiB]
        default: 2MiB
      kernel_rules:
        description: The catalogue's rules for the kernel command line that this site follows.
        type: list
        elements: dict
        required: true
      set_arguments:
        description: Whether the role sets the kernel arguments; if not, somebody sets them by hand.
        type: bool
        required: true
      release:
        description: The release whose driver the cards have, or will have; empty counts as an old one.
        type: str
        default: ""
      always:
        description: Ids of the rules that hold whatever the node is.
        type: list
        elements: str
        default: []
      formerly:
        description: Kernel arguments that were ours and whose record is gone, in the run that takes them back.
        type: list
        elements: str
        default: []
      cpu:
        description: Whether processors are to run at full speed.
        type: bool
        required: true
      energy:
        description: Whether processors without a cpufreq driver are to prefer performance to saving energy.
        type: bool
        default: false
      limits:
        description: Limits of our units, name and value.
        type: dict
        required: true
      firmware:
        description: The catalogue's list of firmware settings.
        type: list
        elements: dict
        required: true
  paths:
    description: Where the role keeps its files.
    type: dict
    required: true
    suboptions:
      sysctl:
        description: The sysctl drop-in.
        type: path
        required: true
      grub:
        description: The GRUB drop-in.
        type: path
        required: true
      limits:
        description: The drop-in for our units.
        type: path
        required: true
      unit:
        description: Our unit.
        type: path
        required: true
      udev_rule:
        description: The rule that has our unit treat a processor that comes online.
        type: path
        required: true
      program:
        description: The program that our unit runs.
        type: path
        required: true
      former:
        description: The record of values before the first change.
        type: path
        required: true
      state:
        description: The document that decides whether instances may serve.
        type: path
        required: true
  refuse:
    description: Whether to fail, with the reasons, where the host cannot be tuned like this.
    type: bool
    default: false
extends_documentation_fragment: attributes.reads
"""

EXAMPLES = r"""
- name: See how the host is tuned
  host_tuning_info:
    wanted: "{{ __host_tuning_wanted }}"
    paths: "{{ __host_tuning_paths }}"
  register: host
"""

RETURN = r"""
refusals:
  description: Why the host cannot be tuned like this, in sentences. Empty when it can.
  type: list
  elements: str
  returned: always
  sample: []
in_effect:
  description: Whether every item is in effect now and after a reboot.
  type: bool
  returned: always
  sample: true
items:
  description: The items of the table.
  type: list
  elements: dict
  returned: always
  sample:
    - {"item": "vm.nr_hugepages", "wanted": "64", "configured": "64", "now": "64", "after_reboot": "64", "state": "ok",
       "lacking": false}
table:
  description: The same as lines for people.
  type: list
  elements: str
  returned: always
  sample: ["ITEM             WANTED  CONFIGURED  NOW  AFTER REBOOT  STATE"]
checklist:
  description: Settings only the firmware can change.
  type: list
  elements: dict
  returned: always
  sample: [{"setting": "VT-d (IOMMU)", "want": "enabled", "state": "ok", "because": "the firmware has a DMAR table"}]
checklist_table:
  description: The same as lines for people.
  type: list
  elements: str
  returned: always
  sample: ["FIRMWARE SETTING  WANTED   STATE  HOW IT IS KNOWN"]
findings:
  description: What a person should know, in sentences.
  type: list
  elements: str
  returned: always
  sample: ["/etc/sysctl.d/10-db.conf:3 sets vm.nr_hugepages = 8, wanted is 64. ..."]
reboot:
  description: What a reboot would bring into effect, in sentences.
  type: list
  elements: str
  returned: always
  sample: ["intel_idle.max_cstate=0 (speed: the processor's power saving costs tokens per second)"]
removed_at_reboot:
  description: What the running kernel still has and the next boot will not have, in sentences.
  type: list
  elements: str
  returned: always
  sample: []
ours:
  description: Kernel arguments that are ours, or were before they left the inventory.
  type: list
  elements: str
  returned: always
  sample: ["cpufreq.default_governor=performance", "intel_idle.max_cstate=0"]
unit_present:
  description: Whether the role's unit is there.
  type: bool
  returned: always
  sample: true
loader:
  description: What sets kernel arguments here, grub or grubby; null when neither is there.
  type: str
  returned: always
  sample: grub
unit_settled:
  description: Whether our unit starts at boot, runs as its files say, and no processor was slowed since.
  type: bool
  returned: always
  sample: true
former_lost:
  description: Settings of ours whose values from before are not recorded any more.
  type: list
  elements: str
  returned: always
  sample: []
former_kept:
  description: Whether the record of what was there before says all of RV(former) already.
  type: bool
  returned: always
  sample: true
document_kept:
  description: Whether the node keeps RV(document) already.
  type: bool
  returned: always
  sample: true
reload_needed:
  description: Whether systemd still has an older version of our unit, or of an instance's, than the files.
  type: bool
  returned: always
  sample: false
unit_outdated:
  description: Whether our unit, or its program, was written after the unit started.
  type: bool
  returned: always
  sample: false
drop_in:
  description: Whether the drop-in for GRUB is there.
  type: bool
  returned: always
  sample: true
serving_refused:
  description: Why serving is refused on the running kernel, or null.
  type: str
  returned: always
  sample: null
kernel_arguments:
  description: The arguments this node needs.
  type: list
  elements: str
  returned: always
  sample: ["cpufreq.default_governor=performance", "intel_idle.max_cstate=0"]
container:
  description: Whether this is a container, whose kernel is its host's.
  type: bool
  returned: always
  sample: false
former:
  description: The values before the first change.
  type: dict
  returned: always
  sample: {"schema": 1, "sysctl": {"kernel.numa_balancing": "1"}, "kernel_arguments": {}}
document:
  description: The node's document that decides whether instances may serve.
  type: dict
  returned: always
  sample: {"schema": 2, "serving_refused": null}
report:
  description: What verify_host.yml leaves for programs; reboot_needed and serving_refused are sentences.
  type: dict
  returned: always
  sample: {"server": "Supermicro SYS-821GV-TNR, firmware 1.4", "in_effect": true, "items": [], "serving_refused": null}
server:
  description: Maker, model and firmware version, as the firmware names them.
  type: str
  returned: always
  sample: Supermicro SYS-821GV-TNR, firmware 1.4
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: not_a_kernel_setting
"""

from typing import Any

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.host import sysctl
from ansible.module_utils.gaudi.host.inspection import Inspection
from ansible.module_utils.gaudi.node.host.tuning import read_host
from ansible.module_utils.gaudi.node.module import NodeModule

_TEXT: dict[str, Any] = {"type": "path", "required": True}
ARGUMENT_SPEC: dict[str, Any] = {
    "wanted": {
        "type": "dict",
        "required": True,
        "options": {
            "sysctl": {"type": "dict", "required": True},
            "max_memory_share": {"type": "int", "required": True},
            "hugepage_size": {"type": "str", "choices": list(sysctl.SIZES), "default": sysctl.SIZE},
            "kernel_rules": {"type": "list", "elements": "dict", "required": True},
            "set_arguments": {"type": "bool", "required": True},
            "release": {"type": "str", "default": ""},
            "always": {"type": "list", "elements": "str", "default": []},
            "formerly": {"type": "list", "elements": "str", "default": []},
            "cpu": {"type": "bool", "required": True},
            "energy": {"type": "bool", "default": False},
            "limits": {"type": "dict", "required": True},
            "firmware": {"type": "list", "elements": "dict", "required": True},
        },
    },
    "paths": {
        "type": "dict",
        "required": True,
        "options": dict.fromkeys(
            ("sysctl", "grub", "limits", "unit", "udev_rule", "program", "former", "state"), _TEXT
        ),
    },
    "refuse": {"type": "bool", "default": False},
}


def main() -> None:
    """Read and report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        wanted, paths = module.params["wanted"], module.params["paths"]
        found = Inspection(wanted, paths, read_host(module, wanted, paths)).answer()
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    if module.params["refuse"] and found["refusals"]:
        module.fail_json(msg="\n".join(found["refusals"]), refused_id="host_refused")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
