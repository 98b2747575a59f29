"""Which container engine a node has, who installed it, and whether instances can use it.

An engine is identified by the process that listens on its socket and by the package that owns its program; the name of
one package says too little. Facts are read by ``node/engine_look.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..base.refusal import Refusal

SOCKET = "/run/docker.sock"
"""Where clients without a context of their own reach the engine; /var/run is a link to /run."""
UNIT = "docker.service"
PROPERTIES = (
    "ActiveState",
    "ExecStart",
    "FragmentPath",
    "LoadState",
    "MainPID",
    "NeedDaemonReload",
    "UnitFileState",
)
"""Properties of the unit that are read."""
ENGINES = {"docker-ce": "docker-ce", "docker-ee": "docker-ce", "docker.io": "docker.io", "moby-engine": "moby-engine"}
"""Packages with an engine, and what they are called here."""
CLIENTS = {"docker-ce": "docker-ce-cli", "moby-engine": "moby-cli"}
"""Packages with an engine's client, which an engine may lack; Debian's is ``packages.client_of``."""
PARTS = frozenset(
    {
        *ENGINES,
        *("containerd", "containerd.io", "docker-ce-cli", "docker-cli", "docker-engine", "moby-cli", "moby-containerd"),
        *("moby-runc", "podman-docker", "runc"),
    }
)
"""Packages of engines; none of them is installed beside an engine that others installed."""
OLDEST = (20, 10)
"""The first engine that runs containers on cgroup v2 (Docker's release notes of 20.10)."""
HABANA = "habana"
"""What the vendor's runtime is called in the engine's configuration."""
# What an engine logs of its normal work, such as its whole configuration; and when it logged something.
_NORMAL = re.compile(r"\blevel=(?:debug|info|warning)\b")
_TIME = re.compile(r'^time="?[^"\s]+"?\s*')
_SETTLED = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}


@dataclass(frozen=True)
class Process:
    """A process that listens on the engine's socket: its program's path, and its systemd unit."""

    pid: int
    program: str
    unit: str = ""


@dataclass(frozen=True)
class ObservedEngines:
    """Facts about the engines of a node. Paths are resolved; empty means that there is none."""

    client: str = ""
    """The program docker."""
    daemon: str = ""
    """The program dockerd where no unit names one."""
    unit: Mapping[str, str] = field(default_factory=dict)
    """Properties of docker.service."""
    socket: str = ""
    server: Process | None = None
    owners: Mapping[str, str] = field(default_factory=dict)
    """Packages by the path of a file that they own."""
    rootless: Sequence[str] = ()
    """Users with an engine of their own."""
    containerd: str = ""
    """The program containerd."""
    kubernetes: bool = False
    """Whether a kubelet is installed."""


@dataclass(frozen=True)
class EngineOrigin:
    """The engine of a node.

    kind: docker-ce, docker.io, moby-engine, package (another one), unpackaged, snap, podman, rootless, other (another
    process on the socket), kubernetes or containerd (no engine, but containerd, which a kubelet uses), or none.
    """

    kind: str
    package: str = ""
    program: str = ""
    unit: str = ""
    refusal: Refusal | None = None

    @property
    def present(self) -> bool:
        """Whether there is an engine, suitable or not."""
        return self.kind not in ("none", "containerd", "kubernetes")

    def as_dict(self, version: str, ours: Collection[str]) -> dict[str, Any]:
        """Return the result for a module. ours: packages that this project installed."""
        known = {key: value for key, value in asdict(self).items() if key != "refusal"}
        own = self.package in ours
        return {
            **known,
            "version": version,
            "ours": own,
            "by_others": self.present and not own,
            "suitable": self.present and self.refusal is None,
            **(self.refusal.as_keys() if self.refusal else {}),
        }


def note(report: Mapping[str, Any]) -> str:
    """Return the finding that the engine of others is used. report: of EngineOrigin.as_dict."""
    name = report["package"] or report["program"]
    version = f" {report['version']}" if report["version"] else ""
    return f"engine: {name}{version}, which others installed, is used as it is; no engine is installed."


