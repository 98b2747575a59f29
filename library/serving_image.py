#!/usr/bin/python
"""Ansible module: a serving image on the node: pulled, pinned, looked into, recorded."""

from __future__ import annotations

DOCUMENTATION = r"""
module: serving_image
short_description: Have a serving image on the node, and know what is in it
description:
  - Pulls an image that the node's Docker engine does not have, compares its digest with the pinned one, lists the
    Python packages in it once, and records reference, digest and versions in a file.
  - What is in it, as a container of it says, is written as a bill of materials (CycloneDX) into a file of its own.
  - An image that is there, has the right digest and was looked into before is left alone, without asking the registry.
author: gaudi-serving
extends_documentation_fragment: attributes.node
attributes:
  check_mode: {support: full, description: Says whether it would pull; what an absent image holds cannot be foreseen.}
  diff_mode: {support: full, description: The record before and after.}
options:
  image:
    description: Reference of the image, with a tag.
    type: str
    required: true
  digest:
    description: Digest the image must have, as C(sha256:...). Empty accepts any and records it.
    type: str
    default: ""
  built:
    description:
      - Whether the site builds the image. One that is absent then is only pulled where O(pushed) is true, and its name
        begins with a registry.
    type: bool
    default: false
  pushed:
    description: Whether the node that builds an image pushes it to a registry, which other nodes pull it from.
    type: bool
    default: false
  release:
    description: Name of the release, a file of the catalogue, which RV(unpinned) speaks of.
    type: str
    default: ""
  packages:
    description: Python packages the image must hold.
    type: list
    elements: str
    default: [habana-torch-plugin, vllm]
  instances:
    description:
      - The instances that run in it, by name, each with C(parts) that it needs and C(arguments) of its server. They are
        held against the image before anything is started in it. Without instances only O(packages) is asked for.
    type: dict
    default: {}
  others:
    description:
      - Whether the node has instances in other images. Where it has none, and the image can serve none of O(instances),
        the task fails; otherwise RV(unserved) names those that it cannot serve.
    type: bool
    default: false
  versions:
    description: Distributions that the image must hold, by name, with their version; empty for any.
    type: dict
    default: {}
  wanted:
    description: The image of each instance of this run, by the instance's name, for RV(untidy).
    type: dict
    default: {}
  references:
    description: All images that are asked for, for RV(untidy).
    type: list
    elements: str
    default: []
  keep:
    description: How many images of an instance stay beside the one that it uses, for RV(untidy).
    type: int
    default: 1
  docker_config:
    description: Directory with the engine client's config.json that holds the registry's credentials. Empty uses none.
    type: path
  timeout:
    description: Longest time the pull may take, in seconds.
    type: int
    default: 3600
  record:
    description: File the images of the node are recorded in. Bills of materials lie in the directory C(sbom) beside it.
    type: path
    default: /var/lib/gaudi-serving/images.json
"""

EXAMPLES = r"""
- name: Have the serving image
  serving_image:
    image: vault.habana.ai/gaudi-docker/1.22.2/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:1.22.2-32
"""

