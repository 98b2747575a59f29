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
  no_way_back:
    description: Whether packages may be replaced that no repository has any more.
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
  refuse:
    description:
      - Whether to fail. V(before) fails for what keeps the release from being installed, V(after) for what is not as
        the vendor's manuals ask once it is.
    type: str
    choices: [never, before, after]
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
refusals:
  description: Why the release cannot be installed, C(id) and C(message) of each.
  type: list
  elements: dict
  returned: always
  sample: []
steps:
  description:
    - What is to do, in this order. C(install) has packages with their versions, C(build) kernels without the driver,
      C(unload) and C(load) modules. A step that is not needed is not there.
  type: dict
  returned: always
  sample: {}
kernel_packages:
  description: Packages of the distribution's that the kernels need for the driver and that are not there.
  type: list
  elements: str
  returned: always
  sample: []
reboot:
  description: What only a reboot brings into effect, in sentences.
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
refused_id:
  description: What is wrong, in one word that stays the same; C(msg) says it in a sentence.
  returned: when the task fails for a refusal
  type: str
  sample: driver_of_other_release
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards.document import build_topology
from ansible.module_utils.gaudi.cards.users import describe_user
from ansible.module_utils.gaudi.driver import apt_files, decision, dkms, kernels, offered, packages
from ansible.module_utils.gaudi.driver.decision import Found, Judgement, Wishes
from ansible.module_utils.gaudi.driver.facts import DEB, Facts, Wanted
from ansible.module_utils.gaudi.engine.packages import family_of
from ansible.module_utils.gaudi.node.reader import read_sources

ARGUMENT_SPEC: dict[str, Any] = {
    "software": {"type": "dict", "required": True},
    "facts": {"type": "dict", "required": True},
    "replace": {"type": "bool", "default": False},
    "take_over": {"type": "bool", "default": False},
    "no_way_back": {"type": "bool", "default": False},
    "hold_kernel": {"type": "bool", "default": False},
    "offered": {"type": "bool", "default": False},
    "refuse": {"type": "str", "choices": ["never", "before", "after"], "default": "never"},
}
ROOT = Path("/")
OS_RELEASE = Path("/etc/os-release")
# Not uname: it says the same on every node, and a file can be laid over on one that is simulated.
RUNNING = Path("/proc/sys/kernel/osrelease")
BOOT = Path("/boot")
DEVICES = Path("/dev/accel")
MODULES = Path("/lib/modules")


def said(module: AnsibleModule, command: Sequence[str]) -> str:
    """What a program prints, whatever its status; nothing of one that is not there."""
    program = module.get_bin_path(command[0])
    if program is None:
        return ""
    _, out, _ = module.run_command([program, *command[1:]], environ_update={"LC_ALL": "C"})
    return str(out)


