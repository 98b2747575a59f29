#!/usr/bin/python
"""Say what a node has of a release's driver, what keeps the rest from it, and what is to do."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gaudi_driver_info
short_description: Say what a node has of a release's driver, and what is to do
version_added: "0.1.0"
author: gaudi-serving
description:
  - Reads packages, DKMS, kernels, modules and cards of a node, and holds them against what a release's driver is
    made of.
  - The action of the same name reads the release and C(catalog/driver.yml) on the controller.
options:
  release:
    description: Name of the release in C(catalog/releases).
    type: str
    required: true
  replace:
    description: Whether a driver of another release may be replaced.
    type: bool
    default: false
  take_over:
    description: Whether packages that are on hold, or that the vendor's installer brought, may be changed.
    type: bool
    default: false
  drain:
    description: Whether the caller stops our instances for a change, so that they do not block it.
    type: bool
    default: false
  no_way_back:
    description: Whether packages may be replaced although no repository offers their present version any more.
    type: bool
    default: false
  hold_kernel:
    description: Whether the texts for apt keep the packages of the kernel at their versions as well.
    type: bool
    default: false
  offered:
    description: Whether to look what the package repositories offer of what is missing, as the node knows them.
    type: bool
    default: false
  repository:
    description:
      - Address of a repository whose index is read for O(offered), where the node is not told of it yet. Not on RHEL.
      - May hold a password.
    type: str
    default: ""
  suite:
    description: Suite of O(repository). Empty takes the system's code name.
    type: str
    default: ""
  kernel:
    description:
      - The kernel that the site chooses. V(supported) is the newest of the release's list that the node has or is
        offered, of the kind of the running one; an empty text removes the choice of an earlier run. Left out, nothing
        is foreseen, and the kernel that boots next is the one that the boot loader takes now.
    type: str
  external_ports:
    description: Whether the cards' external ports are brought up at each boot.
    type: bool
    default: false
  reboots:
    description: Whether the node is rebooted for the kernel in this run, so that cards in use are refused beforehand.
    type: bool
    default: false
  refuse:
    description:
      - Whether to fail. V(before) fails for what keeps the release from being installed, V(after) for what is not as
        the vendor's manuals ask once it is, V(removal) for packages that dpkg was kept from finishing, which apt does
        not take off. V(kernel) fails for what keeps the kernel of O(kernel) from being installed, V(booted) where that
        kernel waits for a reboot and the driver does not build on the running one.
    type: str
    choices: [never, before, after, removal, kernel, booted]
    default: never
requirements:
  - root (C(become))
attributes:
  check_mode:
    description: Reads only.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  platform:
    description: Debian, Ubuntu, and RHEL, which was not tried.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: See what the node has of the driver
  gaudi_driver_info:
    release: "1.22"
  register: driver
  become: true

- name: Fail unless the driver is as the manuals ask
  gaudi_driver_info:
    release: "1.22"
    refuse: after
  become: true
"""

RETURN = r"""
family:
  description: Family of the system, as Ansible's facts call it.
  type: str
  returned: always
  sample: Debian
version:
  description: The version that the release's packages have.
  type: str
  returned: always
  sample: 1.22.2-32
state:
  description: C(absent), C(right), C(incomplete), C(older), C(newer), C(mixed) or C(broken).
  type: str
  returned: always
  sample: right
origin:
  description: C(packages), C(installer), C(kernel) or C(by_hand), empty where there is no driver.
  type: str
  returned: always
  sample: packages
installed:
  description: Versions of the vendor's packages by name.
  type: dict
  returned: always
  sample: {habanalabs-dkms: 1.22.2-32}
kernel:
  description: The kernel that runs.
  type: str
  returned: always
  sample: 6.8.0-45-generic
next_kernel:
  description: The kernel that boots next.
  type: str
  returned: always
  sample: 6.8.0-45-generic
chosen:
  description:
    - What is to do for the kernel of O(kernel) - the option as C(requested); C(kernel), which it means, empty if the
      node has not read package lists that have it; C(pinned), the kernel of our drop-in; C(packages) that are missing;
      C(keep), the text that keeps apt from removing them; whether the drop-in is C(up_to_date); whether the kernel
      C(waits) for a reboot.
  type: dict
  returned: always
  sample:
    requested: supported
    kernel: 6.8.0-110-generic
    pinned: ""
    packages: [linux-image-6.8.0-110-generic, linux-headers-6.8.0-110-generic]
    keep: ""
    up_to_date: false
    waits: true
at_boot:
  description:
    - What the node is to do at boot - the texts of the file with the C(modules) and of the C(unit) for external ports,
      empty if the site does not use them; whether both are C(up_to_date); whether the node has a unit
      of ours for C(ports).
  type: dict
  returned: always
  sample: {modules: "habanalabs\n", unit: "", up_to_date: true, ports: false}
refusals:
  description: Why the release cannot be installed, C(id) and C(message) of each.
  type: list
  elements: dict
  returned: always
  sample: []
steps:
  description:
    - What is to do, in this order. C(repair) has packages that are installed by half, C(forget) what DKMS has of them,
      C(unpack) those of them that are reinstalled, with their versions. C(install) has packages with their versions,
      C(build) kernels without the driver, C(unload) and C(load) modules. A step that is not needed is empty.
  type: dict
  returned: always
  sample: {repair: [], forget: [], unpack: [], install: [], build: [], unload: [], load: []}
interrupted:
  description: Whether dpkg was interrupted during a change and must be resumed before apt changes anything.
  type: bool
  returned: always
  sample: false
kernel_packages:
  description: Packages of the distribution's that the kernels need for the driver and that are not there.
  type: list
  elements: str
  returned: always
  sample: []
reboot:
  description: What only a reboot makes effective, in sentences.
  type: list
  elements: str
  returned: always
  sample: []
unverified:
  description: What is not as the vendor's manuals ask, C(id) and C(message) of each.
  type: list
  elements: dict
  returned: always
  sample: []
replaces:
  description: Whether the steps put another driver in the place of the one that is there.
  type: bool
  returned: always
  sample: false
present:
  description:
    - The driver that is there, as the role gaudi_driver writes it down - C(version) and C(packages), what the
      loaded one C(says) of itself, C(modules) in the order in which they are loaded, C(preferences) for apt.
  type: dict
  returned: always
  sample: {version: 1.22.2-32, says: 1.22.2-97ec1a4, packages: {}, modules: [habanalabs], preferences: ""}
keep:
  description: Packages that are about to be replaced and that a repository still has, as apt-get download takes them.
  type: list
  elements: str
  returned: always
  sample: []
interfaces_down:
  description: Network interfaces of the cards' external ports that are not enabled.
  type: list
  elements: str
  returned: always
  sample: []
instances:
  description: Instances of ours that use a card.
  type: list
  elements: str
  returned: always
  sample: []
users:
  description: Other users of cards, in words.
  type: list
  elements: str
  returned: always
  sample: []
loaded:
  description: Modules of the driver that are loaded, in the order in which they can be unloaded.
  type: list
  elements: str
  returned: always
  sample: [habanalabs_ib, habanalabs_en, habanalabs_cn, habanalabs, habanalabs_compat]
cards:
  description: Gaudi cards on the PCI bus.
  type: int
  returned: always
  sample: 8
preferences:
  description: The text that keeps apt at the release; empty on other systems.
  type: str
  returned: always
  sample: ""
unattended:
  description: The text that keeps unattended upgrades away from it; empty on other systems.
  type: str
  returned: always
  sample: ""
build_failure:
  description:
    - Why DKMS did not build the release's modules for a kernel that lacks them, C(id) and C(message), from its
      C(make.log). Empty where no log shows it.
  type: dict
  returned: always
  sample: {}
denials:
  description:
    - What an answer 407 of a proxy means while packages are fetched, by the address of each repository that apt reaches
      through one. Empty without C(offered).
  type: dict
  returned: always
  sample: {}
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: driver_of_other_release
"""

