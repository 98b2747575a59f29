"""The plans of an instance for people: which it served with, which failed, and in which words they differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..base.printable import printable
from ..serving import written
from ..serving.kept import ENVIRONMENT, PLAN, SHOWN, Back, StoredPlan, digest_of
from .difference import differences, environment_of


def entries(kept: Collection[StoredPlan], files: Mapping[str, str]) -> list[dict[str, Any]]:
    """What is told of each plan, the last first; files: those of the plan that lies on the node."""
    now = digest_of(files) if {PLAN, ENVIRONMENT} <= set(files) else ""
    ordered = sorted(kept, key=lambda each: max(each.served, each.failed.at if each.failed else ""), reverse=True)
    return [_entry(each, now, files) for each in ordered]


def _entry(each: StoredPlan, now: str, files: Mapping[str, str]) -> dict[str, Any]:
    failed = each.failed
    differs: list[str] = []
    image = ""
    try:
        plan = written.parse(each.files[PLAN])
        image = str(plan.get("image", ""))
        if now and each.digest != now:
            differs = differences(written.parse(files[PLAN]), plan, environment_of(files[ENVIRONMENT]))
    except ValueError as wrong:
        differs = [f"nobody can tell in what: {wrong}"]
    return {
        "plan": each.digest,
        "current": each.digest == now,
        "image": image,
        "image_id": each.starts_from.image,
        "served": each.served,
        "failed": None if failed is None else {"reason": failed.reason, "at": failed.at, "by": failed.by},
        "differs": differs,
    }


def lines(instance: str, told: Collection[Mapping[str, Any]], back: Back | None, damaged: Collection[str]) -> list[str]:
    """The same as lines of text."""
    found = [f"{instance}:" + ("" if told or damaged else " no plan is kept yet; one is once it serves.")]
    for each in told:
        mark = "*" if each["current"] else " "
        served = f"served at {each['served']}" if each["served"] else "never served"
        found.append(f" {mark} {each['plan'][:SHOWN]}  {served}, image {each['image']} ({each['image_id'][:19]})")
        failed = each["failed"]
        if failed:
            taken = f"taken back by {failed['by']} at {failed['at']}"
            found.append(f"      {taken if failed['by'] else 'failed at ' + failed['at'] + ': ' + failed['reason']}")
        if each["differs"]:
            found.append(f"      beside *: {'; '.join(each['differs'])}")
    if back is not None:
        found.append(f"   It went back from {back.before[:SHOWN]} to {back.after[:SHOWN]} at {back.at}.")
    return [printable(line) for line in (*found, *(f"   {said}, and is passed over." for said in damaged))]
