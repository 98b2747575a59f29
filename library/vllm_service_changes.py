#!/usr/bin/python
"""Compare an instance with its plan before it is written: what it lacks, what differs, and whether it runs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_changes
short_description: Compare an instance on the node with its plan
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Compares the plan, the environment and the unit that are on the node with those that are to be written, and says in
    words what differs. Run it before they are written.
  - Fails where the weights are not on the node, with what to do about it; and where an instance that has to be started
    or restarted has incomplete weights, or no room for its plan and its state.
  - Refuses a plan that failed on the node, or that somebody took back, as long as nothing it starts from has changed
    (its image, its weights, the guard, the driver).
  - Warns if the plan opens what the plan on the node keeps closed, such as a server that asks for no key any more.
  - Says whether systemd has the instance as it is to be, so that a settled one is left alone.
  - The value of a variable or an option whose name looks like a secret's is never returned.
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  plan:
    description: The plan that is to be written.
    type: dict
    required: true
  plan_text:
    description: The text of plan.json that is to be written.
    type: str
    required: true
  environment_text:
    description: The text of the environment file that is to be written.
    type: str
    required: true
  guard_text:
    description: The text of the guard that is to be written.
    type: str
    required: true
  unit:
    description: The text of the unit that is to be written.
    type: str
    required: true
  weights:
    description: Directory the weights are in.
    type: path
    required: true
  weights_coming:
    description: Whether weights that are missing in check mode will be there when it counts.
    type: bool
    default: false
  retry:
    description: Whether a plan that failed on the node is tried again.
    type: bool
    default: false
  coming_driver:
    description:
      - Version of the driver's packages that are installed before the plan starts. A plan that failed is held against
        it, without its build, and not against the driver that is loaded.
    type: str
    default: ""
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
seealso:
  - module: vllm_service_info
"""

EXAMPLES = r"""
- name: Ask what differs
  vllm_service_changes:
    instance: qwq-32b
    plan: "{{ plan | instance_plan }}"
    plan_text: "{{ plan | instance_plan_text }}"
    environment_text: "{{ plan | instance_environment }}"
    guard_text: "{{ lookup('ansible.builtin.file', 'guard/gaudi_guard.py', rstrip=false) }}"
    unit: "{{ plan | instance_unit(unit_options) }}"
    weights: "{{ plan.requires.weights_path }}"
  register: changes
  become: true
"""

