#!/usr/bin/python
"""Ansible module: remember which image each instance has, and remove built images that nothing needs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: serving_image_prune
short_description: Remove serving images that were built here and that nothing needs any more
version_added: "0.2.0"
author: gaudi-serving
description:
  - Writes into the image record which image each instance has and which ones it had before.
  - Removes images that this project built, by their labels and their name, beyond those that instances use or are to
    use and O(keep) from before. One that a container uses, running or not, stays; no removal is forced.
  - Removes what a build left that was cut off before its image had all labels, unless that image is being built.
  - Images of others are left alone, and so are all images while the plan of an instance cannot be read.
  - With O(all), for the removal of this project, removes every image of the record that has our labels from an engine
    of others, and names the other images of the record. In an engine that this project installed, images go with its
    data.
options:
  wanted:
    description: The image of each instance of this run, by the instance's name.
    type: dict
    default: {}
  references:
    description: Images that are asked for, whether an instance is to run in them or not.
    type: list
    elements: str
    default: []
  all:
    description: Whether this project is removed, so that no image is needed. The record is left alone.
    type: bool
    default: false
  keep:
    description: How many images of an instance stay beside the one that it uses, the latest first.
    type: int
    default: 1
  record:
    description: File the images of the node are recorded in. Bills of materials lie in the directory C(sbom) beside it.
    type: path
    default: /var/lib/gaudi-serving/images.json
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would be removed, and removes nothing.
    support: full
  diff_mode:
    description: Shows the record before and after.
    support: full
seealso:
  - module: serving_image
"""

EXAMPLES = r"""
- name: Remove what nothing needs any more
  serving_image_prune:
    wanted: {qwen3-8b: "gaudi-serving/vllm:1.22-0123456789ab"}
  become: true
"""

RETURN = r"""
removed:
  description: Images that were removed, or would be.
  returned: always
  type: list
  elements: str
  sample: ["gaudi-serving/vllm:1.22-ba9876543210"]
stays:
  description: Why images that nothing needs are left, a sentence each; with O(all) for "Stays" in a message.
  returned: always
  type: list
  elements: str
  sample: []
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: image_record_damaged
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.engine import image_record
from ansible.module_utils.gaudi.image import sbom
from ansible.module_utils.gaudi.image.labels import LABEL
from ansible.module_utils.gaudi.image.tidying import leaving, tidied, unlabelled
from ansible.module_utils.gaudi.jobs.facts import active_states
from ansible.module_utils.gaudi.node import engine_config
from ansible.module_utils.gaudi.node import weight_folders as plans
from ansible.module_utils.gaudi.node.documents import read, read_text
from ansible.module_utils.gaudi.node.files import write_text
from ansible.module_utils.gaudi.node.module import NodeModule, systemctl

ARGUMENT_SPEC: dict[str, Any] = {
    "wanted": {"type": "dict", "default": {}},
    "references": {"type": "list", "elements": "str", "default": []},
    "all": {"type": "bool", "default": False},
    "keep": {"type": "int", "default": 1},
    "record": {"type": "path", "default": "/var/lib/gaudi-serving/images.json"},
}
PLANS = Path(paths.INSTANCES)
NOTHING: dict[str, Any] = {"changed": False, "removed": [], "stays": []}


def silent(module: AnsibleModule, said: str) -> None:
    """Fail the module because the engine does not answer."""
    module.fail_json(msg=f"The Docker engine does not answer ({printable(said.strip())}). Run systemctl status docker.")


def held_by(module: AnsibleModule, docker: str, image: str) -> list[str]:
    """Return containers that use an image, or one derived from it, by name."""
    code, out, err = module.run_command(
        [docker, "ps", "--all", "--filter", f"ancestor={image}", "--format", "{{.Names}}"]
    )
    if code != 0:
        silent(module, err)
    return list(out.split())


def remove(module: AnsibleModule, docker: str, image: str, going: Sequence[str] = ()) -> str:
    """Remove an image; return why it stays, empty if it was removed or was gone. Check mode answers as if removed.

    going: containers that check mode only would have removed before.
    """
    users = [name for name in held_by(module, docker, image) if name not in going]
    if users:
        return f"it is used by the container {', '.join(users)}."
    if module.check_mode:
        return ""
    code, _, err = module.run_command([docker, "image", "rm", image])
    if code == 0 or "no such image" in err.lower():
        return ""
    return str(printable(err.strip()))


def labelled(module: AnsibleModule, docker: str) -> tuple[list[str], str]:
    """Return the names of all images with this project's label; or the engine's error."""
    code, out, err = module.run_command(
        [docker, "image", "ls", "--filter", f"label={LABEL}.release", "--format", "{{.Repository}}:{{.Tag}}"]
    )
    return (out.split(), "") if code == 0 else ([], err or out)


def left_over(module: AnsibleModule, docker: str) -> list[str]:
    """Return names that interrupted builds left behind."""
    names, error = labelled(module, docker)
    if error:
        silent(module, error)
    found = unlabelled(names)
    if not found:
        return []
    units = {name: f"gaudi-job@image.{whole.rpartition(':')[2]}.service" for name, whole in found.items()}
    active = active_states(systemctl(module, "show", "--property=Id,ActiveState", *sorted(set(units.values()))))
    return sorted(name for name, unit in units.items() if active.get(unit, "inactive") in ("inactive", "failed"))


def tried_to_remove(module: AnsibleModule, docker: str, superfluous: Sequence[str]) -> dict[str, str]:
    """Remove unneeded and left-over images; return for each why it stays, "" if it was removed."""
    tried = {image: remove(module, docker, image) for image in [*superfluous, *left_over(module, docker)]}
    return {image: why and f"{image} stays: {why}" for image, why in tried.items()}


def remove_bills(folder: Path, images: Mapping[str, Mapping[str, Any]]) -> None:
    """Remove bills of materials of images that are no longer recorded."""
    names = {sbom.file_name(known["id"]) for known in images.values() if "id" in known}
    for file in folder.glob(f"*{sbom.SUFFIX}"):
        if file.name not in names:
            file.unlink()


def unknown_use(plan: Path) -> str:
    """Say that an instance's image is unknown because its plan cannot be read."""
    return f"{plan} is damaged: which image {plan.parent.name} uses is not known."


