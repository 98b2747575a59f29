#!/usr/bin/python
"""Read what a node has of a container engine and of the vendor's runtime."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_runtime_info
short_description: Read what a node has of a container engine and of the vendor's runtime
version_added: "0.1.0"
author: gaudi-serving
description:
  - Says in one round trip whether the engine's packages, the engine, its unit and the vendor's runtime are there, so
    that a node which has them is left alone.
options:
  packages:
    description: >-
      Packages of the engine. Empty means those that RV(packages) names for the node's system.
    type: list
    elements: str
    default: []
  builds:
    description: Whether images are to be built on the node, for which a client since 23 needs a package of its own.
    type: bool
    default: false
  habana_path:
    description: The vendor's runtime.
    type: path
    required: true
  record:
    description: Where M(container_runtime_proof) wrote what its last proof holds for.
    type: path
    default: /var/lib/gaudi-serving/runtime_proof.json
requirements:
  - root (C(become))
attributes:
  check_mode:
    description: Only reads, so check mode makes no difference.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  platform:
    description: Debian, Ubuntu and RHEL, with systemd.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Look what the node has
  container_runtime_info:
    habana_path: /usr/bin/habana-container-runtime
  register: found
  become: true
"""

RETURN = r"""
family:
  description: C(Debian) or C(RedHat), as Ansible's facts call it; empty on another system.
  type: str
  returned: always
  sample: Debian
packages:
  description: Packages the engine needs on this node.
  type: list
  elements: str
  returned: always
  sample: [docker.io, apparmor]
missing:
  description: Those of RV(packages) that are not installed.
  type: list
  elements: str
  returned: always
  sample: []
engine:
  description: Whether the engine's client is there.
  type: bool
  returned: always
  sample: true
unit_settled:
  description: Whether the engine's unit is active and starts at boot, and systemd knows it as it lies on the disk.
  type: bool
  returned: always
  sample: true
habana:
  description: Whether the vendor's runtime is there and can be executed.
  type: bool
  returned: always
  sample: true
proved:
  description:
    - Whether a container got all cards with this engine, this runtime and these cards. True as well where there is
      nothing to prove - no engine, no runtime or no cards.
  type: bool
  returned: always
  sample: true
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.engine import packages as engine_packages
from ansible.module_utils.gaudi.node.containers import proof_facts
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "builds": {"type": "bool", "default": False},
    "habana_path": {"type": "path", "required": True},
    "record": {"type": "path", "default": paths.RUNTIME_PROOF},
}
OS_RELEASE = Path("/etc/os-release")
APPARMOR = Path("/sys/module/apparmor/parameters/enabled")
ENGINE = Path("/usr/bin/docker")
SETTLED = {"ActiveState=active", "UnitFileState=enabled", "NeedDaemonReload=no"}


def text_of(path: Path) -> str:
    """Return a file's content; "" if it is missing."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def missing(module: AnsibleModule, family: str, packages: list[str]) -> list[str]:
    """Return packages that are not installed, from the system's package database."""
    if family == "Debian":
        # Status 1 if it does not know one of them; the others are still listed.
        query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n", *packages]
        _, out, _ = module.run_command(query)
        installed = engine_packages.installed_of_dpkg(out)
    else:
        _, out, _ = module.run_command(["rpm", "--query", "--queryformat=%{NAME}\\n", *packages])
        installed = set(out.splitlines())
    return [name for name in packages if name not in installed]


def builder(module: AnsibleModule, packages: list[str]) -> list[str]:
    """Return the missing package with the engine client's builder; "" if it is there, or without a client."""
    if not module.params["builds"] or not ENGINE.exists():
        return []
    _, client, _ = module.run_command([str(ENGINE), "--version"])
    code, _, _ = module.run_command([str(ENGINE), "buildx", "version"])
    package = engine_packages.builder_package(packages, client, code == 0)
    return [package] if package else []


def unit_settled(module: AnsibleModule) -> bool:
    """Whether systemd has the engine's unit as wanted."""
    properties = ",".join(sorted(line.partition("=")[0] for line in SETTLED))
    _, out, _ = module.run_command(["systemctl", "show", "docker.service", f"--property={properties}"])
    return set(out.splitlines()) == SETTLED


def proved(module: AnsibleModule) -> bool:
    """Whether a container with this engine and runtime was seen to get all cards of the node.

    Always true without cards, engine or runtime, as there is nothing to prove.
    """
    path = module.params["habana_path"]
    facts = proof_facts(module, str(ENGINE), path) if ENGINE.exists() and os.access(path, os.X_OK) else {}
    if not facts:
        return True
    try:
        return bool(read_json(Path(module.params["record"])) == facts)
    except Damaged:
        return False


def main() -> None:
    """Read."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    family = engine_packages.family_of(text_of(OS_RELEASE))
    apparmor = text_of(APPARMOR).strip() == "Y"
    packages = engine_packages.engine_packages(family, apparmor, module.params["packages"])
    packages = [*packages, *builder(module, packages)]
    module.exit_json(
        changed=False,
        family=family,
        packages=packages,
        missing=missing(module, family, packages) if packages else [],
        engine=ENGINE.exists(),
        unit_settled=unit_settled(module),
        habana=os.access(module.params["habana_path"], os.X_OK),
        proved=proved(module),
    )


if __name__ == "__main__":
    main()
