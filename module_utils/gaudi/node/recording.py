"""Read what a support bundle and a record hold: files, output of commands, starts, metrics, and the node's names."""

from __future__ import annotations

import contextlib
import http.client
import os
import pwd
import re
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from ..base import paths
from ..base.documents import Damaged
from ..base.printable import UNTRANSLATED
from ..doctor import bundle, recorded, removal
from ..serving.state import FORM
from . import iommu, listening, states
from .documents import read_json
from .reader import QUAL

SYS = Path("/sys")
ETC = Path("/etc")
STATES = Path(paths.INSTANCE_STATES)
JOBS = Path(paths.JOBS)
# Seconds that a server may take to report its metrics, and bytes that these may have.
METRICS_SECONDS = 20.0
MOST_METRICS = 4 << 20
# Accounts of people have ids from here (login.defs(5)); 65534 is nobody.
PEOPLE = range(1000, 65534)
_OF_JOBS = {"state": str, "started?": str, "ended?": str}
_OF_STARTS = {**FORM, "started?": str, "ready?": str}
_NUMBERS = ("class/dmi/id/product_serial", "class/dmi/id/board_serial", "class/dmi/id/chassis_serial")
_DISKS = ("block/*/device/serial", "block/*/serial", "block/*/wwid", "block/*/device/wwid", "class/nvme/*/serial")


def text_of(file: Path) -> str:
    """Return a file's content, or why it cannot be read."""
    try:
        with file.open(encoding="utf-8", errors="replace") as there:
            return there.read(bundle.MOST_OF_BUNDLE)
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}\n"


class CommandOutput(NamedTuple):
    """What a command printed, and its status. Where it could not run, text says why, and status is None."""

    text: str
    errors: str
    status: int | None


def run_command(command: Sequence[str], separate_errors: bool = False) -> CommandOutput:
    """Run a command. separate_errors: its standard error is not part of its text, for parsers that read the text."""
    try:
        done = subprocess.run(
            command,
            check=False,
            env={**os.environ, **UNTRANSLATED},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if separate_errors else subprocess.STDOUT,
            timeout=bundle.COMMAND_SECONDS,
        )
    except FileNotFoundError:
        return CommandOutput(f"{command[0]} is not on the node\n", "", None)
    except subprocess.TimeoutExpired:
        return CommandOutput(f"{' '.join(command)} did not end within {bundle.COMMAND_SECONDS} s\n", "", None)
    return CommandOutput(
        done.stdout.decode("utf-8", "replace"), (done.stderr or b"").decode("utf-8", "replace"), done.returncode
    )


def support_bundle() -> str:
    """Return a support bundle as one text, secrets masked. What cannot be read says why."""
    found = {str(file): text_of(file) for file in (*map(Path, bundle.FILES), *files_of_instances())}
    found.update({" ".join(command): run_command(command).text for command in bundle.COMMANDS})
    return bundle.page(found)


def files_of_instances() -> Iterator[Path]:
    """Return the paths of the instances' files in a bundle, existing or not."""
    for name in states.installed():
        yield from (states.PLANS / name / file for file in bundle.OF_PLAN)
        yield from (states.STATES / name / file for file in bundle.OF_STATE)


def durations() -> str:
    """Return when each job began and ended, and how. Its own message may quote users' requests, and is left out."""
    rows = []
    for folder in sorted(JOBS.iterdir()) if JOBS.is_dir() else ():
        with contextlib.suppress(Damaged):
            state = read_json(folder / "state.json", _OF_JOBS, place=folder) or {}
            parts = [str(state.get(name, "unknown")) for name in ("state", "started", "ended")]
            rows.append(f"{' '.join(parts)} {folder.name}\n")
    return "".join(rows) or "The node has no jobs.\n"


def texts() -> dict[str, str]:
    """Return all texts of a record by name, secrets masked. What cannot be read says why."""
    found = {str(file): text_of(file) for file in map(Path, recorded.FILES)}
    for file in files_of_instances():
        text = text_of(file)
        found[f"{file.name} of {file.parent.name}"] = (
            recorded.without_quotes(text) if file.name in bundle.OF_STATE and file.exists() else text
        )
    found[recorded.DURATIONS] = durations()
    groups = iommu.read_groups()
    found[recorded.GROUPS] = "".join(f"{group.bus_id} {group.type or 'none'}\n" for group in groups)
    scripts = [(str(program), "--status") for program in sorted(QUAL.glob("*/bin/manage_network_ifs.sh"))]
    statuses = []
    for command in (*recorded.commands(group.bus_id for group in groups), *scripts):
        name = " ".join(command)
        printed = run_command(command, separate_errors=True)
        found[name] = printed.text
        if printed.errors:
            found[f"{recorded.ERRORS} {name}"] = printed.errors
        statuses.append(f"{'none' if printed.status is None else printed.status}  {name}\n")
    found[recorded.STATUSES] = "".join(statuses)
    for instance in states.installed():
        found[f"{recorded.START} {instance}"] = start_of(instance)
        found[f"{recorded.METRICS} {instance}"] = metrics_of(instance)
    return {name: bundle.masked_text(bundle.cut(text, recorded.MOST_OF_TEXT), name) for name, text in found.items()}