RETURN = r"""
running:
  description: Whether the unit runs or is on its way there, so that what differs restarts it.
  returned: always
  type: bool
  sample: true
outdated:
  description: >-
    Whether the instance runs, or is on its way, with something else than is to be written, by the label of its
    container or by the plan that its supervisor has read; or with what the node has no more, such as a directory that
    was replaced, or another image of the same name. It has to be restarted, whoever wrote what is on the disk.
  returned: always
  type: bool
  sample: false
left_over:
  description: >-
    Whether the unit is down, and its container goes on with what the node has no more, as in RV(outdated). The next
    start would take it over, so it has to be removed first.
  returned: always
  type: bool
  sample: false
label:
  description: >-
    The label that its container has to have after the run, for M(vllm_service_verify). That of one that stays, also
    where release 0.1 gave it.
  returned: always
  type: str
  sample: 0d599f0ec05c3bda8c3b8a68c32a1b47
current:
  description: >-
    Whether the supervisor runs with the program, the library and the unit on the disk; true where none runs. One that
    does not hands over when it is reloaded, which costs no warm-up.
  returned: always
  type: bool
  sample: true
reasons:
  description: >-
    What differs, is missing or is damaged, a phrase each. For an instance whose unit is down, only what its container
    has outlived.
  returned: always
  type: list
  elements: str
  sample: ["--max-num-seqs 32 -> 64", "VLLM_GRAPH_RESERVED_MEM 0.1 added"]
opens:
  description: >-
    What the plan opens that the plan on the node keeps closed, a clause each; the module warns of it.
  returned: always
  type: list
  elements: str
  sample: ["it asks for no key"]
firewall:
  description: Whether there is a record of rules of ours in the node's firewall, which M(vllm_service_firewall) writes.
  type: bool
  returned: always
  sample: false
installed:
  description: Whether the unit is on the node.
  type: bool
  returned: always
  sample: true
way_back_over:
  description: >-
    Whether the instance went back from one plan to another, and is to have another one than that now: then the way back
    counts no longer.
  returned: always
  type: bool
  sample: false
settled:
  description: >-
    Whether unit and target are active, start at boot, and are known to systemd as they lie on the disk, and nobody has
    started the container again, whose warm-up is followed as any other; and no keys lie there as release 0.1 kept them.
  type: bool
  returned: always
  sample: true
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import containers, instances, startable, states, weight_folders
from ansible.module_utils.gaudi.node.documents import read
from ansible.module_utils.gaudi.node.kept import InstancePaths
from ansible.module_utils.gaudi.node.module import NodeModule, systemctl
from ansible.module_utils.gaudi.pages import difference as plan_diff
from ansible.module_utils.gaudi.serving import kept as decisions
from ansible.module_utils.gaudi.serving import openness, written
from ansible.module_utils.gaudi.serving.made_of import MadeOf
from ansible.module_utils.gaudi.serving.state import SILENT

ARGUMENT_SPEC: dict[str, Any] = {
    "instance": {"type": "str", "required": True},
    "plan": {"type": "dict", "required": True},
    "plan_text": {"type": "str", "required": True},
    "environment_text": {"type": "str", "required": True},
    "guard_text": {"type": "str", "required": True},
    "unit": {"type": "str", "required": True},
    "weights": {"type": "path", "required": True},
    "weights_coming": {"type": "bool", "default": False},
    "retry": {"type": "bool", "default": False},
    "coming_driver": {"type": "str", "default": ""},
}

PLANS = Path(paths.INSTANCES)
UNITS = Path("/etc/systemd/system")
TARGET = "gaudi-serving.target"
STOPPED = ("inactive", "failed", "unknown")
PROPERTIES = ("ActiveState", "UnitFileState", "NeedDaemonReload")
# Where release 0.1 kept the keys themselves.
FORMER_KEYS = "keys"
SETTLED = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}


def reasons(folder: Path, unit: Path, wanted: dict[str, Any]) -> list[str]:
    """Which files of an instance differ from the wanted ones, are missing, or are damaged."""
    files = (folder / "plan.json", folder / "environment", unit)
    found_wrong = []
    contents: list[Any] = []
    parsers: tuple[Callable[[str], Any], ...] = (written.parse, str, str)
    for file, parse in zip(files, parsers):
        try:
            contents.append(read(file, parse))
        except Damaged:
            found_wrong.append(f"{file} is damaged")
        else:
            if contents[-1] is None:
                found_wrong.append(f"{file} is missing")
    if found_wrong:
        return found_wrong
    plan, environment, text = contents
    found: list[str] = plan_diff.differences(plan, wanted["plan"], plan_diff.environment_of(environment))
    found += plan_diff.unit_differences(text, wanted["unit"])
    # A plan of 0.1 does not say it.
    guarded = plan.get("guarded", (folder / "keys/api_keys").exists())
    if guarded != wanted["plan"]["guarded"]:
        found.append("it asks for API keys" if wanted["plan"]["guarded"] else "it asks for no API key any more")
    return found


def opens(module: AnsibleModule) -> list[str]:
    """Return what the new plan opens that the plan on the node keeps closed, and warn of it.

    A plan that is missing or damaged keeps nothing closed.
    """
    instance = module.params["instance"]
    try:
        present = read(PLANS / instance / "plan.json", written.parse)
    except Damaged:
        return []
    found: list[str] = [] if present is None else openness.opened(module.params["plan"], present)
    if found:
        what = "; ".join(found)
        module.warn(f"{instance} is more open with the plan of this run than with the one on the node: {what}.")
    return found


def weights_of(params: Mapping[str, Any]) -> list[Path]:
    """The folders of weights that the plan reads."""
    return [Path(folder) for folder in (params["weights"], *params["plan"]["requires"].get("weights_beside", []))]


def check_past(module: AnsibleModule, wanted: MadeOf) -> bool:
    """Whether writing this plan ends an earlier way back; a damaged way back has ended in any case.

    Ends the module where this plan failed here before, and would start from the same again.
    """
    instance = module.params["instance"]
    place = InstancePaths(instance, states.STATES / instance, PLANS, UNITS)
    digest = decisions.digest_of(
        {
            decisions.PLAN: module.params["plan_text"],
            decisions.ENVIRONMENT: module.params["environment_text"],
        }
    )
    kept = next((each for each in place.kept()[0] if each.digest == digest), None)
    if kept is not None and kept.failed is not None and not module.params["retry"]:
        refusal = decisions.refused(kept, starts_from(module, wanted), instance, module.params["coming_driver"])
        if refusal:
            module.fail_json(msg=str(refusal), refused_id=refusal.id)
    try:
        back = place.back()
    except Damaged:
        return True
    return back is not None and back.after != digest


def starts_from(module: AnsibleModule, wanted: MadeOf) -> decisions.StartsFrom:
    """What the new plan would start from now."""
    start: decisions.StartsFrom = containers.starts_from(
        module, module.params["plan"], wanted.guard, weights_of(module.params)
    )
    return start


def check_complete(module: AnsibleModule) -> None:
    """End the module if weights are incomplete or files have no room, before the running instance is stopped."""
    check_room(module)
    if module.check_mode and module.params["weights_coming"]:
        return
    for folder in weights_of(module.params):
        wrong = weight_folders.changed_weights(folder) or weight_folders.missing_weights(folder)
        if wrong:
            module.fail_json(
                msg=f"{module.params['instance']} was left as it is, because its weights are not: {wrong}",
                refused_id="weights_incomplete",
            )


def check_weights(module: AnsibleModule) -> None:
    """End the module if the weights are missing and this run does not fetch them."""
    folder = module.params["weights"]
    if (Path(folder) / "config.json").exists() or (module.check_mode and module.params["weights_coming"]):
        return
    module.fail_json(
        msg=f"{module.params['instance']} needs weights in {folder} of this node, and there is no config.json. "
        "Put the model there, or set gaudi_weights_root to where it is; nothing was changed.",
        refused_id="weights_missing",
    )


def check_room(module: AnsibleModule) -> None:
    """End the module if a start has no room for its files: no state would say why the instance does not come back."""
    try:
        startable.check_room(module.params["instance"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)


def ask_systemd(module: AnsibleModule, *units: str) -> list[dict[str, str]]:
    """What systemd says of each unit. One that is not there yet has its properties as well."""
    shown = systemctl(module, "show", *units, f"--property={','.join(PROPERTIES)}")
    return [dict(line.split("=", 1) for line in block.splitlines()) for block in shown.strip().split("\n\n")]


def made_of(params: dict[str, Any]) -> MadeOf:
    """What the instance's container is to be made of."""
    plan, environment, guard = (params[name].encode() for name in ("plan_text", "environment_text", "guard_text"))
    return MadeOf(plan, environment, guard if params["plan"]["guarded"] else None)


