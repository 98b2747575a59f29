"""Decisions about long work on a node: start it, attach to it, or keep its recorded result."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.places import is_below
from ..base.printable import printable
from ..base.refusal import Refusal
from ..base.units import human_bytes, human_seconds
from .facts import HOMES

# Limits of names: 255 characters for a unit and a folder, 128 for a directory of the catalogue.
KEY = re.compile(r"[a-z0-9]([a-z0-9.-]{0,158}[a-z0-9])?")


def check_key(key: str) -> str:
    """Check a job's key, which becomes part of a unit's and a folder's name. Raises Refusal for any other text."""
    if not KEY.fullmatch(key) or ".." in key:
        raise Refusal(
            "not_a_job_key",
            f"{key!r} cannot be the key of a job: lower-case letters, digits, dots and dashes are needed, "
            "160 at most, the first and the last a letter or a digit.",
        )
    return key


def digest(command: Sequence[str], environment: Mapping[str, str], inputs: Mapping[str, Any]) -> str:
    """Return the digest of what a job would do; equal digests mean the same work on the same inputs."""
    text = json.dumps([list(command), dict(environment), dict(inputs)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def status(state: Mapping[str, Any], active: str) -> str:
    """Return a job's status from its state file and its unit's ActiveState.

    One of absent, running, succeeded, failed, cancelled or interrupted. A job that recorded "running" but has no
    running unit was interrupted, by a kill, a crash or a reboot.
    """
    if active in ("active", "activating", "deactivating", "reloading"):
        return "running"
    written = str(state.get("state", "absent"))
    return "interrupted" if written == "running" else written


def decide(status_now: str, recorded: str | None, wanted: str, force: bool) -> str:
    """Decide on a request: start, attach or keep (the recorded result stays valid).

    recorded and wanted are digests. Raises Refusal if other work runs under the same key.
    """
    if status_now == "running":
        if recorded != wanted:
            raise Refusal(
                "other_work_runs",
                "other work runs under this key (its command or inputs differ). Wait for it, or cancel it with "
                "playbooks/jobs.yml.",
            )
        return "attach"
    if status_now == "succeeded" and recorded == wanted and not force:
        return "keep"
    return "start"


def paths_dropin(paths: Sequence[str], there: Sequence[str]) -> str:
    """Return a unit's drop-in that requires the file systems of paths, and lets the work write there.

    there: for each path, itself or its nearest existing parent folder. "" without paths. Raises Refusal for a path with
    a control character, such as a line break that would end the setting.
    """
    for path in (*paths, *there):
        if any(ord(character) < 32 for character in path):
            raise Refusal("control_character", f"{path!r} has a control character in it")
    if not paths:
        return ""
    lines = ["[Unit]", *(f"RequiresMountsFor={_quoted(path)}" for path in paths)]
    lines += ["[Service]", *(f"ReadWritePaths={_quoted(path)}" for path in sorted(set(there)))]
    if any(is_below(path, home) for path in (*paths, *there) for home in HOMES):
        lines.append("ProtectHome=read-only")
    return "".join(f"{line}\n" for line in lines)


# What a unit's drop-in has for work that needs the engine, systemd or the cards: Unix sockets and the node's devices.
# The capability is not used. With it, the kernel does not let work without sockets, which has fewer capabilities,
# write to the memory of this work (ptrace(2), "Ptrace access mode checking").
NODE_SERVICES = """\
[Service]
RestrictAddressFamilies=AF_UNIX
PrivateDevices=no
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
"""


def _quoted(path: str) -> str:
    """A path as a unit has it: systemd reads % as a specifier and \\ and " as its own."""
    return '"{}"'.format(path.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"'))


def progress_text(progress: Mapping[str, Any], now: float | None = None) -> str:
    """Return progress as one line: phase and its duration, done of total, rate, time left.

    progress is the document that the work writes: phase, began (start of the phase, seconds since 1970), done, total,
    unit, rate (units per second), eta (seconds), waiting (what it waits for). now is None for work that does not run,
    which then has neither a duration nor a wait. "" for such work without progress.
    """
    phase = str(progress.get("phase") or ("" if now is None else "working"))
    began = progress.get("began")
    if isinstance(began, (int, float)) and now is not None and 0 <= now - began < math.inf:
        phase += f" (for {human_seconds(now - began)})"
    done, total, unit = progress.get("done"), progress.get("total"), str(progress.get("unit") or "")
    if not isinstance(done, (int, float)) or not isinstance(total, (int, float)):
        said = str(progress.get("message") or ("" if now is None else "no figures yet"))
        return ": ".join(filter(None, (phase, said)))

    def figure(value: float) -> str:
        return human_bytes(value) if unit == "bytes" else f"{value:g}{' ' + unit if unit else ''}"

    text = f"{phase}: {figure(done)} of {figure(total)}"
    if total:
        text += f" ({100 * done / total:.0f} %)"
    rate, eta = progress.get("rate"), progress.get("eta")
    if isinstance(rate, (int, float)) and rate > 0:
        text += f", {figure(rate)}/s"
    if isinstance(eta, (int, float)) and done < total and math.isfinite(eta):
        text += f", {human_seconds(eta)} to go"
    waiting = progress.get("waiting")
    return f"{text}; waiting: {waiting}" if waiting and now is not None else text


def described(found: Mapping[str, Any]) -> dict[str, str]:
    """Describe a job for people. ``found``: an entry of node.long_work.read_all, times in seconds since 1970."""
    state, now = found["state"], status(found["state"], found["active"])
    return {
        "key": found["key"],
        "status": now,
        "text": progress_text(found["progress"], found["now"] if now == "running" else None),
        "since": str(state.get("started", "")),
        "message": str(state.get("message", "")),
    }


def table(found: Sequence[Mapping[str, str]]) -> list[str]:
    """Return jobs as aligned lines; one sentence if there are none."""
    if not found:
        return ["No long work has been started on this node."]
    width = max(len(job["key"]) for job in found)
    return [
        printable(f"{job['key']:<{width}}  {job['status']:<11}  {job['since']:<20}  {job['message'] or job['text']}")
        for job in found
    ]


# Words for states in which a person may have to act.
_STANDS = {"running": "runs", "failed": "failed", "interrupted": "was cut off"}


def unfinished(found: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a line for each job that runs, failed or was interrupted, for the status of the node."""
    return [
        printable(
            f"long work {job['key']}, begun {job['since'] or 'at a time nobody knows'}, {_STANDS[job['status']]}: "
            f"{job['message'] or job['text'] or 'it did not say how far it was'}"
        )
        for job in found
        if job["status"] in _STANDS
    ]