RETURN = r"""
current:
  description: Whether image and record were as they should be before.
  returned: always
  type: bool
  sample: false
foreseen:
  description: Whether there was an engine to ask. Without one, check mode cannot tell what would change.
  returned: always
  type: bool
  sample: true
pulled:
  description: Whether the image came from the registry now.
  returned: always
  type: bool
  sample: true
untidy:
  description: >-
    Whether M(serving_image_prune) has something to remember or to remove, once the instances of this run have their
    images.
  returned: always
  type: bool
  sample: false
unpinned:
  description: What to write down so that the image is pinned from now on, a line each; empty where it is.
  returned: always
  type: list
  elements: str
  sample: ["... is not pinned. To have this image on every node, write into the inventory:", "..."]
image:
  description: What is recorded of the image; empty in check mode when it is not there yet.
  returned: always
  type: dict
  sample: {"digest": "sha256:...", "id": "sha256:...", "packages": {"vllm": "0.9.0"}, "python": "3.10.12"}
unserved:
  description: >-
    The instances that the image cannot serve, by name, each with a sentence that says why, and its id. RV(current) is
    false then.
  returned: always
  type: dict
  sample: {"sound": {"refused": "sound: ... lacks audio (...). ...", "refused_id": "image_lacks_part"}}
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: digest_differs
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.certificates import registry_advice
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.engine import image_record
from ansible.module_utils.gaudi.image import inside, sbom
from ansible.module_utils.gaudi.image.labels import LABEL
from ansible.module_utils.gaudi.image.tidying import tidied
from ansible.module_utils.gaudi.node import containers, inspection, long_work
from ansible.module_utils.gaudi.node import weight_folders as plans
from ansible.module_utils.gaudi.node.documents import make_room, read, read_text
from ansible.module_utils.gaudi.node.files import write_text
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.preflight import pins

ARGUMENT_SPEC: dict[str, Any] = {
    "image": {"type": "str", "required": True},
    "digest": {"type": "str", "default": ""},
    "built": {"type": "bool", "default": False},
    "pushed": {"type": "bool", "default": False},
    "release": {"type": "str", "default": ""},
    "packages": {"type": "list", "elements": "str", "default": ["habana-torch-plugin", "vllm"]},
    "instances": {"type": "dict", "default": {}},
    "others": {"type": "bool", "default": False},
    "versions": {"type": "dict", "default": {}},
    "wanted": {"type": "dict", "default": {}},
    "references": {"type": "list", "elements": "str", "default": []},
    "keep": {"type": "int", "default": 1},
    "docker_config": {"type": "path"},
    "timeout": {"type": "int", "default": 3600},
    "record": {"type": "path", "default": "/var/lib/gaudi-serving/images.json"},
}

PLANS = Path(paths.INSTANCES)
PROCESSORS = Path("/proc/cpuinfo")

# One that looks may run beside another run's.
LOOKING = f"gaudi-image-look-{os.getpid()}"
# The engine's own runtime, if none was added.
ENGINES_OWN = "runc"
# Characters at the end of a failed inspection's output, which contain the reason.
LAST = 2000
# Exit status of timeout(1) when it stopped the program.
_TIMED_OUT = 124
# Number of checked requests to remember: those of the plans that an instance keeps, and of some that failed.
MOST_CHECKED = 10


def inspect(module: AnsibleModule, docker: str, image: str) -> dict[str, Any]:
    """Return the engine's description of an image; {} without the image."""
    code, out, err = module.run_command([docker, "image", "inspect", image])
    if code != 0 and "no such image" not in err.lower():
        module.fail_json(
            msg=f"The Docker engine does not answer ({printable(err.strip())}). Run systemctl status docker."
        )
    known: list[dict[str, Any]] = json.loads(out)
    return known[0] if known else {}


def pull(module: AnsibleModule, docker: str, image: str) -> None:
    """Pull an image within the time allowed; end the module with what to do when that fails.

    A pinned image is pulled by its digest, and named then: an image of another digest never has its name.
    """
    limit, config, digest = (module.params[name] for name in ("timeout", "docker_config", "digest"))
    client = [docker, "--config", config] if config else [docker]
    pinned = image_record.pinned(image, digest)
    code, out, err = module.run_command(["timeout", str(limit), *client, "pull", pinned])
    if code == _TIMED_OUT:
        module.fail_json(
            msg=f"{image} was not pulled within {limit} seconds. What has arrived is kept: run again, "
            "or raise serving_image_pull_timeout.",
            stdout=out,
        )
    if code == 0 and pinned != image:
        module.run_command([docker, "image", "tag", pinned, image], check_rc=True)
    if code != 0:
        todo = registry_advice(err or out, image, os.path.isfile) or (
            "Check that the node reaches the registry (gaudi_image_registry, proxies of container_runtime), that the "
            "image exists there, and the credentials if it asks for any."
        )
        module.fail_json(
            msg=f"{pinned} could not be pulled: {printable((err or out).strip())}. {todo}",
            stdout=out,
            stderr=err,
        )


def packages_in(module: AnsibleModule, image: str) -> dict[str, str]:
    """List the Python packages in an image that is not trusted yet: its container has no card, network or rights."""
    command = ["--runtime", ENGINES_OWN, *inspection.ISOLATION, "--entrypoint", "python3", image, "-m", "pip", "list"]
    looked = containers.run_once(
        module, LOOKING, [*command, "--format", "json", "--disable-pip-version-check"], inspection.SECONDS
    )
    if looked.status != 0:
        module.fail_json(
            msg=f"pip list in {image} {looked.how}, so it cannot be told whether it can serve: "
            f"{printable((looked.err or looked.out).strip()[-LAST:])}"
        )
    packages: dict[str, str] = image_record.parse_packages(looked.out)
    return packages


def runtime(module: AnsibleModule, docker: str) -> str:
    """Return the instances' runtime if the engine knows it and its program exists, else the engine's own.

    A build host may have no cards, and a new node gets its images before its driver, which installs the program.
    """
    code, out, _err = module.run_command([docker, "info", "--format", "{{json .Runtimes}}"])
    habana = (json.loads(out) or {}).get("habana") if code == 0 else None
    return "habana" if habana and Path(habana["path"]).exists() else ENGINES_OWN