class Node:
    """What was read of the node, and what is made of it."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        system = OS_RELEASE.read_text(encoding="utf-8")
        self.family = family_of(system)
        version = re.search(r'^VERSION_ID="?(\d+)', system, re.MULTILINE)
        self.facts = Facts.from_document(module.params["facts"])
        self.wanted: Wanted = self.facts.wanted(
            module.params["software"], self.family, f".el{version[1]}" if version else ""
        )
        self.sources = read_sources(module, links=False)
        self.found = self._read()
        self.packages_lacking = self._kernel_packages()

    def _read(self) -> Found:
        """Read what is judged."""
        running = RUNNING.read_text(encoding="ascii").strip()
        topology = build_topology(self.sources)
        users = [
            f"module {card['module_id']}: {describe_user(user)}" for card in topology["cards"] for user in card["users"]
        ]
        query = packages.query(self.wanted.format, ["habanalabs*"])
        grubby = said(self.module, ["grubby", "--default-kernel"])
        return Found(
            kernel=running,
            next_kernel=kernels.boots_next((path.name for path in BOOT.glob("vmlinuz*")), running, grubby.strip()),
            packages=packages.parse(said(self.module, query)),
            traces=tuple(str(path) for trace in self.facts.traces for path in sorted(ROOT.glob(trace.lstrip("/")))),
            modules=kernels.loaded(said(self.module, ["lsmod"])),
            version=topology["driver_version"] or "",
            file=said(self.module, ["modinfo", "-F", "filename", "habanalabs"]).strip(),
            status=dkms.parse(said(self.module, ["dkms", "status"])),
            users=tuple(users),
        )

    def _kernel_packages(self) -> dict[str, tuple[list[str], list[str]]]:
        """By kernel, the packages with its headers and further ones that are not on the node."""
        lacking = {}
        for kernel in dict.fromkeys((self.found.kernel, self.found.next_kernel)):
            headers = self.facts.headers_of(self.wanted.format, kernel)
            extra = self.facts.extra_of(self.wanted.format, kernel)
            there = packages.parse(said(self.module, packages.query(self.wanted.format, [*headers, *extra])))
            # Headers that somebody built lie there as well.
            built = (MODULES / kernel / "build").exists()
            lacking[kernel] = (
                [name for name in headers if name not in there and not built],
                [name for name in extra if name not in there],
            )
        return lacking

    def judgement(self) -> Judgement:
        """The judgement of the node as it is."""
        wishes = Wishes(self.module.params["replace"], self.module.params["take_over"])
        judged: Judgement = decision.decide(self.found, self.wanted, self.facts, wishes)
        return judged

    def offers(self) -> tuple[list[Refusal], list[str]]:
        """Why the repositories do not offer what is missing, and the packages to install for the kernels."""
        headers = [name for lacking, _ in self.packages_lacking.values() for name in lacking]
        if not self.module.params["offered"]:
            return [], headers
        extra = [name for _, lacking in self.packages_lacking.values() for name in lacking]
        names = [*self.wanted.packages, *headers, *extra]
        listed = offered.parse(said(self.module, offered.query(self.wanted.format, names)))
        other = [name for name in self.wanted.packages if self.installed.get(name) != self.wanted.version]
        replaced = {name: self.installed[name] for name in other if name in self.installed}
        refusals = [offered.refusal(listed, self.wanted, other)]
        if not self.module.params["no_way_back"]:
            refusals.append(offered.way_back_refusal(listed, replaced))
        for kernel, (lacking, _) in self.packages_lacking.items():
            refusals.append(offered.headers_refusal(listed, lacking, kernel))
        return [refusal for refusal in refusals if refusal], [*headers, *(name for name in extra if name in listed)]

    @property
    def installed(self) -> dict[str, str]:
        """Versions by name."""
        return {name: package.version for name, package in self.found.packages.items()}

    def texts(self) -> tuple[str, str]:
        """The two files for apt."""
        if self.wanted.format != DEB:
            return "", ""
        held = {}
        if self.module.params["hold_kernel"]:
            listed = packages.parse(said(self.module, packages.query(DEB, apt_files.KERNEL_PATTERNS)))
            held = apt_files.kernel_packages({name: package.version for name, package in listed.items()})
        kept = apt_files.preferences(self.wanted, held, replace=self.module.params["replace"])
        return kept, apt_files.unattended(self.wanted, held)

    def unverified(self) -> list[Refusal]:
        """What is not as the manuals ask."""
        devices = [path for path in DEVICES.glob("accel*") if re.fullmatch(r"accel\d+", path.name)]
        seen = self.sources.seen
        shown = None if seen is None else len(seen.cards)
        wrong: list[Refusal] = decision.verify(
            self.found, self.wanted, self.facts, len(self.sources.pci), len(devices), shown
        )
        return wrong


def told(refusals: Sequence[Refusal]) -> list[dict[str, str]]:
    """Refusals as they survive JSON."""
    return [{"id": refusal.id, "message": str(refusal)} for refusal in refusals]


def main() -> None:
    """Read, judge, return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        node = Node(module)
        judged, (not_offered, for_kernels) = node.judgement(), node.offers()
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    refusals = [*judged.refusals, *not_offered]
    unverified, (preferences, unattended) = node.unverified(), node.texts()
    stopping = {"never": [], "before": refusals, "after": unverified}[module.params["refuse"]]
    answer = {
        **judged.as_dict(),
        **{"family": node.family, "version": node.wanted.version, "installed": node.installed},
        **{"kernel": node.found.kernel, "next_kernel": node.found.next_kernel, "cards": len(node.sources.pci)},
        **{"refusals": told(refusals), "unverified": told(unverified), "kernel_packages": for_kernels},
        **{"preferences": preferences, "unattended": unattended},
    }
    if stopping:
        module.fail_json(msg="\n".join(map(str, stopping)), refused_id=stopping[0].id, **answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
