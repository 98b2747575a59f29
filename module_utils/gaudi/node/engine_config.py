"""Read what a Docker engine runs with: its own answers, its process, its unit, and its configuration file."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..base.documents import Damaged
from ..base.refusal import Refusal
from ..engine import configuration, daemon, origin, unit_files
from ..engine import flags as arguments
from ..serving.plan import LABEL_PLAN
from . import engine_look
from .files import text_of

PROC = Path("/proc")
PID_FILE = Path("/run/docker.pid")
# What systemd is asked of the engine's unit.
PROPERTIES = (
    *("NeedDaemonReload", "DropInPaths", "MainPID", "Environment", "EnvironmentFiles"),
    *("FragmentPath", "ExecStart"),
)
# Folders of units in systemd's order: the first one that has a file counts (systemd.unit(5)).
UNIT_FOLDERS = tuple(
    Path(folder)
    for folder in (
        *("/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient"),
        *("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"),
    )
)
# What Ansible calls a backup (AnsibleModule.backup_local).
_COPY = re.compile(r"\.\d+\.(\d{4}-\d\d-\d\d@\d\d:\d\d:\d\d)~")
RESTART_ENDS = "a restart of the engine would end"
# Folders whose files a package manager of their own replaces.
_GENERATED = ("/nix/",)


@dataclass(frozen=True)
class ConfigFile:
    """The engine's configuration file."""

    path: str
    """As the engine is given it."""
    target: Path
    """The file that a link leads to, else the path itself."""
    raw: bytes
    writable: bool

    def check_writable(self, keys: Sequence[str]) -> None:
        """Refuse a file that is not to be changed; keys: what has to be set. Raises Refusal."""
        if keys and not self.writable:
            leads = "" if str(self.target) == self.path else f", a link to {self.target},"
            raise Refusal(
                "daemon_json_fixed",
                f"{self.path}{leads} cannot be changed: it is generated, immutable or on a read-only file system. "
                f"{', '.join(keys)} must be set there. Set them where the file is made, or replace it by a plain file.",
            )


def engine_info(module: AnsibleModule, limit: Sequence[str] = ()) -> dict[str, Any]:
    """Return the running engine's docker info; {} if no engine is installed or running. limit: as in engine_look."""
    docker = module.get_bin_path("docker")
    found: dict[str, Any] = engine_look.engine_info(module, docker, limit) if docker else {}
    return found


def environment_files(unit: dict[str, str]) -> dict[str, str]:
    """Return the text of the unit's environment files by path."""
    files = [Path(word) for word in unit.get("EnvironmentFiles", "").split() if word.startswith("/")]
    return {str(file): text_of(file) for file in files if file.is_file()}


def systemd_is_late(shown: Mapping[str, str]) -> bool:
    """Whether systemd has not read the current files of the engine's unit.

    shown: PROPERTIES as systemd prints them. NeedDaemonReload misses a unit's first drop-in, because systemd does not
    notice a directory created since its reload; and a file of the unit in a folder that comes before its own.
    """
    fragment, drop_ins = _unit_files()
    read, known = shown.get("DropInPaths", "").split(), shown.get("FragmentPath", "")
    unread = {path.name for path in drop_ins} - {Path(path).name for path in read}
    other = bool(fragment and known) and os.path.realpath(known) != os.path.realpath(fragment or "")
    gone = not all(Path(path).exists() for path in read)
    return shown.get("NeedDaemonReload") == "yes" or bool(unread) or gone or other


def _unit_files() -> tuple[Path | None, list[Path]]:
    """Return the file of the engine's unit, None without one, and its drop-ins in systemd's order.

    ``systemctl cat`` lists only the drop-ins that systemd knows already.
    """
    fragment = next((folder / origin.UNIT for folder in UNIT_FOLDERS if (folder / origin.UNIT).exists()), None)
    drop_ins: dict[str, Path] = {}
    # A drop-in replaces those of its name in later folders, and among those for all services.
    for kind in (f"{origin.UNIT}.d", "service.d"):
        for folder in UNIT_FOLDERS:
            for path in (folder / kind).glob("*.conf"):
                drop_ins.setdefault(path.name, path)
    return fragment, [drop_ins[name] for name in sorted(drop_ins)]


def unit_of(module: AnsibleModule) -> dict[str, str]:
    """Return PROPERTIES of the engine's unit; where systemd has not read its files yet, those that it will have."""
    shown: dict[str, str] = engine_look.unit_properties(module, *PROPERTIES)
    if not systemd_is_late(shown):
        return shown
    fragment, drop_ins = _unit_files()
    own = str(fragment or shown.get("FragmentPath", ""))
    found = unit_files.properties([text_of(Path(own)), *map(text_of, drop_ins)])
    paths = {"FragmentPath": own, "DropInPaths": " ".join(map(str, drop_ins))}
    return {**shown, **paths, **found} if found else shown


