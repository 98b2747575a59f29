"""Read which container engine a node has: its socket, its processes, its unit and the owners of its programs."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..base import paths
from ..base.printable import printable
from ..base.refusal import Refusal
from ..cards.users import owner_of
from ..engine import origin, packages
from .documents import read_json
from .listening import holders_of
from .package_states import family as family_of_node
from .package_states import missing

ROOT = Path("/")
PROC = Path("/proc")
APPARMOR = "/sys/module/apparmor/parameters/enabled"
BROUGHT = Path(paths.BROUGHT)
# Where programs are that are installed by hand or with snap; sudo's PATH may lack them.
FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "opt/bin", "snap/bin")

# Lines of the engine's log that are read, and those of them that a message shows.
LOG_LINES = 50
SHOWN_LINES = 6


def unit_properties(module: AnsibleModule, *names: str) -> dict[str, str]:
    """Return properties of the engine's unit as systemd knows it; {} without systemd."""
    _, out, _ = module.run_command(["systemctl", "show", origin.UNIT, f"--property={','.join(names)}"])
    read: dict[str, str] = origin.properties(out)
    return read


def brought() -> list[str]:
    """Packages that this project installed. Raises Damaged for a record that cannot be read."""
    record = (read_json(BROUGHT, {"packages": {str: [str]}}) or {"packages": {}})["packages"]
    return [name for names in record.values() for name in names]