def too_old(version: str) -> Refusal | None:
    """Return why an engine of this version cannot be used; None if it can, or its version is not known."""
    numbers = re.match(r"(?:\d+:)?(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= OLDEST:
        return None
    return Refusal(
        "engine_too_old",
        f"The container engine of this node is {version}, but instances need {'.'.join(map(str, OLDEST))} or newer. "
        "Upgrade it.",
    )


def fails_to_start(unit: Mapping[str, str]) -> bool:
    """Whether systemd has given up the engine's unit. unit: PROPERTIES."""
    return unit.get("ActiveState") == "failed"


def not_started(found: EngineOrigin, messages: Sequence[str]) -> Refusal:
    """Return why an engine of others whose unit has failed cannot be used. messages: the engine's last ones."""
    said = f"Its last message: {messages[-1]}" if messages else f"journalctl -u {UNIT} may show why."
    return Refusal(
        "engine_does_not_start",
        f"The container engine of this node ({found.package or found.program}), which others installed, does not "
        f"start: {UNIT} has failed. {said} Correct the cause, run systemctl start {UNIT}, then run again.",
    )


def errors_in(log: str) -> list[str]:
    """Return the errors in a log of the engine or of its unit, each one once, where it was printed last."""
    lines = [line for line in log.splitlines() if line.strip() and not _NORMAL.search(line)]
    last = {_TIME.sub("", line): number for number, line in enumerate(lines)}
    return [lines[number] for number in sorted(last.values())]


def without_client(found: EngineOrigin) -> Refusal | None:
    """Return why an engine that has no client cannot be used; None if its client has a package that is known here."""
    if not found.present or found.kind in (*CLIENTS, "docker.io"):
        return None
    return Refusal(
        "engine_without_client",
        f"{found.program} is a container engine, but its client, the program docker, is not on this node. Install the "
        "client of that engine.",
    )


def unmanaged(
    found: EngineOrigin, info: Mapping[str, Any] | None, habana_path: str, lacking: Sequence[str]
) -> list[Refusal]:
    """Return what instances need of an engine that this project does not manage, and that is missing.

    info: what docker info says, None where it does not answer. lacking: packages that are not installed.
    """
    if not found.present:
        return [
            Refusal(
                "engine_missing",
                "This node has no container engine, and container_runtime_manage: false leaves its installation to "
                "you. Install and start a Docker engine, or set container_runtime_manage: true.",
            )
        ]
    if found.refusal is not None:
        return [found.refusal]
    refusals = []
    if info is None:
        refusals.append(
            Refusal(
                "engine_not_running",
                f"The container engine of this node does not answer docker info, and container_runtime_manage: false "
                f"leaves it to you. Start it (systemctl start {UNIT}).",
            )
        )
    else:
        runtime = (info.get("Runtimes") or {}).get(HABANA) or {}
        old = too_old(str(info.get("ServerVersion") or ""))
        refusals += [old] if old else []
        if runtime.get("path") != habana_path:
            refusals.append(_no_runtime(str(runtime.get("path") or ""), habana_path))
    if lacking:
        refusals.append(
            Refusal(
                "engine_lacks_packages",
                f"{', '.join(lacking)} must be installed on this node, and container_runtime_manage: false leaves that "
                "to you. Install it.",
            )
        )
    return refusals


def _no_runtime(path: str, wanted: str) -> Refusal:
    there = f"has the runtime {HABANA} at {path}, not at {wanted}" if path else f"does not have the runtime {HABANA}"
    return Refusal(
        "engine_lacks_runtime",
        f"The container engine of this node {there}, and container_runtime_manage: false leaves its configuration to "
        f'you. Set "runtimes": {{"{HABANA}": {{"path": "{wanted}", "runtimeArgs": []}}}} in /etc/docker/daemon.json, '
        f"and run systemctl reload {UNIT}.",
    )


def properties(shown: str) -> dict[str, str]:
    """Properties of a unit from the output of systemctl show."""
    found: dict[str, str] = {}
    for name, given, value in (line.partition("=") for line in shown.splitlines()):
        # EnvironmentFiles has a line for each file.
        if given:
            found[name] = f"{found[name]} {value}" if name in found else value
    return found


def settled(unit: Mapping[str, str]) -> bool:
    """Whether the engine's unit is active, starts at boot, and is known to systemd as it is on the disk."""
    return all(unit.get(name) == value for name, value in _SETTLED.items())


def started_program(unit: Mapping[str, str]) -> str:
    """Path of the program that a unit starts; "" if systemd names none."""
    match = re.search(r"\bpath=(/\S+)", unit.get("ExecStart", ""))
    return match[1] if match else ""


def is_daemon(program: str) -> bool:
    """Whether a path is the one of an engine's program."""
    return program.endswith("/dockerd")


def listening(table: str, at: Collection[str]) -> list[int]:
    """Return the inodes of sockets that listen at paths, from the text of /proc/net/unix."""
    names = {*at, *(f"/var{path}" for path in at)}
    lines = [line.split(None, 7) for line in table.splitlines()[1:]]
    # __SO_ACCEPTCON of <linux/net.h>: connections that were accepted have the same path.
    return [
        int(columns[6])
        for columns in lines
        if len(columns) == 8 and columns[7] in names and int(columns[3], 16) & 0x10000
    ]


def owners_queries(family: str, files: Sequence[str]) -> list[list[str]]:
    """Return the commands that name the packages of existing files, for owners() to read."""
    if family == "Debian":
        return [["dpkg-query", "--search", *files]] if files else []
    # rpm does not print which of several files a package belongs to.
    return [["rpm", "--query", "--file", "--queryformat=%{NAME}\\n", file] for file in files if family == "RedHat"]


def owners(query: Sequence[str], listed: str) -> dict[str, str]:
    """Packages by file, from the output of one of owners_queries; files of no package are left out."""
    if query[0] == "rpm":
        # A file of no package is a sentence.
        names = [line for line in listed.splitlines() if line and " " not in line]
        return {query[-1]: names[0]} if names else {}
    found = re.findall(r"^([a-z0-9][a-z0-9+.-]*)(?::\w+)?(?:, [^:\n]+)*: (/.*)$", listed, re.MULTILINE)
    return {path: name for name, path in found}


def identify(observed: ObservedEngines) -> EngineOrigin:
    """Say which engine a node has."""
    server = observed.server
    # systemd listens for a service that a first request starts.
    if server is not None and server.pid != 1 and server.unit != UNIT:
        return _other(observed, server)
    if "/podman/" in observed.socket:
        return _podman(observed)
    load = observed.unit.get("LoadState", "loaded" if observed.unit.get("ActiveState") == "active" else "not-found")
    if load == "masked":
        return _masked(observed)
    if load != "not-found":
        return _of_unit(observed)
    return _without_unit(observed)


def _of_unit(observed: ObservedEngines) -> EngineOrigin:
    """The engine that docker.service starts."""
    program, fragment = started_program(observed.unit), observed.unit.get("FragmentPath", "")
    if not is_daemon(program):
        # A script or a program such as env, which starts the engine.
        program = observed.daemon or program
    owners = [_owner(observed, file) for file in (program, fragment, observed.daemon)]
    package = next((owner for owner in owners if owner in ENGINES), "") or next(filter(None, owners), "")
    kind = ENGINES.get(package, "package") if package else "unpackaged"
    refusal = None
    active = observed.unit.get("ActiveState") == "active"
    if not active and observed.unit.get("UnitFileState") == "disabled" and observed.rootless:
        return _rootless(observed)
    if active and not observed.socket:
        refusal = Refusal(
            "engine_not_on_socket",
            f"{UNIT} runs, but nothing listens on {SOCKET}, where instances reach their engine. Let the engine listen "
            "there as well (its option --host, or hosts in /etc/docker/daemon.json).",
        )
    return EngineOrigin(kind, package, program, UNIT, refusal)


def _without_unit(observed: ObservedEngines) -> EngineOrigin:
    """The engine of a node on which systemd knows no docker.service."""
    client = _owner(observed, observed.client)
    if _is_snap(observed.client):
        return _snap(observed.client, "")
    if "podman" in client or observed.client.endswith("/podman"):
        return _podman(observed)
    if observed.rootless:
        return _rootless(observed)
    if observed.daemon:
        package = _owner(observed, observed.daemon)
        return EngineOrigin(
            ENGINES.get(package, "package") if package else "unpackaged",
            package,
            observed.daemon,
            refusal=Refusal(
                "engine_without_unit",
                f"{observed.daemon} is a container engine, but systemd has no {UNIT} that starts it. A second engine "
                f"is not installed beside it. Install its unit as {UNIT}, or remove {package or 'the program'}.",
            ),
        )
    if observed.containerd:
        kind = "kubernetes" if observed.kubernetes else "containerd"
        return EngineOrigin(kind, _owner(observed, observed.containerd), observed.containerd)
    return EngineOrigin("none")


def _other(observed: ObservedEngines, server: Process) -> EngineOrigin:
    """An engine that another unit than docker.service runs has the socket."""
    if _is_snap(server.program) or server.unit.startswith("snap."):
        return _snap(server.program, server.unit)
    if server.program.endswith("/podman") or "podman" in server.unit:
        return _podman(observed)
    package = _owner(observed, server.program)
    return EngineOrigin(
        "other",
        package,
        server.program,
        server.unit,
        Refusal(
            "engine_of_other_unit",
            f"{server.program} ({server.unit or f'process {server.pid}'}) listens on {SOCKET}, but instances need an "
            f"engine that {UNIT} runs. A second engine is not installed beside it. Have it run as {UNIT}, or stop it "
            "and remove it.",
        ),
    )


def _snap(program: str, unit: str) -> EngineOrigin:
    return EngineOrigin(
        "snap",
        "docker",
        program,
        unit,
        Refusal(
            "engine_is_snap",
            f"The container engine of this node is the snap docker. It has no {UNIT}, and its confinement hides the "
            f"vendor's runtime and most directories from it. A second engine cannot share {SOCKET} with it. Remove it "
            "(snap remove docker), or use another node.",
        ),
    )


def _podman(observed: ObservedEngines) -> EngineOrigin:
    package = _owner(observed, observed.client) or "podman-docker"
    return EngineOrigin(
        "podman",
        package,
        observed.client,
        observed.server.unit if observed.server else "",
        Refusal(
            "engine_is_podman",
            f"The command docker or {SOCKET} of this node is Podman's, but instances need a Docker engine. Remove the "
            f"package {package} (and disable podman.socket); Podman itself may stay.",
        ),
    )


def _rootless(observed: ObservedEngines) -> EngineOrigin:
    return EngineOrigin(
        "rootless",
        _owner(observed, observed.daemon),
        observed.daemon,
        refusal=Refusal(
            "engine_is_rootless",
            f"The container engine of this node is rootless, of {', '.join(sorted(set(observed.rootless)))}, and "
            f"{UNIT} is not in use. Containers of a rootless engine get no cards. Enable root's engine "
            f"(systemctl enable --now {UNIT}), which may run beside it, or use another node.",
        ),
    )


def _masked(observed: ObservedEngines) -> EngineOrigin:
    package = _owner(observed, observed.daemon)
    return EngineOrigin(
        ENGINES.get(package, "package") if package else "unpackaged" if observed.daemon else "none",
        package,
        observed.daemon,
        UNIT,
        Refusal(
            "engine_masked",
            f"{UNIT} is masked, so that nothing may start the container engine. If that is not intended, run "
            f"systemctl unmask {UNIT} and run again.",
        ),
    )


def _is_snap(program: str) -> bool:
    return program == "/usr/bin/snap" or program.startswith(("/snap/", "/var/lib/snapd/"))


def _owner(observed: ObservedEngines, *files: str) -> str:
    """Package of the first of these files that has one. A merged /usr has two paths for each file."""
    for file in files:
        for name in same_file(file):
            if name in observed.owners:
                return observed.owners[name]
    return ""


def same_file(path: str) -> list[str]:
    """Paths of a file on a system whose /bin, /sbin and /lib may be links into /usr, the given one first."""
    if not path:
        return []
    if re.match(r"/usr/(?:bin|sbin|lib)/", path):
        return [path, path[len("/usr") :]]
    return [path, f"/usr{path}"] if re.match(r"/(?:bin|sbin|lib)/", path) else [path]
