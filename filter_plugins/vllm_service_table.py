"""Show a node as lines for people, and instances as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base import reported
from ansible.module_utils.gaudi.doctor import status
from ansible.module_utils.gaudi.serving import load, starts
from ansible.module_utils.gaudi.serving.state import WAITS_FOR_LOCK
from ansible.module_utils.gaudi.serving.unserved import unit_fault

HEADINGS = ("NODE", "INSTANCE", "STATE", "MODULES", "ENDPOINT", "SINCE (UTC)", "WARM-UP", "WHEN ASKED", "NOW", "SAYS")


def warm_up(state: dict[str, Any]) -> str:
    """How long the warm-up took, and that of the start before with the same plan; or how far it is."""
    if state.get("warm_up_seconds") is not None:
        took = _seconds(state["warm_up_seconds"])
        own = [start for start in starts.read(state.get("starts", [])) if start.plan == state.get("plan")]
        recipes = state.get("recipes")
        if recipes is not None:
            other = starts.other_filling(own)
            found = (
                f"{recipes['files']} files of recipes, {recipes['bytes'] / 2**30:.1f} GiB"
                if recipes["files"]
                else "no recipes"
            )
            words = "" if other is None else f"; with{'' if other.filled else 'out'}: {_seconds(other.warm_up_seconds)}"
            return f"{took} ({found}{words})"
        return f"{took} (before: {_seconds(own[1].warm_up_seconds)})" if len(own) > 1 else took
    counts = list(state.get("warm_up", {}).values())
    return f"{sum(done for done, _ in counts)}/{sum(total for _, total in counts)}" if counts else "-"


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s" if seconds else "< 1 s"


def row(node: str, found: dict[str, Any]) -> tuple[str, ...]:
    """One instance as the cells of a line."""
    state = found["state"]
    last = state.get("last_reason") or {}
    # A unit that failed though the state says nothing of it: the supervisor could not begin, which systemd knows.
    failed = found["active"] == "failed" and state.get("phase") not in ("failed", "going-back")
    locked_out = found["active"] == "activating" and str(found.get("said", "")).startswith(WAITS_FOR_LOCK)
    last_words = found.get("said") if failed or locked_out else ""
    says = str(found["damaged"] or unit_fault(found, node) or last_words or state.get("status", "never started"))
    if state.get("phase") == "serving" and last:
        says += f" (last failure {last.get('time')}: [{last.get('kind')}])"
    cells = (
        node,
        str(found["instance"]),
        str(state.get("phase", found["active"]))
        if found["active"] in ("active", "activating")
        else str(found["active"]),
        ",".join(str(card["module_id"]) for card in state.get("cards", [])) or "-",
        str(state.get("endpoint", "-")),
        str(state.get("since", "-")).replace("T", " ").rstrip("Z"),
        warm_up(state),
        str(found.get("pace") or "-"),
        load.words(state["load"]) if state.get("load") else "-",
        says,
    )
    return tuple(map(reported.sentence, cells))


def rows(node: str, instances: object) -> list[tuple[str, ...]]:
    """A node's instances as the cells of lines; one that the node reports in another form does not end the table."""
    unreadable = (node, *["-"] * (len(HEADINGS) - 2), reported.UNREADABLE)
    if not isinstance(instances, list):
        return [unreadable]
    lines = []
    for found in instances[: reported.MOST_ENTRIES]:
        try:
            lines.append(row(node, found))
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            lines.append(unreadable)
    return lines


def vllm_service_table(nodes: Mapping[str, object]) -> list[str]:
    """Return the lines of a table of all nodes' instances, headings first; one line that says so if there are none."""
    lines = [HEADINGS, *(cells for node, instances in nodes.items() for cells in rows(str(node), instances))]
    if len(lines) == 1:
        return ["no instances on " + (", ".join(nodes) or "no node")]
    widths = [max(len(cells[column]) for cells in lines) for column in range(len(HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in lines]


def reported_instances(nodes: Mapping[str, object]) -> dict[str, object]:
    """Return the instances in the results of node_report, by node; None where a node reports another form."""
    found = {}
    for node, result in nodes.items():
        part: object = result
        for name in ("report", "instances", "instances"):
            part = part.get(name) if isinstance(part, Mapping) else None
        found[str(node)] = part
    return found


def node_status(result: Mapping[str, object], host: str, wanted: Sequence[str] | None) -> list[str]:
    """Return the lines of a node's status from the result of node_report."""
    lines: list[str] = status.lines(result.get("report"), host, wanted)
    return lines


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., list[str] | str | dict[str, object]]]:
        """Name the filters."""
        return {
            "node_status": node_status,
            "reported_instances": reported_instances,
            "vllm_service_table": vllm_service_table,
            "vllm_service_unit_fault": unit_fault,
        }
