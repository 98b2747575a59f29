"""Files through which long work reports to its job, the state that a job records, and the output of programs.

Work that a person started by hand has no job. Only root can read these files, whatever umask the work has. An
unreadable file counts as interrupted work, which is run again.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ..base import paths
from ..base.documents import Damaged, bounded
from ..base.refusal import Refusal
from ..jobs.facts import HOMES, PROGRESS, SHOWN, active_states
from .documents import read_json
from .files import WriteFailure, write_json

JOBS = Path(paths.JOBS)
MODE = 0o600
_STATE = {"state": str, "started?": str, "message?": str, "log?": [str], "result?": dict}
# Bytes of a line that are kept: journald, where most lines go, cuts longer ones (LineMax= in journald.conf(5)).
LONGEST_LINE = 48 * 1024
_BLOCK = 65536
_END = re.compile(rb"\r\n|\r|\n")
# Folders of the Filesystem Hierarchy Standard 3.0 below which packages and services have theirs.
OF_SYSTEM = ("/", "/media", "/mnt", "/opt", "/srv", "/usr", "/usr/local", "/var", "/var/cache", "/var/lib")


def progress_file() -> Path | None:
    """Return the path for progress; None without a job."""
    place = os.environ.get("GAUDI_JOB_PROGRESS")
    return Path(place) if place else None


def tell_progress(place: Path | None, progress: dict[str, Any]) -> None:
    """Write progress if there is a job and space for it. It is only informative, so it may be lost in a power cut."""
    if place is not None:
        with contextlib.suppress(WriteFailure):
            # Stalled work has a rate or a time that is not finite.
            shown = {name: value for name, value in progress.items() if bounded(value)}
            write_json(place, shown, durable=False, mode=MODE)


def tell_result(result: dict[str, Any]) -> None:
    """Write the result, if there is a job."""
    place = os.environ.get("GAUDI_JOB_RESULT")
    if place:
        write_json(Path(place), result, mode=MODE)


def tell_refusal(refusal: Refusal) -> None:
    """Write why the work was refused; the job copies the id into its state."""
    tell_result(refusal.as_keys())


def writable_folder(path: Path, make: bool = True) -> Path | None:
    """Return the path or its nearest existing parent folder, as a unit can only name existing paths.

    If that folder would be one of the system, in which other programs keep what root runs, or a home root, which the
    unit hides from work, the missing folders are created, or None is returned.
    """
    found = next(folder for folder in (path, *path.parents) if folder.exists())
    if found != path and str(found) in (*OF_SYSTEM, *HOMES):
        if not make:
            return None
        path.mkdir(parents=True)
        return path
    return found


def state(folder: Path) -> dict[str, Any]:
    """Return the state of a job's folder; {} if it never ran. A damaged state counts as interrupted."""
    try:
        return read_json(folder / "state.json", _STATE, place=folder) or {}
    except Damaged as damage:
        return {"state": "interrupted", "message": f"{damage}; run it again, which continues the work"}


def progress(folder: Path) -> dict[str, Any]:
    """Return the work's progress; {} if it has not reported any."""
    try:
        return read_json(folder / "progress.json", place=folder) or {}
    except Damaged as damage:
        return {"message": str(damage)}


def digest(folder: Path) -> str | None:
    """What the job was started with, as one digest; None if that is unknown, so that it is started again."""
    try:
        described = read_json(folder / "job.json", {"digest": str}, place=folder)
    except Damaged:
        return None
    return None if described is None else str(described["digest"])


def read_all(systemctl: Callable[..., str]) -> list[dict[str, Any]]:
    """Return the facts of all jobs of the node, sorted by key, for jobs.decisions.described; systemd is asked once."""
    if not JOBS.is_dir():
        return []
    keys = sorted(folder.name for folder in JOBS.iterdir() if os.path.lexists(folder / "job.json"))
    if not keys:
        return []
    units = {key: f"gaudi-job@{key}.service" for key in keys}
    active = active_states(systemctl("show", "--property=Id,ActiveState", *units.values()))
    return [
        {
            "key": key,
            "active": active.get(unit, "inactive"),
            "state": {name: value for name, value in state(JOBS / key).items() if name in SHOWN},
            "progress": {name: value for name, value in progress(JOBS / key).items() if name in PROGRESS},
            "now": time.time(),
        }
        for key, unit in units.items()
    ]


def lines_of(stream: IO[bytes] | None, longest: int = LONGEST_LINE) -> Iterator[str]:
    """Yield the lines of a pipe without their ends, as they arrive; a progress bar ends its lines with "\\r" alone.

    longest: bytes of a line that are kept. The rest of it is read and dropped, so that a line without end takes neither
    memory nor more time than its bytes. None stands for a program without a pipe. Nothing else may read from the
    stream, as its own buffer is not used.
    """
    line, returned = bytearray(), False
    while stream is not None and (data := os.read(stream.fileno(), _BLOCK)):
        # The second half of "\r\n".
        if returned and data.startswith(b"\n"):
            data = data[1:]
            returned = False
            if not data:
                continue
        returned = data.endswith(b"\r")
        first, *others = _END.split(data)
        line += first[: longest - len(line)]
        for other in others:
            yield line.decode("utf-8", "replace")
            line[:] = other[:longest]
    if line:
        yield line.decode("utf-8", "replace")
