"""The names of a node's instances, and what their supervisors wrote in state.json."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ..base import paths
from ..base.documents import Damaged
from ..cards.users import parse_container_names
from ..serving.last_start import LastStart
from ..serving.state import FORM
from .documents import read_json
from .folders import of_instances

PLANS = Path(paths.INSTANCES)
STATES = Path(paths.INSTANCE_STATES)


def installed() -> list[str]:
    """Return the names of all instances on the node, sorted; also those without a plan or unit."""
    return [folder.name for folder in of_instances(PLANS)]


def own_containers() -> dict[str, str]:
    """Return names of the instances' containers by short id, from their supervisors' state.json.

    An engine that does not answer names none; the id of a container that has ended is never used again.
    """
    lines = []
    for name in installed():
        with contextlib.suppress(Damaged):
            state = read_json(STATES / name / "state.json", FORM) or {}
            lines.append(f"{state.get('container_id', '')} vllm-{name}")
    names: dict[str, str] = parse_container_names("\n".join(lines))
    return names


def last_starts() -> dict[str, LastStart]:
    """What the last start of each instance logged, as far as its supervisor wrote it down."""
    found = {}
    for name in installed():
        with contextlib.suppress(Damaged):
            start = LastStart.from_state(read_json(STATES / name / "state.json", FORM) or {})
            if start is not None:
                found[name] = start
    return found