def start_of(instance: str) -> str:
    """Return the lines of an instance's last start, from its journal, until its server listened."""
    try:
        state = read_json(STATES / instance / "state.json", _OF_STARTS) or {}
        began = datetime.strptime(state["started"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except (Damaged, KeyError, ValueError):
        return "When it started last is not known.\n"
    # Earlier lines may be those of a server that had requests.
    window = [f"--unit=vllm-{instance}.service", f"--since=@{int(began.timestamp())}"]
    try:
        with subprocess.Popen(
            ["journalctl", *window, "--output=cat", "--quiet", "--no-pager"],
            env={**os.environ, **UNTRANSLATED},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as journal:
            found = "".join(_bounded(recorded.before_readiness(_lines(journal)), recorded.MOST_OF_TEXT))
            journal.kill()
    except FileNotFoundError:
        return "journalctl is not on the node\n"
    return found or f"The journal has no start since {state['started']}.\n"


def _lines(journal: subprocess.Popen[bytes]) -> Iterator[str]:
    for line in journal.stdout or ():
        yield line.decode("utf-8", "replace").rstrip("\n")


def _bounded(lines: Iterable[str], most: int) -> Iterator[str]:
    for line in lines:
        most -= len(line) + 1
        if most < 0:
            return
        yield f"{line}\n"


def metrics_of(instance: str) -> str:
    """Return names and values of a serving instance's metrics.

    They are asked for as its supervisor asks: at its own sockets, on this node, with the supervisor's token.
    """
    try:
        state = read_json(STATES / instance / "state.json", _OF_STARTS) or {}
        if state.get("phase") != "serving":
            return "It does not serve.\n"
        own = listening.known_sockets(frozenset(state.get("sockets", ())))
        connection, _ = listening.connected(str(state.get("endpoint", "")), own, METRICS_SECONDS)
        with contextlib.closing(connection):
            status, body = listening.answer(connection, "/metrics", listening.headers_for(instance), MOST_METRICS)
    except (Damaged, OSError, ValueError, http.client.HTTPException) as error:
        return f"Its metrics cannot be read: {error}\n"
    if status != http.client.OK:
        return f"Its metrics cannot be read: GET /metrics answers {status}\n"
    return recorded.without_labels(body.decode("utf-8", "replace"))


def names(hosts: Sequence[str] = (), users: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return what names this node, its people and its hardware, by kind: it is removed from a record.

    hosts, users: what the inventory calls the node, and those who connect to it.
    """
    own = [*hosts, os.uname().nodename, socket.gethostname(), *_lines_of(ETC / "hostname")]
    listed = [name for line in _lines_of(ETC / "hosts") for name in line.partition("#")[0].split()[1:]]
    searched = [line.split()[1:] for line in _lines_of(ETC / "resolv.conf") if line.startswith(("search", "domain"))]
    full = [name for name in (*own, *listed) if not re.fullmatch(r"[0-9.:]+", name)]
    domains = [name.partition(".")[2] for name in full if "." in name] + [name for line in searched for name in line]
    cards = run_command(("hl-smi", "-Q", "serial,uuid", "-f", "csv,noheader"), separate_errors=True).text
    cells = [[cell.strip() for cell in line.split(",")] for line in cards.splitlines() if line.count(",") == 1]
    numbers = [
        line for pattern in (*_NUMBERS, *_DISKS) for file in sorted(SYS.glob(pattern)) for line in _lines_of(file)
    ]
    people = [account.pw_name for account in pwd.getpwall() if account.pw_uid in PEOPLE]
    found = {
        removal.HOST: [*full, *(name.partition(".")[0] for name in full)],
        removal.DOMAIN: [domain for domain in domains if domain.strip(".")],
        removal.USER: [*users, *people, os.environ.get("SUDO_USER", "")],
        removal.SERIAL: [*(row[0] for row in cells), *numbers],
        removal.UUID: [
            *(row[1] for row in cells),
            *_lines_of(SYS / "class/dmi/id/product_uuid"),
            *_lines_of(ETC / "machine-id"),
        ],
    }
    return {kind: list(dict.fromkeys(value for value in values if value)) for kind, values in found.items()}


def _lines_of(file: Path) -> list[str]:
    """Return the lines of a small file; none where it cannot be read."""
    with contextlib.suppress(OSError), file.open(encoding="utf-8", errors="replace") as there:
        return [line.strip() for line in there.read(65536).splitlines() if line.strip()]
    return []


def record(hosts: Sequence[str], users: Sequence[str]) -> dict[str, Any]:
    """Return a record of the node."""
    return {"texts": texts(), "names": names(hosts, users)}
