"""Read which container engine a node has: its socket, its processes, its unit and the owners of its programs."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..base import paths
from ..cards.users import owner_of
from ..engine import origin, packages
from .documents import read_json
from .listening import holders_of

ROOT = Path("/")
PROC = Path("/proc")
BROUGHT = Path(paths.BROUGHT)
# Where programs are that are installed by hand or with snap; sudo's PATH may lack them.
FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "opt/bin", "snap/bin")
ENVIRONMENT = {"LC_ALL": "C"}


def read_unit(module: AnsibleModule) -> dict[str, str]:
    """Read docker.service as systemd knows it; {} without systemd."""
    asked = ["systemctl", "show", origin.UNIT, f"--property={','.join(origin.PROPERTIES)}"]
    _, out, _ = module.run_command(asked, environ_update=ENVIRONMENT)
    read: dict[str, str] = origin.properties(out)
    return read


def brought() -> list[str]:
    """Packages that this project installed. Raises Damaged for a record that cannot be read."""
    record = (read_json(BROUGHT, {"packages": {str: [str]}}) or {"packages": {}})["packages"]
    return [name for names in record.values() for name in names]


def identify(module: AnsibleModule, family: str, unit: dict[str, str]) -> origin.Origin:
    """Read the node's engine and identify it."""
    client, daemon, containerd = (program(name) for name in ("docker", "dockerd", "containerd"))
    server = _server(unit)
    started = origin.started_program(unit)
    if started and not _below(started).exists():
        # The engine is gone, and somebody's unit for it is not.
        unit = {**unit, "LoadState": "not-found"}
    programs = [started, daemon, client, containerd, server.program if server else ""]
    files = [name for path in [*programs, unit.get("FragmentPath", "")] for name in origin.same_file(path)]
    found: origin.Origin = origin.identify(
        origin.Observed(
            client=client,
            daemon=daemon,
            unit=unit,
            socket=_named(_below(origin.SOCKET)) if os.path.lexists(_below(origin.SOCKET)) else "",
            server=server,
            owners=_owners(module, family, list(dict.fromkeys(files))),
            rootless=[] if origin.settled(unit) else _rootless(),
            containerd=containerd,
            kubernetes=bool(program("kubelet")),
        )
    )
    return found


def version_of(module: AnsibleModule, family: str, found: origin.Origin) -> str:
    """Return the version of an engine's package, or the one that its program prints; "" if neither is known."""
    query = packages.versions_query(family, [found.package]) if found.package and found.kind != "snap" else []
    if query:
        _, out, _ = module.run_command(query, environ_update=ENVIRONMENT)
        version: str = packages.versions(out).get(found.package, "")
        return version
    if found.kind != "unpackaged" or not found.program:
        return ""
    _, out, _ = module.run_command([found.program, "--version"], environ_update=ENVIRONMENT)
    printed: str = packages.printed_version(out)
    return printed


def report(module: AnsibleModule, family: str, unit: dict[str, str]) -> dict[str, Any]:
    """Return what the node's engine is, as Origin.as_dict does. Raises Damaged for a record that cannot be read."""
    found = identify(module, family, unit)
    result: dict[str, Any] = found.as_dict(version_of(module, family, found), brought())
    return result


def _below(path: str) -> Path:
    return ROOT / path.lstrip("/")


def _named(path: Path) -> str:
    """Return the path that a link leads to, as it is called on the node."""
    return f"/{os.path.relpath(os.path.realpath(path), os.path.realpath(ROOT))}"


def program(name: str) -> str:
    """Return the resolved path of a program; "" if no folder has it."""
    there = (ROOT / folder / name for folder in FOLDERS)
    return next((_named(path) for path in there if os.access(path, os.X_OK)), "")


def _server(unit: dict[str, str]) -> origin.Process | None:
    """Return the process that listens on the engine's socket; None if nothing does."""
    table = PROC / "net" / "unix"
    shown = table.read_text(encoding="utf-8", errors="replace") if table.exists() else ""
    inode = origin.listening(shown) or origin.listening(shown, _named(_below(origin.SOCKET)))
    if inode is None:
        return None
    main = int(unit.get("MainPID") or 0)
    # systemd keeps a socket open that it made, beside the service that uses it.
    for pid in (pid for pid in holders_of(inode, [main] if main else []) if pid != 1):
        return _process(pid, unit)
    return origin.Process(1, "systemd")


def _process(pid: int, unit: dict[str, str]) -> origin.Process:
    if str(pid) == unit.get("MainPID"):
        return origin.Process(pid, _exe(pid), origin.UNIT)
    cgroups = [PROC / str(each) / "cgroup" for each in (pid, 1)]
    name, _ = owner_of(*(path.read_text(encoding="utf-8") if path.exists() else "" for path in cgroups))
    return origin.Process(pid, _exe(pid), name or "")


def _exe(pid: int) -> str:
    """Return the path of a process's program, as it was when the process started; "" for one that has ended."""
    try:
        return str((PROC / str(pid) / "exe").readlink()).replace(" (deleted)", "")
    except OSError:
        return ""


def _rootless() -> list[str]:
    """Return the users other than root that run dockerd."""
    users = []
    for path in PROC.glob("[0-9]*/comm"):
        try:
            if path.read_text(encoding="utf-8", errors="replace").strip() == "dockerd" and path.stat().st_uid != 0:
                users.append(_name(path.stat().st_uid))
        except OSError:  # It has ended.
            continue
    return sorted(set(users))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _owners(module: AnsibleModule, family: str, files: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for query in origin.owners_queries(family, [file for file in files if _below(file).exists()]):
        _, out, _ = module.run_command(query, environ_update=ENVIRONMENT)
        found.update(origin.owners(query, out))
    return found
