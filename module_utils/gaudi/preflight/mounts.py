"""Find file systems that should be mounted at or above directories of a run, and are not.

Files written below an unmounted mount point end up on another disk, and are hidden once the right one is mounted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..base.places import as_named, is_below
from ..faults.words import say
from .checks import Problem

FSTAB = "/etc/fstab"
# Units that systemd has loaded and that are not mounted.
SHOW = ("show", "*.mount", "--state=inactive,failed", "--property=Id,Where,What,WantedBy,RequiredBy")
# Mount options for file systems that are mounted on request or on access only. Older files write the second as the
# third.
_LATER = {"noauto", "x-systemd.automount", "comment=systemd.automount"}
_NO_FILE_SYSTEM = ("swap", "ignore")


@dataclass(frozen=True)
class Mount:
    """A file system that should be mounted at boot."""

    point: str
    source: str
    named_in: str
    """The file or the unit that says so."""


def of_fstab(text: str) -> list[Mount]:
    """Return the mounts of /etc/fstab that are made at boot (fstab(5))."""
    found = []
    for line in text.splitlines():
        fields = [] if line.lstrip().startswith("#") else line.split()
        if len(fields) < 3 or not fields[1].startswith("/") or fields[2] in _NO_FILE_SYSTEM:
            continue
        if not _LATER & {option for field in fields[3:4] for option in field.split(",")}:
            found.append(Mount(_point(fields[1]), as_named(fields[0]), FSTAB))
    return found


def of_units(shown: str) -> list[Mount]:
    """Return the mounts that a target wants or requires; ``shown`` is what systemctl prints for SHOW."""
    found = []
    for stanza in shown.split("\n\n"):
        said = dict(line.split("=", 1) for line in stanza.splitlines() if "=" in line)
        wanted = f"{said.get('WantedBy', '')} {said.get('RequiredBy', '')}".split()
        if said.get("Where", "").startswith("/") and any(name.endswith(".target") for name in wanted):
            found.append(Mount(_point(said["Where"]), said.get("What", ""), said["Id"]))
    return found


def points(mountinfo: str) -> set[str]:
    """Return current mount points; mountinfo: the text of /proc/self/mountinfo.

    An automount counts as mounted: access mounts it.
    """
    lines = (line.split() for line in mountinfo.splitlines())
    return {as_named(fields[4]) for fields in lines if len(fields) > 4}


def problems(absent: Iterable[Mount], folders: Mapping[str, str]) -> list[Problem]:
    """Refuse a node with an unmounted file system below directories of the run.

    absent: mounts that are missing; of several for one mount point the first counts. folders: purpose by path. Neither
    mount points nor paths contain symbolic links.
    """
    named = {mount.point: mount for mount in reversed([*absent])}
    found = []
    for point, mount in sorted(named.items()):
        below = [f"{path} ({use})" for path, use in folders.items() if is_below(path, point)]
        if below:
            what = {"point": point, "source": mount.source, "named_in": mount.named_in, "folders": " and ".join(below)}
            found.append(Problem("unmounted", say("unmounted", **what)))
    return found


def _point(field: str) -> str:
    return as_named(field).rstrip("/") or "/"
