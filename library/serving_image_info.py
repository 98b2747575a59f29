#!/usr/bin/python
"""Ansible module: what is in the serving images of a node, and which instance has which."""

from __future__ import annotations

DOCUMENTATION = r"""
module: serving_image_info
short_description: Read what is in the serving images of a node, and which instance has which
version_added: "0.2.0"
author: gaudi-serving
description:
  - Puts together what the image record says, what the labels of an image say, and what was found inside it when it was
    looked into (its bill of materials). Starts no container.
options:
  record:
    description: File the images of the node are recorded in. Bills of materials lie in the directory C(sbom) beside it.
    type: path
    default: /var/lib/gaudi-serving/images.json
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
seealso:
  - module: serving_image
"""

EXAMPLES = r"""
- name: Read what images the node has
  serving_image_info:
  become: true
  register: images
"""

RETURN = r"""
images:
  description: The images on record, sorted by reference.
  returned: always
  type: list
  elements: dict
  contains:
    reference:
      description: Name and tag.
      type: str
      sample: gaudi-serving/vllm:1.22-0123456789ab
    id:
      description: Id of the image.
      type: str
      sample: sha256:...
    digest:
      description: Digest of the registry it was pulled from; empty for none.
      type: str
      sample: ""
    present:
      description: Whether the engine has that image under that name; true also where there is no engine to ask.
      type: bool
      sample: true
    built:
      description: Labels that a build of this project left; empty for any other image.
      type: dict
      sample: {gaudi-serving.image.release: "1.22"}
    parts:
      description: Parts that were found inside.
      type: list
      elements: str
      sample: [numactl]
    python:
      description:
        - Python distributions that were found inside, with their versions. Where nobody looked yet, those that the
          labels of a built image name.
      type: dict
      sample: {vllm: 0.9.0}
    system:
      description: Packages of the system that were found inside, with their versions.
      type: dict
      sample: {bash: 5.1-6ubuntu1}
    checkouts:
      description: Commits of git repositories that were found inside, by directory.
      type: dict
      sample: {/opt/vllm-fork: 4cd8c0613...}
    bill:
      description: File with the bill of materials; empty where nobody looked into the image yet.
      type: str
      sample: /var/lib/gaudi-serving/sbom/ID.cdx.json
    damaged:
      description: Why the bill cannot be read; empty where it can.
      type: str
      sample: ""
instances:
  description: The instances of the node, with the image of their plan.
  returned: always
  type: list
  elements: dict
  contains:
    instance:
      description: Name of the instance.
      type: str
      sample: qwen3-8b
    image:
      description: Reference of the image in its plan.
      type: str
      sample: gaudi-serving/vllm:1.22-0123456789ab
    runs_in:
      description: Id of the image that its container was made of; empty where it has none.
      type: str
      sample: sha256:...
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: image_record_damaged
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.engine import image_record
from ansible.module_utils.gaudi.image import sbom, versions
from ansible.module_utils.gaudi.node import containers
from ansible.module_utils.gaudi.node import weight_folders as plans
from ansible.module_utils.gaudi.node.documents import read
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {"record": {"type": "path", "default": "/var/lib/gaudi-serving/images.json"}}
PLANS = Path(paths.INSTANCES)


def present(module: AnsibleModule, images: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return recorded references that the engine still has; all of them without an engine."""
    docker = module.get_bin_path("docker")
    if docker is None or not images:
        return set(images)
    command = [docker, "image", "inspect", "--format", "{{.Id}}"]
    found = {reference: module.run_command([*command, reference])[1].strip() for reference in images}
    return {reference for reference, known in images.items() if found[reference] == known.get("id")}


def describe(reference: str, known: Mapping[str, Any], folder: Path, there: bool) -> dict[str, Any]:
    """One image: what is on record, and what its bill says."""
    file = folder / sbom.file_name(str(known.get("id", "")))
    inside, damaged = None, ""
    try:
        inside = read(file, sbom.contents)
    except Damaged as damage:
        damaged = str(damage)
    built = known.get("built") or {}
    foretold = {**versions.labelled_versions(built), **(known.get("packages") or {})}
    return {
        "reference": reference,
        "id": str(known.get("id", "")),
        "digest": known.get("digest") or "",
        "present": there,
        "built": built,
        "parts": known.get("parts") or [],
        "python": dict(inside.python) if inside else foretold,
        "system": dict(inside.system) if inside else {},
        "checkouts": dict(inside.checkouts) if inside else {},
        "bill": str(file) if inside else "",
        "damaged": damaged,
    }


def instances(module: AnsibleModule) -> list[dict[str, str]]:
    """The instances by name, each with the image of its plan and that of its container."""
    found = []
    for name, plan in plans.plans_on_node(PLANS).items():
        container = containers.look(module, str(plan.get("container", {}).get("name", f"vllm-{name}")))
        runs_in = str(container.inspected.get("Image", "")) if container else ""
        found.append({"instance": name, "image": str(plan.get("image", "")), "runs_in": runs_in})
    return found


def main() -> None:
    """Read, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    path = Path(module.params["record"])
    try:
        images = (read(path, image_record.ImageRecord.parse) or image_record.ImageRecord()).images
    except Damaged as damage:
        module.fail_json(msg=f"{damage}. The next run of site.yml writes it anew.", refused_id="image_record_damaged")
    for file in plans.damaged_plans(PLANS):
        module.warn(f"{file} is damaged: which image {file.parent.name} has is not known.")
    there = present(module, images)
    folder = path.parent / sbom.FOLDER
    module.exit_json(
        changed=False,
        images=[describe(name, images[name], folder, name in there) for name in sorted(images)],
        instances=instances(module),
    )


if __name__ == "__main__":
    main()
