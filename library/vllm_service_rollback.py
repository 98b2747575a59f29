#!/usr/bin/python
"""Put an earlier plan of an instance in the place of the one that lies there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_rollback
short_description: Put an earlier plan of a vLLM instance back in its place
version_added: "0.2.0"
author: The gaudi-serving authors
description:
  - Puts all files of a plan that served, as the supervisor has kept them, in the place of those that lie there, and
    gives the instance the cards of that plan. Nothing is restarted. API keys stay as they are.
  - The plan may open what the present one keeps closed, since a person asks for it. What it opens is returned.
  - The plan that lay there counts as taken back. M(vllm_service_changes) refuses it from then on, until it or what it
    starts from changes.
  - Refuses before it changes anything if there is no such plan, if its image or weights are gone, if another instance
    has one of its cards, or if the disk has no room.
  - If an earlier call was cut off before the instance was started, this call finishes that one and chooses no other
    plan.
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  to:
    description: How the digest of the plan begins; empty for the last plan that served before the one that lies there.
    type: str
    default: ""
  by:
    description: Who takes the plan back, for those who read of it later.
    type: str
    required: true
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Refuses and foresees, and writes nothing.
    support: full
  diff_mode:
    description: Says in words what differs, without a diff.
    support: none
seealso:
  - module: vllm_service_info
"""

EXAMPLES = r"""
- name: Go back to the plan before
  vllm_service_rollback:
    instance: qwq-32b
    by: admin.example
  become: true
"""

RETURN = r"""
before:
  description: Digest of the plan that is left.
  returned: success
  type: str
  sample: 3f2a91c07d1e
after:
  description: Digest of the plan that lies there now.
  returned: success
  type: str
  sample: 9be1442a6c10
differs:
  description: In what the second differs from the first, a phrase each.
  returned: success
  type: list
  elements: str
  sample: ["--max-num-seqs 64 -> 32"]
opens:
  description: What the second opens that the first keeps closed, a clause each. Nothing is refused for it.
  returned: success
  type: list
  elements: str
  sample: ["it asks for no key"]
host:
  description: Address on which the instance listens with the second, for M(vllm_service_firewall).
  returned: success
  type: str
  sample: 0.0.0.0
port:
  description: Its port.
  returned: success
  type: int
  sample: 30001
"""

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import containers, instances, startable, weight_folders
from ansible.module_utils.gaudi.node.kept import InstancePaths
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.pages import history
from ansible.module_utils.gaudi.serving import kept as decisions
from ansible.module_utils.gaudi.serving import unserved, written
from ansible.module_utils.gaudi.serving.kept import SHOWN, Back, Failed, StartsFrom, StoredPlan
from ansible.module_utils.gaudi.serving.openness import opened_by

ARGUMENT_SPEC: dict[str, Any] = {
    "instance": {"type": "str", "required": True},
    "to": {"type": "str", "default": ""},
    "by": {"type": "str", "required": True},
}


def now() -> str:
    """Now, in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def starts_from(module: AnsibleModule, files: dict[str, str]) -> StartsFrom:
    """What the plan that lies there starts from."""
    plan = written.parse(files[decisions.PLAN])
    guard = Path(paths.GUARD) / containers.GUARD
    text = guard.read_bytes() if plan.get("guarded") and guard.exists() else None
    start: StartsFrom = containers.starts_from(module, plan, text, weight_folders.of_plan(plan))
    return start


def cut_off(module: AnsibleModule, place: InstancePaths, kept: list[StoredPlan]) -> tuple[Back, StoredPlan] | None:
    """The way back that was begun and whose plan has not been started since, with that plan; None without one."""
    try:
        back = place.back()
    except Damaged:
        return None
    plans = {each.digest: each for each in kept}
    if back is None or back.after not in plans or not back.after.startswith(module.params["to"].lower()):
        return None
    after = plans[back.after]
    how_far = decisions.where(place.disk(), plans.get(back.before), after)
    tried = how_far == "done" and has_been_started(module, place.instance, after)
    return None if how_far == "moot" or tried else (back, after)


def has_been_started(module: AnsibleModule, instance: str, after: StoredPlan) -> bool:
    """Whether the instance's container, or its last one if none runs, was started from this plan on the node."""
    container = containers.look(module, f"vllm-{instance}")
    if container is not None and container.running:
        label = container.plan
    else:
        (here,) = instances.read(module, [instance])
        label = here["state"].get("plan")
    started: bool = containers.lies_there(written.parse(after.files[decisions.PLAN]), label or "")
    return started


def check(module: AnsibleModule, place: InstancePaths, after: StoredPlan) -> None:
    """Raise Refusal if a plan cannot start: its image, weights or cards are gone or not usable, or the disk is full.

    The decision to go back applies to every later start, so all obstacles are found before it.
    """
    plan, name = written.parse(after.files[decisions.PLAN]), f"The plan {after.digest[:SHOWN]}"
    if not containers.image_id(module, str(plan["image"])):
        raise Refusal("image_of_plan_missing", f"{name} cannot start: its image {plan['image']} is not on the node.")
    for folder in weight_folders.of_plan(plan):
        wrong = weight_folders.changed_weights(folder) or weight_folders.missing_weights(folder)
        if wrong:
            raise Refusal("weights_of_plan_missing", f"{name} cannot start: {wrong}")
    if translated := unserved.translated(startable.translated(place.instance, plan)):
        raise Refusal("cards_translated", f"{name} cannot start. {translated}")
    place.reserve(after, now(), check_mode=True)
    startable.check_room(place.instance)


def go_back(module: AnsibleModule, place: InstancePaths) -> tuple[str, StoredPlan]:
    """Put the plan in its place: the digest of the one before, and the plan. Raises Refusal, OSError and ValueError."""
    kept, damaged = place.kept()
    for damage in damaged:
        module.warn(f"{damage}. This plan is passed over.")
    begun = cut_off(module, place, kept)
    if begun is not None:
        back, after = begun
        check(module, place, after)
        if not module.check_mode:
            place.finish(now())
        return back.before, after
    files = place.files()
    if not set(decisions.DETERMINING) <= set(files):
        raise Refusal("no_plan", f"{place.instance} has no plan on this node, or a damaged one. Run site.yml.")
    before = decisions.digest_of(files)
    after = decisions.chosen(kept, before, module.params["to"], place.instance)
    check(module, place, after)
    if not module.check_mode:
        at, by = now(), module.params["by"]
        failed = Failed("it was taken back", at, by, starts_from(module, files))
        place.keep(decisions.fails(kept, files, failed), [after.digest])
        place.go_back(Back(before, after.digest, failed.reason, at, by, after.number))
        place.finish(at)
    return before, after


def listens(after: StoredPlan) -> dict[str, Any]:
    """Return where the instance listens with a plan; on loopback if the plan does not say."""
    listen = {"host": "127.0.0.1", "port": 0, **(written.parse(after.files[decisions.PLAN]).get("listen") or {})}
    return {name: listen[name] for name in ("host", "port")}


def main() -> None:
    """Choose, put in its place, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    place = InstancePaths.of(module.params["instance"])
    files = place.files()
    try:
        before, after = go_back(module, place)
        left = next((each.files for each in place.kept()[0] if each.digest == before), files)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    except (Damaged, OSError, ValueError) as failed:
        module.fail_json(msg=f"The plan of {place.instance} cannot be put back: {failed}")
    (told,) = history.entries([after], left)
    module.exit_json(
        changed=True,
        before=before,
        after=after.digest,
        differs=told["differs"],
        opens=opened_by(after, left),
        **listens(after),
    )


if __name__ == "__main__":
    main()
