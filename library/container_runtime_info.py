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
  refuse:
    description: Whether to fail on an engine that instances cannot use.
    type: bool
    default: false
  manage:
    description:
      - Whether this project installs and configures the engine. If not, O(refuse) also fails on what instances
        need and the node lacks - an engine that answers, the runtime C(habana) in its configuration, and packages.
    type: bool
    default: true
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
extends_documentation_fragment: attributes.reads
attributes:
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
  description:
    - Packages the engine needs on this node. Those of the engine itself are left out where others installed it.
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
origin:
  description:
    - The engine that is on the node. C(kind) is V(docker-ce), V(docker.io), V(moby-engine), V(package) (of another
      name), V(unpackaged), V(snap), V(podman), V(rootless), V(other) (another process has the socket), V(kubernetes) or
      V(containerd) (containerd without an engine), or V(none).
    - C(package) owns its program in C(version), C(program) is its path, C(unit) the unit that runs it.
    - C(ours) says whether this project installed it, C(by_others) whether an engine is there that others installed.
    - C(suitable) says whether instances can use it. Only of an unsuitable engine, C(refused) is the reason and
      C(refused_id) its id.
  type: dict
  returned: always
  sample: {"kind": "docker-ce", "package": "docker-ce", "version": "5:28.0.1-1~debian.12~bookworm",
    "program": "/usr/bin/dockerd", "unit": "docker.service", "ours": false, "by_others": true, "suitable": true}
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
restart:
  description: How the engine's owner restarts it, and what that ends, for "Stays" in a message.
  type: str
  returned: always
  sample: systemctl restart docker; without live-restore this ends its containers
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: engine_is_snap
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.engine import configuration, origin
from ansible.module_utils.gaudi.engine import packages as engine_packages
from ansible.module_utils.gaudi.node import engine_look
from ansible.module_utils.gaudi.node.containers import proof_facts
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.files import text_of
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "builds": {"type": "bool", "default": False},
    "refuse": {"type": "bool", "default": False},
    "manage": {"type": "bool", "default": True},
    "habana_path": {"type": "path", "required": True},
    "record": {"type": "path", "default": paths.RUNTIME_PROOF},
}
OS_RELEASE = Path("/etc/os-release")


def proved(module: AnsibleModule, client: str) -> bool:
    """Whether a container with this engine and runtime was seen to get all cards of the node.

    Always true without cards, engine or runtime, as there is nothing to prove.
    """
    path = module.params["habana_path"]
    facts = proof_facts(module, client, path) if client and os.access(path, os.X_OK) else {}
    if not facts:
        return True
    try:
        return bool(read_json(Path(module.params["record"])) == facts)
    except Damaged:
        return False


def main() -> None:
    """Read."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, os_release = module.params, text_of(OS_RELEASE)
    try:
        engine = engine_look.look(module, os_release, params["packages"], builds=params["builds"])
    except Damaged as damage:
        module.fail_json(msg=f"{damage}. Move it away: then nothing counts as ours.", refused_id="record_damaged")
    if params["refuse"]:
        refusals = engine_look.refusals(module, engine, manage=params["manage"], habana_path=params["habana_path"])
        if refusals:
            sentence = " ".join(map(str, refusals))
            module.fail_json(msg=sentence, refused_id=refusals[0].id, origin=engine.report)
    module.exit_json(
        changed=False,
        family=engine_packages.family_of(os_release),
        packages=engine.packages,
        missing=engine.missing,
        origin=engine.report,
        engine=bool(engine.client),
        unit_settled=origin.settled(engine.unit),
        habana=os.access(params["habana_path"], os.X_OK),
        proved=proved(module, engine.client),
        restart=configuration.at_restart(engine.report["version"]),
    )


if __name__ == "__main__":
    main()