def read_engine(
    module: AnsibleModule, limit: Sequence[str] = (), by_others: bool | None = None
) -> configuration.EngineFacts:
    """Read the facts about the engine that its configuration is decided by.

    by_others: whether others installed it; without it, the record of installed packages counts.
    """
    info, unit = engine_info(module, limit), unit_of(module)
    texts = environment_files(unit)
    named = [unit.get("FragmentPath", ""), *unit.get("DropInPaths", "").split()]
    variables = daemon.words_as_pairs(unit.get("Environment", ""))
    for text in texts.values():
        variables.update(arguments.environment_file(text))
    program = module.get_bin_path("dockerd", opt_dirs=["/usr/sbin", "/usr/bin", "/usr/local/bin"])
    client = module.get_bin_path("docker")
    process, environment = _process(unit.get("MainPID", "0"))
    command = arguments.unit_command(unit.get("ExecStart", ""), variables)
    return configuration.EngineFacts(
        info=info,
        version=str(info.get("ServerVersion", "")) if info else _version(module, program) if program else "",
        installed=bool(program or client),
        ours=is_ours(module) if by_others is None else not by_others,
        command=command,
        process=process,
        environment=environment,
        files={**{path: text_of(Path(path)) for path in named if path}, **texts},
        absent=frozenset(path for path in configuration.named_files(command, process) if not Path(path).exists()),
    )


def _version(module: AnsibleModule, program: str) -> str:
    status, out, _err = module.run_command([program, "--version"])
    return out.partition("version ")[2].partition(",")[0] if status == 0 else ""


def is_ours(module: AnsibleModule) -> bool:
    """Whether this project installed an engine; beside one of others, only packages that instances need."""
    try:
        return not origin.ENGINES.keys().isdisjoint(engine_look.brought())
    except Damaged as damage:
        module.warn(f"{damage}. The engine counts as installed by others.")
        return False


def _process(main: str) -> tuple[list[str], dict[str, str]]:
    """Return command line and variables of the engine's process: of its unit, or the one that its own file names."""
    for number in (main, text_of(PID_FILE).strip()):
        words = text_of(PROC / number / "cmdline").split("\0") if number.strip("0").isdigit() else []
        if arguments.is_dockerd(words):
            pairs = (entry.partition("=")[::2] for entry in text_of(PROC / number / "environ").split("\0"))
            return words[:-1], dict(pairs)
    return [], {}


def read_config(path: str) -> ConfigFile:
    """Read the configuration file; a link to a file in a folder of root's is followed. Raises Refusal for others."""
    named = Path(path)
    linked = named.is_symlink()
    target = Path(os.path.realpath(named)) if linked else named
    if linked and not target.exists():
        raise Refusal(
            "daemon_json_link",
            f"{path} is a link to {named.readlink()}, which does not exist. Create that file, or remove the link.",
        )
    if target.exists() and not target.is_file():
        kind = "a directory" if target.is_dir() else "not a regular file"
        raise Refusal(
            "daemon_json_no_file",
            f"{target} is {kind}, where the engine's configuration file is expected. Move it away, or name the right "
            "file.",
        )
    if linked:
        _check_owners(path, target)
    folder = next(parent for parent in target.parents if parent.exists())
    writable = os.access(folder, os.W_OK) and (not target.exists() or os.access(target, os.W_OK))
    generated = str(target).startswith(_GENERATED)
    return ConfigFile(path, target, target.read_bytes() if target.exists() else b"", writable and not generated)


def copies_of(path: str) -> list[Path]:
    """Return the backups beside a configuration file, the oldest one first."""
    named = Path(path)
    dated = [(_COPY.fullmatch(file.name[len(named.name) :]), file) for file in named.parent.glob(f"{named.name}.*~")]
    return [file for _, file in sorted((match[1], file) for match, file in dated if match)]


def _check_owners(path: str, target: Path) -> None:
    """Refuse a link into a folder that another user than root may change. Raises Refusal."""
    others = [folder for folder in target.parents if folder.stat().st_uid not in (0, os.geteuid())]
    if others:
        raise Refusal(
            "daemon_json_link",
            f"{path} is a link to {target}, but {others[0]} belongs to another user than root. Root does not write "
            "there. Move the file to a folder of root's, or replace the link by the file.",
        )