def compared(module: AnsibleModule, wanted: MadeOf, state: Mapping[str, Any]) -> tuple[str | None, bool, list[str]]:
    """The label of what runs or starts, whether it is the desired one, and what the container has outlived since."""
    container = containers.look(module, f"vllm-{module.params['instance']}")
    # Before there is a container, its supervisor has read a plan already.
    if container is None or not container.running:
        label = state.get("plan")
        return label, wanted.is_on(label), []
    if not wanted.is_on(container.plan):
        return container.plan, False, []
    return container.plan, True, containers.outlived(module, container, module.params["plan"])


def is_settled(units: list[dict[str, str]], state: Mapping[str, Any], folder: Path) -> bool:
    """Whether the units are as wanted, the server answers, and nothing of release 0.1 is left."""
    silent = state.get("phase") in SILENT
    return all(unit == SETTLED for unit in units) and not silent and not (folder / FORMER_KEYS).exists()


def there(module: AnsibleModule, unit: Path, folder: Path) -> dict[str, Any]:
    """Return which files of the instance are on the node, and what the new plan opens beside the one there."""
    return {"installed": unit.exists(), "firewall": (folder / paths.FIREWALL).exists(), "opens": opens(module)}


def main() -> None:
    """Read, compare, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    check_weights(module)
    instance, wanted = module.params["instance"], made_of(module.params)
    over = check_past(module, wanted)
    unit = UNITS / f"vllm-{instance}.service"
    units, (here,) = ask_systemd(module, unit.name, TARGET), instances.read(module, [instance])
    running = units[0]["ActiveState"] not in STOPPED
    label, made_so, outlived = compared(module, wanted, here["state"])
    outdated = running and (not made_so or bool(outlived))
    if outdated or not running:
        check_complete(module)
    module.exit_json(
        changed=False,
        running=running,
        outdated=outdated,
        left_over=not running and bool(outlived),
        label=label if running and not outdated else wanted.digest,
        way_back_over=over,
        current=not running or bool(here["current"]),
        settled=is_settled(units, here["state"], PLANS / instance),
        **there(module, unit, PLANS / instance),
        reasons=[*(reasons(PLANS / instance, unit, module.params) if running else []), *outlived],
    )


if __name__ == "__main__":
    main()
