"""Who on a node can answer a batch, from what the node reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..base import paths
from ..base.checks import mapping, sequence, switch
from ..base.documents import Damaged
from ..base.reported import MOST_ENTRIES, instance, part, sentence
from ..serving.reported_plans import InstancePlan, plans_in
from ..serving.state import RUNNING

# The name of an instance that was started for one batch, and serves no other.
FOR_A_BATCH = re.compile("batch-[0-9a-f]{16}")


def here(
    report: Mapping[str, object], earlier: Mapping[str, object], model: str, own: str, again: bool
) -> dict[str, Any]:
    """Return which instances serve a model, and what else there is. Raises Refusal for a report of another form.

    report: the parts instances and plans. earlier: what batch_answers says of the batch's folder. model: the name that
    it is served under. own: the instance that is started for this batch where none serves the model. again: whether
    earlier answers do not count.

    instances: those that serve the model, or start to, sorted; only the own one if it is among them, or if every
    request is answered. own: whether that is on the node. mine: whether the node has it, or answers of this batch.
    others: every other instance as a sentence.
    """
    plans, serving, others = plans_in(part(report, "plans")), [], []
    for name, active, said in _instances(part(report, "instances")):
        served = _model(name, plans.get(name))
        # The batch waits for an instance that is starting.
        if served == model and active in RUNNING and (name == own or not FOR_A_BATCH.fullmatch(name)):
            serving.append(name)
        else:
            others.append(sentence(f"{name}, of {served}: {said}"))
    begun, answered = (
        switch(earlier.get(key), f"Whether the batch's folder is {key}") and not again for key in ("there", "answered")
    )
    return {
        "instances": [own] if own in serving or answered else sorted(serving),
        "own": own in plans,
        "mine": own in plans or begun,
        "others": others,
    }


def _instances(found: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yield name, state of the unit, and what its supervisor says, of each instance."""
    for each in sequence(found.get("instances"), "The node's instances", MOST_ENTRIES):
        one = mapping(each, "An instance of the node")
        name, active = instance(one.get("instance")), sentence(one.get("active"))
        state = mapping(one.get("state"), f"The state of {name}")
        yield name, active, sentence(one.get("damaged") or state.get("status") or active)


def _model(name: str, there: InstancePlan | None) -> str:
    """Return the model of an instance's plan, or a defect in brackets, which no model is named like."""
    if there is None or (there.plan is None and not there.damage):
        return "(it has no plan)"
    model = (there.plan or {}).get("served_model_name")
    if isinstance(model, str):
        return model
    return f"({Damaged(f'{paths.INSTANCES}/{name}/plan.json', there.damage or 'it names no model')})"
