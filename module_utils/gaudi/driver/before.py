"""What driver and instances of a node are before the driver is replaced, as the record on the node has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..base import documents, paths
from ..base.refusal import Refusal
from ..base.reported import part
from ..serving.reported_plans import plans_in
from .packages import NEWER, OLDER, RIGHT

FORM = {"driver": dict, "plans": {str: dict}}
# The role vllm_service keeps these out of the plan on the node: reasons and addresses for people, and
# what is known of its answers.
UNWRITTEN: dict[str, Any] = {"ask": {}, "explain": [], "warnings": [], "paths": []}


def before(report: Mapping[str, object], present: Mapping[str, Any], state: str) -> dict[str, Any]:
    """Return the driver from before, and the plans of the instances that ran.

    report: the parts driver_before and plans. present, state: of the driver that is there, as gaudi_driver_info returns
    them; one that is not completely installed cannot be brought back. Raises Refusal for a damaged record.
    """
    record = _record(part(report, "driver_before"))
    # An earlier run was interrupted, after it wrote this record or during the change.
    if record is not None and (state not in (OLDER, NEWER, RIGHT) or record["driver"] == present):
        return record
    there = plans_in(part(report, "plans"))
    plans = {name: {**UNWRITTEN, **each.plan} for name, each in there.items() if each.up and each.plan is not None}
    return {"driver": dict(present), "plans": plans}


def as_text(record: Mapping[str, Any]) -> str:
    """Return the text of the record."""
    return json.dumps(record, indent=1, sort_keys=True) + "\n"


def _record(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what an earlier run wrote down; None where none did."""
    try:
        if "damage" in found:
            raise ValueError(found["damage"])
        return None if found.get("text") is None else documents.parse(str(found["text"]), FORM)
    except ValueError as why:
        damage = documents.Damaged(paths.DRIVER_BEFORE, str(why))
        raise Refusal("record_damaged", f"{damage}. Move it away, then run this again.") from why