def look_inside(module: AnsibleModule, image: str, under: str) -> inside.ImageFindings:
    """Run the inspection program, without network and without starting a server. under: the runtime."""
    vectors = {name: instance["arguments"] for name, instance in module.params["instances"].items()}
    command = ["--interactive", "--runtime", under, *inspection.ISOLATION, *inspection.ENVIRONMENT]
    command += ["--entrypoint", "python3", image, "-c", inside.PROGRAM]
    looked = containers.run_once(module, LOOKING, command, inspection.SECONDS, inside.question(vectors))
    ended = "" if looked.status == 0 else f"\n(it {looked.how})"
    found: inside.ImageFindings = inside.answer(image, (looked.out or looked.err) + ended)
    return found


def hold_against(
    image: str, found: inside.ImageFindings, params: dict[str, Any], built: dict[str, str]
) -> dict[str, Refusal]:
    """Return why the image cannot serve instances, by instance.

    built: the labels that a build here left. Raises Refusal for an image of another release, and if the image can serve
    no instance of the node.
    """
    wrong = inside.wrong_versions(image, found, params["versions"])
    if wrong:
        raise Refusal(
            "image_of_other_release",
            f"{' '.join(wrong)} Image and gaudi_release are of different releases: correct gaudi_release, or "
            "serving_image_ref or serving_image_base.",
        )
    needs = {name: instance["parts"] for name, instance in params["instances"].items()}
    cpuinfo = PROCESSORS.read_text(encoding="utf-8", errors="replace")
    refused: dict[str, Refusal] = inside.refusals(image, found, needs, built.get(f"{LABEL}.parts", "").split(), cpuinfo)
    if refused and refused.keys() >= needs.keys() and not params["others"]:
        raise inside.together(refused)
    return refused


def bill_of(module: AnsibleModule, image_id: str) -> Path:
    """Where the bill of materials of an image is."""
    return Path(module.params["record"]).parent / sbom.FOLDER / sbom.file_name(image_id)


def is_bill(file: Path) -> bool:
    """Whether a valid bill of materials exists; a damaged one is written again."""
    try:
        return read(file, sbom.contents) is not None
    except Damaged:
        return False


def looked_at(
    module: AnsibleModule, docker: str, image: str, known: dict[str, Any], now: dict[str, Any]
) -> tuple[dict[str, Any], str | None, dict[str, Refusal]]:
    """The result of inspecting the image, its bill of materials (None if already on the node), and refusals.

    No image is asked the same question twice. known: what is on record; now: id and labels of the image.
    """
    params = module.params
    asked = hashlib.sha256(json.dumps([params["instances"], params["versions"]], sort_keys=True).encode()).hexdigest()
    same = known.get("id") == now["id"]
    # A list, so that going back to an earlier plan needs no new inspection. Earlier releases recorded a single text.
    # Results under the engine's own runtime do not count once the driver has brought that of instances.
    early = same and known.get("runtime") == ENGINES_OWN and runtime(module, docker) != ENGINES_OWN
    checked = known.get("checked", []) if same and not early else []
    checked = [checked] if isinstance(checked, str) else checked
    settled = same and (not params["instances"] or asked in checked)
    # An earlier release of this project did not record the Python.
    kept: dict[str, Any] = (
        {key: known[key] for key in ("checked", "parts", "python", "runtime") if key in known} if settled else {}
    )
    billed = is_bill(bill_of(module, now["id"]))
    if settled and (billed or module.check_mode):
        # A missing bill alone does not make check mode start a container.
        return kept, None if billed else "", {}
    under = runtime(module, docker)
    found = look_inside(module, image, under)
    # A build host has no plan, and other nodes use what it built.
    held = bool(params["instances"] or now.get("built"))
    refused = hold_against(image, found, params, now.get("built", {})) if held else {}
    if params["instances"]:
        # A refused image is checked again next time.
        passed = checked if refused else [*checked, asked][-MOST_CHECKED:]
        kept = {"checked": passed, "parts": list(found.parts), "python": found.python}
        if under == ENGINES_OWN:
            kept["runtime"] = under
    bill = None if billed else sbom.rendered(sbom.bill(image, now["id"], found, now.get("built", {})))
    return kept, bill, refused


def read_record(module: AnsibleModule, path: Path) -> tuple[str, image_record.ImageRecord]:
    """Return the record's text and content. A damaged one counts as empty, with a warning: images show it all."""
    try:
        text = read_text(path) or ""
        return text, read(path, image_record.ImageRecord.parse) or image_record.ImageRecord()
    except Damaged as damage:
        module.warn(f"{damage}. {image_record.REWRITTEN}")
        return "", image_record.ImageRecord()


