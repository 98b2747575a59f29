"""The parts of a node's report, by name. A part is a function: the module, with what is asked, to a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from . import (
    acceptance,
    cards,
    driver_before,
    files,
    images,
    instances,
    jobs,
    last_starts,
    next_boot,
    plans,
    reservations,
    tuning,
    weight_folders,
    weights,
)
from .errors import answers

PARTS: Mapping[str, Callable[[AnsibleModule], dict[str, Any]]] = {
    "acceptance": acceptance.read,
    "cards": cards.read,
    "driver_before": driver_before.read,
    "images": images.read,
    "instances": instances.read,
    "jobs": jobs.read,
    "last_starts": last_starts.read,
    "next_boot": next_boot.read,
    "plans": plans.read,
    "reservations": reservations.read,
    "tuning": tuning.read,
    "weight_folders": weight_folders.read,
}
# Parts with an entry for each path of the option of the same name.
OF_PATHS: Mapping[str, Callable[[str], dict[str, Any]]] = {"files": files.read, "weights": weights.read}


def read_parts(names: Sequence[str], module: AnsibleModule) -> dict[str, Any]:
    """Return the report of a node; what cannot be read of it, or does not end, is an entry with its error."""
    whole = {name: partial(PARTS[name], module) for name in names if name in PARTS}
    entries = {
        (name, path): partial(OF_PATHS[name], path)
        for name in names
        if name in OF_PATHS
        for path in module.params[name]
    }
    found = answers({**whole, **entries})
    return {
        name: found[name] if name in PARTS else {path: found[name, path] for path in module.params[name]}
        for name in names
    }
