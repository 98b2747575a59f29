#!/usr/bin/python
"""Compare a node with a run's desired state again at its end, to detect that another run has overwritten it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: desired_state_check
short_description: Fail unless instances and settings of a node are in the desired state of a run
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Runs last, when each instance has served. While the run went on with the next one, another run may have changed the
    first, or what engine and host are set to.
  - Of each instance, plan, environment and guard on the node, its container, the directories that this sees, its image,
    and the keys that the inventory has for it are in the desired state. Else the module fails and says who wrote
    last, and when.
  - Of settings, the record of the desired state, the files and the values of the running kernel are what the run has
    left.
  - All are looked at, and all that is wrong is said.
options:
  plans:
    description: The plans of the instances, from M(serving_plan).
    type: list
    elements: dict
    default: []
  labels:
    description: The label that the container of each instance has to have, by the name of the instance, from
      M(vllm_service_changes).
    type: dict
    default: {}
  unserved:
    description:
      - Instances of the run that it left as they were, by name, each with a sentence that says why
        (C(refused)) and its id (C(refused_id)).
    type: dict
    default: {}
  keys:
    description: What stands for the inventory's keys of each instance, as the filter C(api_keys_digests) returns it.
    type: dict
    default: {}
  settings:
    description: What the roles that ran have set, as RV(docker_daemon_json#module:desired) has it.
    type: list
    elements: dict
    default: []
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
seealso:
  - module: vllm_service_verify
"""

EXAMPLES = r"""
- name: Compare what runs with the desired state
  desired_state_check:
    plans: "{{ serving.plans }}"
    labels: {chat: "{{ changes.label }}"}
    keys: "{{ vllm_service_api_keys | api_keys_digests(['chat']) }}"
    settings: ["{{ engine.desired }}"]
  become: true
"""

RETURN = r"""
instances:
  description: The instances that are in the desired state.
  returned: success
  type: list
  elements: str
  sample: [chat]
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import containers
from ansible.module_utils.gaudi.node.documents import read
from ansible.module_utils.gaudi.node.host import desired_record
from ansible.module_utils.gaudi.node.host.kernel_settings import running_settings
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.serving import keys

ARGUMENT_SPEC: dict[str, Any] = {
    "plans": {"type": "list", "elements": "dict", "default": []},
    "labels": {"type": "dict", "default": {}},
    "unserved": {"type": "dict", "default": {}},
    # A digest of digests is no secret, but it is kept out of the output as well.
    "keys": {"type": "dict", "default": {}, "no_log": True},
    "settings": {"type": "list", "elements": "dict", "default": []},
}


def check_keys(instance: str, digest: str) -> None:
    """Raise Refusal unless the inventory's keys on the node have this digest; no key is named."""
    file = Path(paths.INSTANCES) / instance / paths.KEYS_FILE
    try:
        held = read(file, keys.read)
    except Damaged:
        held = None
    if held is None or keys.digest_of_inventory(held) != digest:
        raise containers.overwritten(
            f"The keys that open {instance} are not those of this run's inventory", "file of keys", file
        )


def wrong(module: AnsibleModule, plan: dict[str, Any]) -> list[Refusal]:
    """Return differences between an instance and its desired state."""
    found, instance = [], plan["instance"]
    try:
        containers.check_container(module, plan, module.params["labels"][instance])
    except Refusal as refusal:
        found.append(refusal)
    if plan["guarded"]:
        try:
            check_keys(instance, module.params["keys"][instance])
        except Refusal as refusal:
            found.append(refusal)
    return found


def wrong_settings(desired: dict[str, Any]) -> list[Refusal]:
    """Return differences between a layer's settings and their desired state."""
    try:
        gone = desired_record.gone(desired, partial(running_settings, desired_record.PROC / "sys"))
    except Refusal as refusal:
        return [refusal]
    return [containers.overwritten(gone[0], "record of them", gone[1])] if gone else []


def left_as_it_was(unserved: Mapping[str, Mapping[str, str]]) -> Refusal:
    """Return one refusal with all reasons why instances are not in the desired state, under the first one's id."""
    why = [Refusal.from_keys(each) for each in unserved.values()]
    said = "\n".join(dict.fromkeys(each.message_with_id for each in why))
    return Refusal(
        why[0].id, f"{said}\nThis run left {', '.join(unserved)} as before. Correct this and run the same again."
    )


def main() -> None:
    """Look at each, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    plans, unserved = module.params["plans"], module.params["unserved"]
    found = [refusal for desired in module.params["settings"] for refusal in wrong_settings(desired)]
    found += [refusal for plan in plans for refusal in wrong(module, plan)]
    if unserved:
        found.append(left_as_it_was(unserved))
    if found:
        module.fail_json(msg=" ".join(each.message_with_id for each in found), refused_id=found[0].id)
    module.exit_json(changed=False, instances=[plan["instance"] for plan in plans])


if __name__ == "__main__":
    main()