def moved(engine: configuration.EngineFacts, existing: Mapping[str, Any]) -> str:
    """Return the data-root or storage-driver of the engine's next start, if its containers are elsewhere; else ""."""
    root, driver = configuration.moved_root(engine, existing), configuration.moved_driver(engine, existing)
    # Links may lead both paths to one place.
    if root and os.path.realpath(root) != os.path.realpath(engine.info["DockerRootDir"]):
        return f"data-root {root}"
    return f"storage-driver {driver}" if driver else ""


def lacks_init(engine: configuration.EngineFacts) -> bool:
    """Whether the running engine certainly has no program to start a container with --init."""
    searched = configuration.init_paths(engine)
    return bool(searched) and not any(os.access(path, os.X_OK) for path in searched)


def check_apply(
    module: AnsibleModule,
    engine: configuration.EngineFacts,
    existing: Mapping[str, Any],
    decision: configuration.Decision,
    keys: Sequence[str],
    path: str,
    limit: Sequence[str] = (),
) -> None:
    """Refuse what a running engine would have to do for some keys, if it harms containers of others. Raises Refusal.

    existing: the content of the configuration file at path. limit: as for engine_info.
    """
    action = daemon.apply_with(keys)
    if action == "restart":
        elsewhere = moved(engine, existing)
        removes = configuration.removes_at_restart(engine.version)
        if elsewhere or decision.ending or removes:
            needing, running = daemon.needs_restart(keys), running_containers(module, limit)
            removed = auto_removed(module, limit) if running and removes else []
            configuration.check_restart(decision, needing, running, ours=engine.ours, moved=elsewhere, removed=removed)
    elif action == "reload":
        # A restart adds these runtimes again.
        dropped = configuration.dropped_runtimes(engine, decision.merged)
        configuration.check_reload(containers_of(module, dropped, limit), dropped, keys, path)


def running_containers(module: AnsibleModule, limit: Sequence[str] = ()) -> dict[str, bool]:
    """Return the names of running containers, and whether each is an instance of this project.

    limit: as for engine_info. Raises Refusal if the engine does not answer.
    """
    listing = [*limit, "docker", "ps", "--format", f'{{{{.Names}}}}\t{{{{.Label "{LABEL_PLAN}"}}}}']
    status, out, err = module.run_command(listing)
    if status != 0:
        raise _unknown("docker ps", status, err, RESTART_ENDS)
    pairs = (line.partition("\t")[::2] for line in out.splitlines() if line)
    return {name: bool(label.strip()) for name, label in pairs}


def auto_removed(module: AnsibleModule, limit: Sequence[str] = ()) -> list[str]:
    """Return the names of running containers with ``--rm``. limit, Raises: as for running_containers."""
    found = _inspected(module, ["docker", "ps", "--quiet"], "{{.HostConfig.AutoRemove}}", limit, RESTART_ENDS)
    return [name for name, value in found.items() if value == "true"]


def containers_of(module: AnsibleModule, runtimes: Collection[str], limit: Sequence[str] = ()) -> dict[str, str]:
    """Return which containers, running or not, have one of some runtimes: the runtime by name.

    limit: as for engine_info. Raises Refusal if the engine does not answer.
    """
    if not runtimes:
        return {}
    listing, would = ["docker", "ps", "--all", "--quiet"], "a reload of the engine would keep from starting"
    found = _inspected(module, listing, "{{.HostConfig.Runtime}}", limit, would)
    return {name: runtime for name, runtime in found.items() if runtime in runtimes}


def _inspected(
    module: AnsibleModule, listing: Sequence[str], field: str, limit: Sequence[str], would: str
) -> dict[str, str]:
    """Return a field of containers by their names. listing: prints their ids. would: what is known by it."""
    status, out, err = module.run_command([*limit, *listing])
    if status != 0:
        raise _unknown("docker ps", status, err, would)
    if not out.split():
        return {}
    inspect = [*limit, "docker", "container", "inspect", "--format", f"{{{{.Name}}}}\t{field}", *out.split()]
    status, out, err = module.run_command(inspect)
    # A container that was removed in between is named, and the others are printed.
    if status != 0 and (not err or any("no such container" not in line.lower() for line in err.splitlines() if line)):
        raise _unknown("docker container inspect", status, err, would)
    return dict(line.lstrip("/").partition("\t")[::2] for line in out.splitlines() if line)


def _unknown(command: str, status: int, err: str, would: str) -> Refusal:
    return Refusal(
        "containers_unknown",
        f"{command} failed with status {status} ({err.strip()}), so it is not known which containers {would}. Make the "
        "engine answer, then run again.",
    )