from collections.abc import Sequence
from typing import Any

from ansible.module_utils.gaudi.base.places import Room
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import apt
from ansible.module_utils.gaudi.node.driver.look import Look
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.reader import read_sources
from ansible.module_utils.gaudi.preflight.checks import check_room

KINDS = ("never", "before", "after", "removal", "kernel", "booted")
ARGUMENT_SPEC: dict[str, Any] = {
    "software": {"type": "dict", "required": True},
    "facts": {"type": "dict", "required": True},
    "replace": {"type": "bool", "default": False},
    "take_over": {"type": "bool", "default": False},
    "drain": {"type": "bool", "default": False},
    "no_way_back": {"type": "bool", "default": False},
    "hold_kernel": {"type": "bool", "default": False},
    "offered": {"type": "bool", "default": False},
    "repository": {"type": "str", "default": "", "no_log": True},
    "suite": {"type": "str", "default": ""},
    "kernel": {"type": "str"},
    "external_ports": {"type": "bool", "default": False},
    "reboots": {"type": "bool", "default": False},
    "refuse": {"type": "str", "choices": list(KINDS), "default": "never"},
}


def told(refusals: Sequence[Refusal]) -> list[dict[str, str]]:
    """Refusals as they survive JSON."""
    return [{"id": refusal.id, "message": str(refusal)} for refusal in refusals]


def failed(node: Look) -> dict[str, str]:
    """Why the release's modules were not built; {} if no log shows it."""
    return next(iter(told([each for each in [node.build_failure] if each])), {})


def no_room(rooms: Sequence[Room]) -> list[Refusal]:
    """Return why packages do not fit."""
    return [Refusal(problem.id, problem.message) for problem in check_room(rooms)]


def main() -> None:
    """Read, judge, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        node = Look(module, module.params, read_sources(module, links=False))
        judged, (not_offered, for_kernels) = node.judgement(), node.offers()
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    refusals = [*node.kernel_refusals(), *judged.refusals, *node.boot(judged)[0], *not_offered, *no_room(node.rooms)]
    unverified, (preferences, unattended) = node.unverified(), node.texts()
    found: tuple[list[Refusal], ...] = ([], refusals, unverified, node.removal(), node.kernel_refusals(), node.booted())
    stopping = dict(zip(KINDS, found))[module.params["refuse"]]
    answer = {
        **judged.as_dict(),
        **{"family": node.family, "version": node.wanted.version, "installed": node.installed, "at_boot": node.at_boot},
        **{"kernel": node.found.kernel, "next_kernel": node.found.next_kernel, "cards": len(node.sources.pci)},
        **{"users": list(node.found.users), "instances": list(node.found.instances), "loaded": node.loaded},
        **{"present": node.present, "keep": node.keep, "interfaces_down": node.interfaces_down, "chosen": node.kernel},
        **{"refusals": told(refusals), "unverified": told(unverified), "kernel_packages": for_kernels},
        **{"preferences": preferences, "unattended": unattended, "interrupted": node.found.interrupted},
        **{"denials": apt.denials(module) if module.params["offered"] else {}, "build_failure": failed(node)},
    }
    if stopping:
        module.fail_json(msg="\n".join(each.message_with_id for each in stopping), refused_id=stopping[0].id, **answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
