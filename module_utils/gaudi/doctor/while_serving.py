"""Explain what a supervisor counted while its instance served: which option helps, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..serving.counts import Counts
from .covering import Cover
from .findings import Finding, known

ENOUGH_ANSWERS = 20
"""Fewer answers are no basis for a share; the number is this project's own."""
SHARE_CUT = 0.25
"""From this share of answers that ended at their length on, a note is worth it; the number is this project's own."""


def of_counts(instance: str, state: Mapping[str, Any], cover: Cover | None) -> list[Finding]:
    """Return a note for each thing that goes badly while an instance serves.

    state: its supervisor's state.json, of state.FORM. cover: what cover_of says of it.
    """
    if not state.get("counts"):
        return []
    counts = Counts.from_document(state["counts"])
    since = str(state.get("ready") or state.get("started") or "its start")
    found = []
    shape = counts.commonest
    if shape is not None and cover is not None:
        several = f"{len(counts.shapes)}{' or more' if counts.others else ''}"
        facts = {"count": several, "shape": shape, **cover.facts}
        found.append(known("not-warmed-up", cover.case, instance=instance, since=since, **facts))
    if counts.preemptions:
        found.append(known("preempted", instance=instance, since=since, count=counts.preemptions))
    if counts.waited:
        waited = {"waited": counts.waited, "checks": counts.checks, "most": counts.most_waiting}
        found.append(known("requests-wait", instance=instance, since=since, **waited))
    if counts.finished >= ENOUGH_ANSWERS and counts.cut >= SHARE_CUT * counts.finished:
        found.append(known("answers-cut", instance=instance, since=since, cut=counts.cut, count=counts.finished))
    return found
