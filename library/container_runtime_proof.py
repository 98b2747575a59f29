#!/usr/bin/python
"""Ansible module: run a container with the habana runtime, and count the cards that it sees."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_runtime_proof
short_description: Prove that containers get the node's cards
version_added: "0.2.0"
author: gaudi-serving
description:
  - On a node with cards, runs a container with C(--runtime=habana) that lists C(/dev/accel), and fails unless it sees
    every card of the node.
  - The image is made of files of the node and removed again. Nothing is pulled, and no card is acquired.
  - What the proof holds for is written down, so that M(container_runtime_info) can tell when it is due again.
options:
  habana_path:
    description: The vendor's container runtime on the node.
    type: path
    required: true
  record:
    description: Path of the record.
    type: path
    default: /var/lib/gaudi-serving/runtime_proof.json
requirements:
  - root (C(become))
  - C(ldd)
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Runs nothing.
    support: full
  diff_mode:
    description: Not supported.
    support: none
"""

EXAMPLES = r"""
- name: Prove that containers get the node's cards
  container_runtime_proof:
    habana_path: /usr/bin/habana-container-runtime
  become: true
"""

RETURN = r"""
devices:
  description: The cards that the container saw, which are those of the node.
  returned: success
  type: list
  elements: str
  sample: [accel0, accel1]
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: container_without_cards
"""

import io
import tarfile
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.engine import proof
from ansible.module_utils.gaudi.node.containers import proof_facts
from ansible.module_utils.gaudi.node.documents import make_room
from ansible.module_utils.gaudi.node.files import write_json
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "habana_path": {"type": "path", "required": True},
    "record": {"type": "path", "default": paths.RUNTIME_PROOF},
}


def packed(files: list[str]) -> bytes:
    """A tar archive of files, links followed, each where it lies."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", dereference=True) as archive:
        for name in dict.fromkeys(files):
            archive.add(name)
    return stream.getvalue()


def main() -> None:
    """Make the image, run it, compare, write down."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    docker = module.get_bin_path("docker", required=True)
    facts = proof_facts(module, docker, module.params["habana_path"])
    if module.check_mode or not facts:
        module.exit_json(changed=False, devices=facts.get("devices", []))
    _, libraries, _ = module.run_command(["ldd", proof.PROGRAM])
    image = packed([proof.PROGRAM, *proof.linked(libraries)])
    code, _, err = module.run_command([docker, "import", "-", proof.IMAGE], data=image, binary_data=True)
    if code != 0:
        module.fail_json(msg=f"docker import failed: {printable(err.strip())}. Look at journalctl -u docker.")
    status, out, err = module.run_command(proof.command(docker))
    module.run_command([docker, "image", "rm", proof.IMAGE])
    refusal = proof.refusal(status, out, err, facts["devices"])
    if refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    record = Path(module.params["record"])
    record.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    make_room(record)
    write_json(record, facts, mode=0o644)
    module.exit_json(changed=False, devices=facts["devices"])


if __name__ == "__main__":
    main()
