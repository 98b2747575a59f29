"""Choose which node of a play measures a model for static FP8, and which nodes take the measurements from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def calibration_round(said: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return which nodes measure and which take; none repeats what a node of its site has measured or is measuring.

    Input of each node: digest (identifies model and settings of the measurement), site (nodes of one site reach each
    other), storage (equal for nodes that share the weights root), has (the measurements exist there), running (they are
    being made there).
    Returns measure: the nodes that measure; and take: the seed of each node that takes, one node of each storage.

    >>> node = {"digest": "1", "site": "one", "has": False, "running": False}
    >>> calibration_round({name: {**node, "storage": name} for name in "ab"})
    {'measure': ['a'], 'take': {'b': 'a'}}
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(said):
        groups.setdefault((str(said[name]["site"]), str(said[name]["digest"])), []).append(name)
    measure: list[str] = []
    take: dict[str, str] = {}
    for names in groups.values():
        seeds = [name for name in names if said[name]["has"]]
        # If a node is measuring already, the others wait for it.
        running = [name for name in names if said[name]["running"]]
        measures = running if running or seeds else names[:1]
        measure += measures
        seed = (seeds or measures)[0]
        served = {said[name]["storage"] for name in (*seeds, *measures)}
        for name in names:
            if said[name]["storage"] not in served:
                served.add(said[name]["storage"])
                take[name] = seed
    return {"measure": measure, "take": take}
