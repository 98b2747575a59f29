"""Print refusals that documents hold, and refuse plans that cannot be written to a node."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.refusal import Refusal, with_id
from ansible.module_utils.gaudi.serving.plan_form import check_plan


def refusals(documents: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the sentence of each refusal with its id, each once; a document that was not refused has none."""
    sentences = (
        with_id(str(each["refused"]), str(each.get("refused_id", ""))) for each in documents if "refused" in each
    )
    return list(dict.fromkeys(sentences))


def plan_refused(plan: Mapping[str, Any], api_keys: object) -> str:
    """Return why a plan cannot be written to a node, with its id; empty where it can."""
    try:
        check_plan(plan, api_keys)
    except Refusal as refusal:
        return refusal.message_with_id
    return ""


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {"plan_refused": plan_refused, "refusals": refusals}