def write_record(module: AnsibleModule, path: str, text: str) -> None:
    """Replace the record in one step."""
    Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    make_room(Path(path))
    # Beside its target: the step that puts it in place is then a rename.
    handle, name = tempfile.mkstemp(dir=str(Path(path).parent))
    module.add_cleanup_file(name)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    module.atomic_move(name, path)
    module.set_mode_if_different(path, "0644", False)


def untidy(params: dict[str, Any], images: dict[str, Any], history: dict[str, list[str]]) -> bool:
    """Whether there will be images to remove once the instances of this run have their new images."""
    if not params["references"]:
        return False
    on_node = {name: str(plan["image"]) for name, plan in plans.plans_on_node(PLANS).items() if "image" in plan}
    used = {**on_node, **params["wanted"]}
    tidy = tidied(images, history, used, params["wanted"], params["references"], params["keep"])
    return bool(tidy.differs(history))


def at_hand(module: AnsibleModule, docker: str, absent: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the engine's description of the image, and whether it was pulled for that.

    absent: the result in check mode if the image is missing.
    """
    image = module.params["image"]
    inspected = inspect(module, docker, image)
    if inspected:
        return inspected, False
    if module.check_mode:
        module.exit_json(**absent)
    if module.params["built"]:
        image_record.check_pulled(image, pushed=module.params["pushed"])
    pull(module, docker, image)
    return inspect(module, docker, image), True


def made_here(image: str, image_id: str) -> bool:
    """Whether the result of a job on this node (a build, a copy, a loaded file) names this image."""
    results = (long_work.state(folder).get("result", {}) for folder in long_work.JOBS.glob("image.*"))
    return any((result.get("reference"), result.get("id")) == (image, image_id) for result in results)


def described(
    module: AnsibleModule, docker: str, inspected: dict[str, Any], known: dict[str, Any]
) -> tuple[dict[str, Any], str | None, dict[str, Refusal]]:
    """The record of the image, its bill of materials (None if already on the node), and instances it cannot serve.

    known: the record so far.
    """
    params, image = module.params, module.params["image"]
    built = image_record.built_labels(inspected)
    found = {
        "id": inspected["Id"],
        "digest": image_record.digest_of(inspected, image),
        **({"built": built} if built else {}),
    }
    image_record.check_digest(image, found["digest"], params["digest"])
    moved = image_record.moved(image, known, found)
    # Results of jobs have ids, not digests.
    known_here = bool(moved) and known.get("digest") is None and made_here(image, found["id"])
    if moved and not known_here and not module.check_mode:
        module.warn(moved)
    if known.get("id") == found["id"] and known.get("packages", {}).keys() == set(params["packages"]):
        found["packages"] = known["packages"]
    else:
        found["packages"] = image_record.check_packages(image, packages_in(module, image), params["packages"])
    said, bill, refused = looked_at(module, docker, image, known, found)
    return {**found, **said}, bill, refused


def keep(module: AnsibleModule, image_id: str, bill: str | None, record: str | None) -> None:
    """Write the bill of materials and the record; None leaves one unchanged."""
    if bill is not None:
        bill_of(module, image_id).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_text(bill_of(module, image_id), bill, mode=0o644)
    if record is not None:
        write_record(module, module.params["record"], record)


def unpinned(params: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return lines that would pin the image; one that never was in a registry needs none.

    Its labels say nothing of that: any image may have those of a build.
    """
    if params["digest"] or (params["built"] and not params["pushed"]):
        return []
    lines: list[str] = pins.digest_lines(params["image"], found["digest"], params["release"], built=params["built"])
    return lines


def main() -> None:
    """Look, pull what is missing, look into what is new, record."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, image, path = module.params, module.params["image"], module.params["record"]
    docker = module.get_bin_path("docker", required=not module.check_mode)
    absent = {"changed": True, "current": False, "pulled": True, "unpinned": [], "image": {}, "unserved": {}}
    if docker is None:
        module.exit_json(**absent, foreseen=False, untidy=False)
    try:
        before, known = read_record(module, Path(path))
        images, history = known.images, known.history
        absent.update(foreseen=True, untidy=untidy(params, images, history))
        inspected, pulled = at_hand(module, docker, absent)
        found, bill, refused = described(module, docker, inspected, images.get(image, {}))
        after = image_record.render_record({**images, image: found}, history)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    changed = pulled or after != before or bill is not None
    if not module.check_mode:
        keep(module, found["id"], bill, None if after == before else after)
    diff = {"before": before, "after": after, "before_header": path, "after_header": path}
    told = {"unpinned": unpinned(params, found), "untidy": untidy(params, {**images, image: found}, history)}
    told.update(unserved={name: each.as_keys() for name, each in refused.items()}, current=not changed and not refused)
    module.exit_json(changed=changed, foreseen=True, pulled=pulled, image=found, diff=diff, **told)


if __name__ == "__main__":
    main()