def read_record(module: AnsibleModule, path: Path) -> tuple[str, image_record.ImageRecord]:
    """Return the record's text and content; fails the module for a damaged one, as it would be unknown what may go."""
    try:
        return read_text(path) or "", read(path, image_record.ImageRecord.parse) or image_record.ImageRecord()
    except Damaged as damage:
        module.fail_json(
            msg=f"{damage}. Nothing is removed. The next run of site.yml writes it again.",
            refused_id="image_record_damaged",
        )
    raise AssertionError("fail_json ends the module")


def uninstall(module: AnsibleModule, docker: str, path: Path) -> dict[str, Any]:
    """Remove this project's images from an engine of others; return what was removed, and what stays and why."""
    if engine_config.is_ours(module):
        return NOTHING
    names, error = labelled(module, docker)
    try:
        images = (read(path, image_record.ImageRecord.parse) or image_record.ImageRecord()).images
        doubt = f"as the engine does not answer: {printable(error.strip())}" if error and images else ""
    except Damaged as damage:
        images, doubt = {}, f"as it is not known which are this project's: {damage}"
    if doubt:
        listing = f"docker image ls --filter label={LABEL}.release lists those with its label"
        return {"changed": False, "removed": [], "stays": [f"images of this project, {doubt} ({listing})"]}
    inspect = [docker, "image", "inspect", "--format", "{{.Id}}"]
    there = {name: module.run_command([*inspect, name])[1].strip() for name in images}
    found = leaving(images, there, names)
    # In check mode the instances are still there.
    going = [f"vllm-{name}" for name in plans.plans_on_node(PLANS)] if module.check_mode else []
    tried = {image: remove(module, docker, image, going) for image in found.ours}
    why = {**{image: reason for image, reason in tried.items() if reason}, **found.stays}
    removed = [image for image, reason in tried.items() if not reason]
    stays = [f"{image}: {reason.rstrip('.')} (docker image rm {image} removes it)" for image, reason in why.items()]
    return {"changed": bool(removed), "removed": removed, "stays": stays}


def main() -> None:
    """Read, decide, remove, record."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, path = module.params, Path(module.params["record"])
    docker = module.get_bin_path("docker")
    if docker is None or params["all"]:
        module.exit_json(**(uninstall(module, docker, path) if docker else NOTHING))
    before, known = read_record(module, path)
    images, history = known.images, known.history
    used = {name: str(plan["image"]) for name, plan in plans.plans_on_node(PLANS).items() if "image" in plan}
    tidy = tidied(images, history, used, params["wanted"], params["references"], params["keep"])
    unread = [unknown_use(file) for file in plans.damaged_plans(PLANS)]
    tried = tried_to_remove(module, docker, () if unread else tidy.superfluous)
    removed = [image for image, why in tried.items() if not why]
    left = {image: known for image, known in images.items() if image not in removed}
    # If a plan cannot be read, the images of its instance are not known.
    now = history if unread else tidy.history
    changed = bool(removed) or {name: list(names) for name, names in now.items()} != history
    after = image_record.render_record(left, now) if changed else before
    if changed and not module.check_mode:
        write_text(path, after, mode=0o644)
        remove_bills(path.parent / sbom.FOLDER, left)
    diff = {"before": before, "after": after, "before_header": str(path), "after_header": str(path)}
    stays = [*(unread if tidy.superfluous else []), *filter(None, tried.values())]
    module.exit_json(changed=changed, removed=removed, stays=stays, diff=diff)


if __name__ == "__main__":
    main()
