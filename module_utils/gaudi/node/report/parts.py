"""The parts of a node's report, by name. A part is a function: the module, with what is asked, to a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from . import acceptance, cards, files, instances, jobs, last_starts, reservations, tuning, weights
from .errors import answer

PARTS: Mapping[str, Callable[[AnsibleModule], dict[str, Any]]] = {
    "acceptance": acceptance.read,
    "cards": cards.read,
    "files": files.read,
    "instances": instances.read,
    "jobs": jobs.read,
    "last_starts": last_starts.read,
    "reservations": reservations.read,
    "tuning": tuning.read,
    "weights": weights.read,
}


def read_parts(names: Iterable[str], module: AnsibleModule) -> dict[str, Any]:
    """Return the report of a node; a part that cannot be read is an entry with its error."""
    return {name: answer(partial(PARTS[name], module)) for name in names}