def identify(module: AnsibleModule, family: str, unit: dict[str, str]) -> origin.EngineOrigin:
    """Read the node's engine and identify it."""
    client, daemon, containerd = (_resolved(name) for name in ("docker", "dockerd", "containerd"))
    server = _server(unit)
    started = origin.started_program(unit)
    if started and not _below(started).exists():
        # The engine was removed, but a unit for it stayed.
        unit = {**unit, "LoadState": "not-found"}
    programs = [started, daemon, client, containerd, server.program if server else ""]
    files = [name for path in [*programs, unit.get("FragmentPath", "")] for name in origin.same_file(path)]
    found: origin.EngineOrigin = origin.identify(
        origin.ObservedEngines(
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


def init_package(module: AnsibleModule) -> tuple[str, str]:
    """Return the node's family, and the package with which its engine's program for ``--init`` came; "" for none."""
    family = family_of_node()
    found = identify(module, family, unit_properties(module, *origin.PROPERTIES))
    return family, found.package if found.unit == origin.UNIT else ""


def version_of(module: AnsibleModule, family: str, found: origin.EngineOrigin) -> str:
    """Return the version of an engine's package, or the one that its program prints; "" if neither is known."""
    query = packages.query(family, [found.package]) if found.package and found.kind != "snap" else []
    if query:
        _, out, _ = module.run_command(query)
        version: str = packages.versions(out).get(found.package, "")
        return version
    if found.kind != "unpackaged" or not origin.is_daemon(found.program):
        return ""
    _, out, _ = module.run_command([found.program, "--version"])
    printed: str = packages.printed_version(out)
    return printed


@dataclass(frozen=True)
class NodeEngine:
    """The engine of a node, and what the node needs for it.

    report: EngineOrigin.as_dict. client: path of docker, "" without one. packages: those that the node needs;
    missing: those of them that are not installed.
    """

    origin: origin.EngineOrigin
    report: Mapping[str, Any]
    unit: Mapping[str, str]
    client: str
    packages: list[str]
    missing: list[str]


def look(module: AnsibleModule, os_release: str, requested: Sequence[str], *, builds: bool) -> NodeEngine:
    """Read a node's engine. Raises Damaged for a record of packages that cannot be read.

    os_release: the text of this file. requested: packages that the site names. builds: whether images are built on the
    node.
    """
    family, of_engine = packages.family_of(os_release), packages.client_of(os_release)
    unit, client = unit_properties(module, *origin.PROPERTIES), program("docker")
    found = identify(module, family, unit)
    version = version_of(module, family, found)
    if found.present and found.refusal is None:
        found = replace(found, refusal=origin.too_old(version) or (None if client else origin.without_client(found)))
    names = brought()
    by_others = found.present and found.package not in names
    if by_others and found.refusal is None and origin.fails_to_start(unit):
        found = replace(found, refusal=origin.not_started(found, last_messages(module)))
    report = found.as_dict(version, names)
    # The docker.io of others may have come without its client, whose package fits no other engine.
    others = origin.PARTS - ({of_engine} if found.kind == "docker.io" else set()) if report["by_others"] else ()
    enabled = _below(APPARMOR)
    apparmor = enabled.exists() and enabled.read_text(encoding="ascii").strip() == "Y"
    needed = packages.engine_packages(family, apparmor, requested, others, of_engine)
    if report["by_others"] and not client and found.kind in origin.CLIENTS:
        needed.append(origin.CLIENTS[found.kind])
    if builds and client and found.refusal is None:
        needed += _builder(module, client, [found.package] if report["by_others"] else needed)
    return NodeEngine(found, report, unit, client, needed, missing(module, family, needed))


def refusals(module: AnsibleModule, engine: NodeEngine, *, manage: bool, habana_path: str) -> list[Refusal]:
    """Return why instances cannot use the engine. manage: whether this project installs and configures it."""
    if manage:
        return [engine.origin.refusal] if engine.origin.refusal else []
    found: list[Refusal] = origin.unmanaged(
        engine.origin,
        (engine_info(module, engine.client) or None) if engine.client and not engine.origin.refusal else None,
        habana_path,
        [name for name in engine.missing if name not in {*origin.PARTS, "apparmor"}],
    )
    return found


def last_messages(module: AnsibleModule) -> list[str]:
    """Return the engine's last errors, or systemd's messages about its unit if it printed none."""
    show = ["journalctl", f"--unit={origin.UNIT}", f"--lines={LOG_LINES}", "--no-pager", "--quiet", "--output=cat"]
    for source in ("dockerd", "systemd"):
        _code, log, _err = module.run_command([*show, f"--identifier={source}"])
        errors = [printable(line) for line in origin.errors_in(log)]
        if errors:
            return errors[-SHOWN_LINES:]
    return []


def engine_info(module: AnsibleModule, client: str, limit: Sequence[str] = ()) -> dict[str, Any]:
    """Return the running engine's docker info; {} if it does not answer.

    client: path of the program docker. limit: a command in front that ends it if the engine does not answer.
    """
    code, out, _ = module.run_command([*limit, client, "info", "--format", "{{json .}}"])
    if code != 0:
        return {}
    try:
        info: dict[str, Any] = json.loads(out)
    except json.JSONDecodeError:
        # A program with the name docker that is no client of Docker.
        return {}
    # If the engine does not answer, the client still exits with status 0.
    return {} if info.get("ServerErrors") else info


def _builder(module: AnsibleModule, client: str, needed: Sequence[str]) -> list[str]:
    """Return the missing package with the builder of the engine's client; [] if the client has it."""
    _, version, _ = module.run_command([client, "--version"])
    code, _, _ = module.run_command([client, "buildx", "version"])
    package = packages.builder_package(needed, version, code == 0)
    return [package] if package else []


def _below(path: str) -> Path:
    return ROOT / path.lstrip("/")


def _named(path: Path) -> str:
    """Return the path that a link leads to, as it is called on the node."""
    return f"/{os.path.relpath(os.path.realpath(path), os.path.realpath(ROOT))}"


def program(name: str) -> str:
    """Return the path of a program; "" if no folder has it."""
    there = (f"/{folder}/{name}" for folder in FOLDERS)
    return next((path for path in there if os.access(_below(path), os.X_OK)), "")


def _resolved(name: str) -> str:
    """Return the path of a program without links; "" if no folder has it."""
    path = program(name)
    return _named(_below(path)) if path else ""


def _server(unit: dict[str, str]) -> origin.Process | None:
    """Return the process that listens on the engine's socket; None if nothing does.

    A container that has the node's network may run an engine of its own, which listens at a path of the same name.
    """
    table = PROC / "net" / "unix"
    shown = table.read_text(encoding="utf-8", errors="replace") if table.exists() else ""
    inodes = origin.listening(shown, (origin.SOCKET, _named(_below(origin.SOCKET))))
    main = int(unit.get("MainPID") or 0)
    found = [server for inode in inodes for server in [_listener(inode, main)] if server is not None]
    # The process of the engine's unit comes first.
    return min(found, key=lambda server: server.unit != origin.UNIT, default=None)


def _listener(inode: int, main: int) -> origin.Process | None:
    """Return the process that has a socket; None if it is in a container. main: of the engine's unit."""
    # systemd keeps a socket open that it made, beside the service that uses it.
    for pid in (pid for pid in holders_of(inode, [main] if main else []) if pid != 1):
        if pid == main:
            return origin.Process(pid, _exe(pid), origin.UNIT)
        unit, container = _place(pid)
        return None if container else origin.Process(pid, _exe(pid), unit)
    return origin.Process(1, "systemd")


def _place(pid: int) -> tuple[str, bool]:
    """Return a process's systemd unit ("" without one), and whether it is in a container."""
    cgroups = [PROC / str(each) / "cgroup" for each in (pid, 1)]
    texts = [path.read_text(encoding="utf-8") if path.exists() else "" for path in cgroups]
    unit, container = owner_of(*texts)
    return unit or "", container is not None


def _exe(pid: int) -> str:
    """Return the path of a process's program, as it was when the process started; "" for one that has ended."""
    try:
        return str((PROC / str(pid) / "exe").readlink()).replace(" (deleted)", "")
    except OSError:
        return ""


def _rootless() -> list[str]:
    """Return the users other than root that run dockerd, outside containers."""
    users = []
    for path in PROC.glob("[0-9]*/comm"):
        try:
            if path.read_text(encoding="utf-8", errors="replace").strip() != "dockerd" or path.stat().st_uid == 0:
                continue
            if not _place(int(path.parent.name))[1]:
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
        _, out, _ = module.run_command(query)
        found.update(origin.owners(query, out))
    return found
