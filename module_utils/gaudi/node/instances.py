"""The state of a node's vLLM instances: systemd's data on their units, and their supervisors' state.json."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..base import paths
from ..base.documents import Damaged
from ..serving import pace
from ..serving.state import FORM, RUNNING, SILENT
from . import states
from .documents import read_json
from .folders import no_room, of_instances
from .module import systemctl
from .programs import library_digest, supervisor_digest, unit_digest

PROGRAMS = Path(paths.PROGRAMS)
# Bytes. More than plan, environment, keys and state need, each written beside the file that it replaces. A plan with
# the most buckets that can be planned, each on lines of its own, has 18 million.
ROOM = 20_000_000
PROPERTIES = ["LoadState", "ActiveState", "SubState", "Job", "Result", "NRestarts", "UnitFileState"]
PROPERTIES += ["FragmentPath", "DropInPaths"]


def strangers() -> list[Path]:
    """Entries among the folders of the instances that belong to no instance, such as a copy of a folder; sorted."""
    return sorted(
        path
        for place in (states.PLANS, states.STATES)
        for path in (place.iterdir() if place.is_dir() else ())
        if path not in of_instances(place)
    )


def parse_properties(text: str) -> dict[str, str]:
    """Read the NAME=value lines of systemctl show."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def runs_with() -> dict[str, str]:
    """Return digests of the program and library that a supervisor would run with if it started now."""
    return {"library": library_digest(PROGRAMS / "gaudi"), "program": supervisor_digest(PROGRAMS)}


def describe(
    instance: str,
    properties: dict[str, str],
    state: dict[str, Any],
    damaged: str = "",
    current: bool = True,
    unwritten: str = "",
    let_through: Sequence[str] = (),
    drop_ins: Sequence[str] = (),
    wrote: str = "",
) -> dict[str, Any]:
    """Describe one instance.

    damaged: why its state.json cannot be read. current: its supervisor runs with the files on disk. unwritten: why its
    supervisor cannot write state.json. let_through: mismatches that were allowed at its setup. drop_ins: drop-ins of
    its unit that are not ours. wrote: its rate at the last measurement.
    """
    return {
        "instance": instance,
        "load": properties.get("LoadState", "unknown"),
        "active": properties.get("ActiveState", "unknown"),
        "sub": properties.get("SubState", "unknown"),
        # "Job" is the number of a queued or running job; it is 0 or missing without one.
        "job": properties.get("Job", "0") not in ("", "0"),
        "result": properties.get("Result", "unknown"),
        "enabled": properties.get("UnitFileState") == "enabled",
        "restarts": int(properties.get("NRestarts") or 0),
        "state": state,
        "damaged": damaged,
        "current": current,
        "unwritten": unwritten,
        "let_through": list(let_through),
        "drop_ins": list(drop_ins),
        "pace": wrote,
    }


def digest(instances: list[dict[str, Any]]) -> str:
    """Return a digest of descriptions without warm-up figures, which change too often to report each change."""
    stand = [{**found, "state": found["state"].get("phase")} for found in instances]
    return hashlib.sha256(json.dumps(stand, sort_keys=True).encode()).hexdigest()[:32]


def read(module: AnsibleModule, names: Sequence[str]) -> list[dict[str, Any]]:
    """Ask systemd and read the supervisors' files."""
    found = []
    now = runs_with()
    for name in names:
        shown = systemctl(module, "show", f"vllm-{name}.service", f"--property={','.join(PROPERTIES)}")
        path = states.STATES / name / "state.json"
        state, damaged = {}, ""
        try:
            state = read_json(path, FORM) or {}
        except Damaged as damage:
            damaged = f"{damage}; systemctl reload vllm-{name} writes it again, and the server goes on"
        wanted = {**now, "unit": unit_digest(shown)}
        current = all(state.get(part) == digest for part, digest in wanted.items())
        unwritten = "" if current else no_room(path, ROOM)
        properties = parse_properties(shown)
        passed = let_through(states.PLANS / name)
        found.append(
            describe(
                name,
                properties,
                state,
                damaged,
                current,
                unwritten,
                passed,
                others_drop_ins(properties),
                pace_of(name, state),
            )
        )
    return found


def said_last(module: AnsibleModule, found: Mapping[str, Any]) -> str:
    """Return the supervisor's last status to systemd, which is lost at its next start.

    It is not queried if unit and state agree that the instance serves.
    """
    if found["active"] == "active" and found["state"].get("phase") not in SILENT:
        return ""
    shown = systemctl(module, "show", f"vllm-{found['instance']}.service", "--property=StatusText")
    return shown.strip().partition("=")[2]


def pace_of(name: str, state: Mapping[str, Any]) -> str:
    """How quickly an instance wrote with its current plan, for people; empty if it was not measured."""
    try:
        record = read_json(states.STATES / name / paths.PACE, pace.FORM, pace.SCHEMA) or {}
    except Damaged as damage:
        return f"{damage}; the next site.yml begins it again"
    return pace.words(record, str(state.get("plan", "")))


def is_up(module: AnsibleModule, instance: str) -> bool:
    """Tell whether an instance runs or starts."""
    said = systemctl(module, "show", f"vllm-{instance}.service", "--property=ActiveState")
    return parse_properties(said).get("ActiveState") in RUNNING


def others_drop_ins(properties: dict[str, str]) -> list[str]:
    """Return drop-ins of a unit that an administrator added; those of the system's packages are below /usr."""
    return [
        path
        for path in shlex.split(properties.get("DropInPaths", ""))
        if path.startswith(("/etc/", "/run/")) and path != paths.LIMITS and Path(path).name != paths.MOUNTS_OF_PLAN
    ]


def let_through(folder: Path) -> list[str]:
    """Return mismatches that were allowed when an instance was set up; for a damaged file a sentence about it."""
    try:
        document = read_json(folder / paths.LET_THROUGH, {"let_through": [str]}) or {"let_through": []}
    except Damaged as damage:
        return [f"{damage}, so that nobody knows what it was set up with; the next site.yml writes it again"]
    return list(document["let_through"])
