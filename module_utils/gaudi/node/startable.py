"""Read whether an instance could start again from the files on its node, and whether there is disk space for it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..base.documents import Damaged
from ..base.refusal import Refusal
from ..serving import unserved, written
from ..serving.plan import Plan
from . import iommu, states, weight_folders
from .containers import image_id
from .documents import read, read_text
from .folders import mount_of, no_room
from .instances import ROOM

# Bytes. With less space in /run systemd does not reload units (RELOAD_DISK_SPACE_MIN), and soon no container starts.
ROOM_TO_RUN = 16 * 1024**2
RUN = Path("/run")


def lacks_room(instance: str) -> list[str]:
    """Say why files that an instance's start and operation need cannot be written.

    Includes space for systemd and the engine. One sentence without a full stop for each file system.
    """
    wanted = {
        states.STATES / instance / "state.json": ROOM,
        states.PLANS / instance / "plan.json": ROOM,
        RUN / "systemd": ROOM_TO_RUN,
    }
    found: dict[Path, str] = {}
    for path, size in wanted.items():
        if lacking := no_room(path, size):
            found.setdefault(mount_of(path), lacking)
    return list(found.values())


def check_room(instance: str) -> None:
    """Raise Refusal where what a start writes has no room."""
    lacking = lacks_room(instance)
    if lacking:
        raise Refusal(
            "no_room",
            f"{instance} was left as it is, because {' and '.join(lacking)}. Make room, then run this again.",
        )


def why_not(module: AnsibleModule, name: str) -> str:
    """Return why an instance could not be started again from the files on the node, as a clause; "" if it could.

    A plan that cannot be read is not reported here; its supervisor reports it.
    """
    plan = plan_of(name)
    return (
        weight_folders.lost(plan)
        or lost_image(module, plan)
        or _other_environment(name, plan)
        or unserved.translated(translated(name, plan))
    )


def plan_of(name: str) -> dict[str, Any]:
    """Return the plan of an instance; {} without one that can be read."""
    with contextlib.suppress(Damaged):
        return read(states.PLANS / name / "plan.json", written.parse) or {}
    return {}


def lost_image(module: AnsibleModule, plan: Mapping[str, Any]) -> str:
    """Return a clause if the image of a plan is no longer on the node; "" if it is."""
    image = str(plan.get("image", ""))
    if not image or image_id(module, image):
        return ""
    return f"its image {image} is not on the node; run site.yml, which brings it"


def translated(name: str, plan: Mapping[str, Any]) -> dict[str, str]:
    """Return what keeps an instance from starting with a plan behind the node's IOMMU; {} if it may."""
    modules = [card["module_id"] for card in plan.get("modules", [])]
    return iommu.translated([str(plan.get("release") or "")], modules, states.PLANS / name)


def _other_environment(name: str, plan: dict[str, Any]) -> str:
    """Return a clause if the environment file differs from the plan's; "" for a plan that cannot be read."""
    path = states.PLANS / name / "environment"
    with contextlib.suppress(ValueError, Damaged):
        if read_text(path) != Plan.from_document(plan).environment_file:
            return f"{path} is not the environment of its plan; run site.yml, which writes both"
    return ""
