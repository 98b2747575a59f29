"""Decide what this project changes in an engine's configuration, how the engine applies it, and what is refused.

An engine that this project did not install gets the runtime, and what the site's inventory sets itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.refusal import Refusal
from . import daemon
from . import flags as arguments

# Keys of ``proxies`` in daemon.json, which are flags as well, by the variable of the engine's environment.
_PROXY_KEYS = {"HTTP_PROXY": "http-proxy", "HTTPS_PROXY": "https-proxy", "NO_PROXY": "no-proxy"}
# Settings of an engine that this project installs, where the site sets none; and live-restore.
LOG_OPTIONS = {"max-size": "50m", "max-file": "5"}
_IN_SWARM = ("active", "pending", "locked")
_SWARM = "the engine is in swarm mode"
# Runtimes that an engine adds when it starts. It has runc after a reload as well, and since 23 needs no entry for the
# others (reloadPlatform in moby, daemon/reload_unix.go; seen with 20.10.24).
_STOCK = "runc"
_BUILT_IN = ("io.containerd.runc.v2", "io.containerd.runtime.v1.linux")
_KEEPS_BUILT_IN = 23
# The first engine that does not remove running containers with --rm when it starts, whatever live-restore is (moby
# issue 46308; release notes of 24.0.8; removal seen with 20.10.24).
_KEEPS_AUTO_REMOVE = (24, 0, 8)
_UNIT = "the unit docker.service"
# docker info has no version of a program that is missing, or that prints another line than tini (seen with 20.10.24;
# fillDaemonInfo and parseInitVersion in moby).
_NO_VERSION = "N/A"
# Folders that newer engines search before PATH, with and without a folder of their own (lookupBinPath in moby,
# daemon/config/config_linux.go).
_LIBEXEC = ("/usr/local/libexec", "/usr/libexec", "/usr/local/lib", "/usr/lib")
# Debian's docker.io takes docker-init from a package of its own.
_WITH_INIT = {"docker.io": "docker.io tini"}


@dataclass(frozen=True)
class EngineFacts:
    """Facts about an engine: what it tells itself, its arguments, and its files."""

    info: Mapping[str, Any] = field(default_factory=dict)
    """What docker info prints; empty if no engine answers."""
    version: str = ""
    """Of the engine or its program; "" if none is installed."""
    installed: bool = False
    """Whether a program of an engine is on the node."""
    ours: bool = False
    """Whether this project installed it."""
    command: Sequence[str] = ()
    """The words of the unit's command."""
    process: Sequence[str] = ()
    """The words of the running process's command line."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Text of the unit's files (fragment, drop-ins, environment files) by path."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the running process."""
    absent: Collection[str] = ()
    """Configuration files that the unit or the running process names, and that do not exist."""

    @property
    def flags(self) -> dict[str, list[str]]:
        """Return flags of the unit and of the process; the unit's count where both set one."""
        unit = arguments.parse(self.command) if arguments.is_dockerd(self.command) else {}
        running = arguments.parse(self.process) if arguments.is_dockerd(self.process) else {}
        return {**running, **unit}

    @property
    def managed_as_ours(self) -> bool:
        """Whether our defaults are for this engine; one that is not there yet is installed by this project."""
        return self.ours or not self.installed

    def source_of(self, key: str) -> str:
        """Return what sets a key by a flag, for messages."""
        in_unit = key in arguments.parse(self.command)
        return arguments.named_in(key, self.files) or (_UNIT if in_unit else "the command line of the running engine")

    def swarm(self) -> bool:
        """Whether the engine is part of a swarm."""
        return (self.info.get("Swarm") or {}).get("LocalNodeState") in _IN_SWARM


@dataclass(frozen=True)
class RequestedConfiguration:
    """Settings of the site; what it does not set is empty."""

    live_restore: bool | None = None
    log_options: Mapping[str, Any] = field(default_factory=dict)
    runtimes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    additions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    proxies: Mapping[str, str] = field(default_factory=dict)
    """Variables of the engine's environment."""


@dataclass(frozen=True)
class Decision:
    """The merged configuration, and what of it is compared with the running engine."""

    merged: dict[str, Any]
    desired: dict[str, dict[str, Any]]
    """The parts that were merged, as ``daemon.merge`` takes them."""
    compared: dict[str, Any]
    ending: str = ""
    """Why running containers end when the engine restarts; "" if they survive."""
    notes: tuple[str, ...] = ()


def config_file(engine: EngineFacts, path: str) -> str:
    """Return the configuration file that the engine reads. path: the one that it reads without a flag.

    Raises Refusal if the running engine was started with another file than its unit names now: what is written there
    would have no effect.
    """
    unit, running = _file_of(engine.command, path), _file_of(engine.process, path)
    if unit and running and unit != running:
        # Without the flag a missing file is an empty one; with it, dockerd ends (loadDaemonCliConfig in moby).
        if unit in engine.absent and arguments.CONFIG_FILE in arguments.parse(engine.command):
            raise Refusal(
                "config_file_absent",
                f"{engine.source_of(arguments.CONFIG_FILE)} starts the engine with the configuration file {unit}, "
                f"which does not exist; the running engine reads {running}: its unit was changed after its last start. "
                f"Do not restart the engine before {unit} exists: it would not start. Create {unit} with the settings "
                f"that the engine is to have, or take the change back (then systemctl daemon-reload). Then run again.",
            )
        raise Refusal(
            "config_file_not_loaded",
            f"{engine.source_of(arguments.CONFIG_FILE)} starts the engine with the configuration file {unit}, but the "
            f"running engine reads {running}: its unit was changed after its last start. Settings in {unit} would have "
            f"no effect, and at its next start the engine would not have those of {running}. Restart the engine "
            "(systemctl daemon-reload, then systemctl restart docker; without live-restore this ends its containers), "
            "or take the change back. Then run again.",
        )
    return unit or running or path


def init_paths(engine: EngineFacts) -> list[str]:
    """Return the paths of the program that the engine starts for ``--init``, if docker info has no version of it.

    [] if it has one, or if it is not known where the engine searches. With a file at none of them, no container with
    --init starts.
    """
    name = str(engine.info.get("InitBinary") or "")
    if not name or (engine.info.get("InitCommit") or {}).get("ID") != _NO_VERSION:
        return []
    if "/" in name:
        return [name]
    searched = [folder for folder in engine.environment.get("PATH", "").split(":") if folder]
    known = [path for folder in _LIBEXEC for path in (f"{folder}/docker/{name}", f"{folder}/{name}")]
    return [*known, *(f"{folder}/{name}" for folder in searched)] if searched else []


def init_advice(family: str, package: str) -> str:
    """Return how the program for ``--init`` comes back. package: the one that the engine comes with; "" for none.

    Another engine's package would remove the engine.
    """
    if not package:
        return "It belongs to the engine, which no package owns: copy it from where the engine came."
    again = "dnf reinstall" if family == "RedHat" else "apt-get install --reinstall"
    return (
        f"It comes with the engine: {again} {_WITH_INIT.get(package, package)} installs it again, and may restart the "
        "engine."
    )


def needs_init(engine: EngineFacts, existing: Mapping[str, Any], image: str) -> str:
    """Return which containers of this run need the program for ``--init``; "" if none does.

    existing: the content of the configuration file. image: the one that a container with --init inspects; "" for none.
    """
    flag = arguments.last(engine.flags, "init")
    if arguments.as_bool(flag) or (not flag and existing.get("init") is True):
        return "The engine is set to start every container with it (init), so that no instance starts."
    return f"Cards and links are checked by a container of {image} that needs it (docker run --init)." if image else ""


def without_init(engine: EngineFacts, needs: str, advice: str) -> Refusal:
    """Return the refusal of an engine without the program for ``--init``.

    needs: of needs_init. advice: of init_advice.
    """
    name = engine.info["InitBinary"]
    return Refusal(
        "engine_lacks_init",
        f"The engine finds no program {name}, and docker info reports no version of it. {needs} {advice}",
    )


def named_files(*commands: Sequence[str]) -> list[str]:
    """Return the configuration files that command lines of an engine name by a flag."""
    return [file for file in (_file_of(words, "") for words in commands) if file]


def _file_of(words: Sequence[str], path: str) -> str:
    """Return the configuration file of a command line; "" if it is not the engine's. path: the one without a flag."""
    if not arguments.is_dockerd(words):
        return ""
    return arguments.last(arguments.parse(words), arguments.CONFIG_FILE) or path


def decide(engine: EngineFacts, existing: Mapping[str, Any], requested: RequestedConfiguration, path: str) -> Decision:
    """Merge what is requested into an engine's configuration.

    existing: the content of its file. Raises Refusal, before anything is changed, for an engine that cannot run
    instances, and for settings that contradict each other.
    """
    flags = engine.flags
    check_suitable(engine, existing, path)
    _check_twice(engine, existing, path)
    _check_swarm(engine, existing, requested, path)
    desired, notes = _desired(engine, requested)
    desired["runtimes"] = _runtimes(engine, existing, requested, path)
    notes += _judge_proxies(engine, existing, requested, path)
    _check_contradictions(engine, desired)
    merged = daemon.merge(existing, desired, path, flags)
    if requested.log_options and not desired["defaults"].items() <= merged.items():
        setter = next((engine.source_of(key) for key in ("log-driver", "log-opts") if key in flags), path)
        notes.append(f"container_runtime_log_options is not used: {setter} configures logs already.")
    live = merged.get("live-restore")
    if live is None:
        live = engine.info.get("LiveRestoreEnabled", False)
    if "live-restore" in flags:
        # A running engine has the flag that it was started with, whatever its unit says since.
        started = arguments.parse(engine.process) if arguments.is_dockerd(engine.process) else flags
        live = arguments.as_bool(arguments.last(started, "live-restore"))
    return Decision(
        merged=merged,
        desired=desired,
        compared=merged if engine.managed_as_ours else _ours_of(merged, desired),
        ending=_ending(engine, bool(live)),
        notes=tuple(notes),
    )


def _ending(engine: EngineFacts, live: bool) -> str:
    """Return why a restart of the engine ends its containers; "" if they survive. live: whether live-restore is on."""
    if engine.swarm():
        return _SWARM
    return "" if live else "live-restore is off"


def _desired(engine: EngineFacts, requested: RequestedConfiguration) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the parts to merge, and notes on what is left out."""
    ours = engine.managed_as_ours
    live, log_options = requested.live_restore, requested.log_options or (LOG_OPTIONS if ours else {})
    notes = []
    if engine.swarm():
        if live:
            raise _in_swarm("container_runtime_live_restore is true", "Set container_runtime_live_restore: false")
        if live is None and ours:
            notes.append("live-restore is not set: the engine is in swarm mode. Its restart ends all containers.")
    elif live is None and ours and "live-restore" not in engine.flags:
        live = True
    return {
        "settings": {} if live is None else {"live-restore": live},
        "defaults": {"log-driver": "json-file", "log-opts": dict(log_options)} if log_options else {},
        "additions": {key: list(values) for key, values in requested.additions.items()},
    }, notes


def _runtimes(
    engine: EngineFacts, existing: Mapping[str, Any], requested: RequestedConfiguration, path: str
) -> dict[str, dict[str, Any]]:
    """Return the runtimes to merge; one that others registered for the same program stays as they wrote it.

    Raises Refusal if the owner of an engine uses the name for another program.
    """
    present = existing.get("runtimes")
    found = {}
    for name, runtime in requested.runtimes.items():
        theirs = present.get(name) if isinstance(present, Mapping) else None
        if engine.managed_as_ours or not isinstance(theirs, Mapping):
            found[name] = dict(runtime)
            continue
        if theirs.get("path") != runtime["path"]:
            raise Refusal(
                "runtime_differs",
                f"{path} registers the runtime {name} as {theirs.get('path')}, but this site uses {runtime['path']}. "
                "The engine is not this project's, so its entry is not overwritten. Set container_runtime_habana_path "
                "to that program, or remove the entry.",
            )
        found[name] = dict(theirs)
    return found


def _in_swarm(found: str, advice: str) -> Refusal:
    return Refusal(
        "swarm_live_restore",
        f"{found}, but the engine is in swarm mode, and does not start with live-restore. {advice}, or let the node "
        "leave the swarm.",
    )


def _check_swarm(
    engine: EngineFacts, existing: Mapping[str, Any], requested: RequestedConfiguration, path: str
) -> None:
    """Refuse a swarm's engine whose file sets live-restore: it takes it up by a reload, and does not start again.

    Seen with 20.10.24. Raises Refusal, unless the site sets live-restore itself.
    """
    if engine.swarm() and requested.live_restore is None and existing.get("live-restore") is True:
        raise _in_swarm(f"{path} sets live-restore", "Remove it there, or set container_runtime_live_restore: false")


def _ours_of(merged: Mapping[str, Any], desired: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the part of a configuration that this project wants; the engine's owner applies the rest."""
    keys = {*desired["settings"], *desired["defaults"]}
    found = {key: merged[key] for key in keys & merged.keys()}
    found.update({key: list(values) for key, values in desired["additions"].items() if values and key in merged})
    runtimes = merged.get("runtimes", {})
    return {**found, "runtimes": {name: runtimes[name] for name in desired["runtimes"] if name in runtimes}}


def check_suitable(engine: EngineFacts, existing: Mapping[str, Any], path: str) -> None:
    """Refuse an engine whose containers are not run by the node's root. Raises Refusal."""
    options = {str(option).partition(",")[0] for option in engine.info.get("SecurityOptions") or ()}
    flags = engine.flags
    if "name=rootless" in options or arguments.as_bool(arguments.last(flags, "rootless")):
        raise Refusal(
            "engine_is_rootless",
            "The engine that answers is rootless, but instances need devices and files of the node's root. Run an "
            "engine as root on this node, and stop the rootless one or unset DOCKER_HOST and docker's context for "
            "root.",
        )
    remapped = arguments.last(flags, "userns-remap") or existing.get("userns-remap")
    if "name=userns" in options or remapped:
        setter = engine.source_of("userns-remap") if "userns-remap" in flags else path
        raise Refusal(
            "engine_userns_remap",
            f"{setter} sets userns-remap: root in containers is another user of the node, who may neither open the "
            "cards' devices nor read the instances' files. Remove userns-remap and restart the engine, or use another "
            "node.",
        )


def _check_twice(engine: EngineFacts, existing: Mapping[str, Any], path: str) -> None:
    """Refuse a key that is a flag and in the file. Raises Refusal."""
    proxies = existing.get("proxies")
    keys = {*existing, *(proxies if isinstance(proxies, Mapping) else ())}
    twice = sorted((keys & engine.flags.keys()) - arguments.MERGED)
    if twice:
        raise Refusal(
            "flag_and_key",
            f"{path} sets {', '.join(twice)}, and so does {engine.source_of(twice[0])} by a flag. The engine does not "
            "start with both. Remove one of them.",
        )


def _check_contradictions(engine: EngineFacts, desired: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a setting that a flag contradicts. Raises Refusal."""
    flags = engine.flags
    wrong = []
    for key, value in desired["settings"].items():
        if key in flags and arguments.as_bool(flags[key][-1]) is not value:
            wrong.append((key, str(value).lower(), flags[key][-1]))
    for name, runtime in desired["runtimes"].items():
        for given in flags.get("runtimes", ()):
            if given.partition("=")[0] == name and given.partition("=")[2] != runtime["path"]:
                wrong.append(("runtimes", f"{name}={runtime['path']}", given))
    for key, values in desired["additions"].items():
        present = {value.rstrip("/") for value in flags.get(key, ())}
        lacking = [value for value in values if value.rstrip("/") not in present]
        if key in flags and lacking:
            wrong.append((key, ", ".join(lacking), ", ".join(flags[key])))
    for key, value, given in wrong:
        raise Refusal(
            "flag_contradicts",
            f"{engine.source_of(key)} sets {key} to {given} by a flag, but {value} is needed. The engine does not "
            "start if the file sets it as well. Change the flag, or remove it so that the file can set it.",
        )


def _judge_proxies(
    engine: EngineFacts, existing: Mapping[str, Any], requested: RequestedConfiguration, path: str
) -> list[str]:
    """Compare proxies of the engine's file or flags, which win over its environment, with those of the inventory.

    Raises Refusal for a proxy that differs; hosts without a proxy are a note. No value is shown, as it may be secret.
    """
    section = existing.get("proxies")
    found = dict(section) if isinstance(section, Mapping) else {}
    found.update({key: engine.flags[key][-1] for key in _PROXY_KEYS.values() if key in engine.flags})
    notes = []
    for name, key in _PROXY_KEYS.items():
        asked = requested.proxies.get(name)
        if not found.get(key) or not asked or not daemon.differs(name, asked, {name: found[key]}):
            continue
        setter = engine.source_of(key) if key in engine.flags else f"{path} (proxies)"
        differs = (
            f"{setter} sets {key}, which differs from container_runtime_{name.lower()}. The engine uses the former."
        )
        if name != "NO_PROXY":
            raise Refusal("proxies_differ", f"{differs} Set both to the same value, or remove {key} there.")
        notes.append(differs)
    return notes


def written_proxies(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the role container_runtime writes. given: the site's, "" where it sets none."""
    if not any(given.get(name) for name in ("HTTP_PROXY", "HTTPS_PROXY")):
        return {}
    return {name: value for name, value in given.items() if value}


def own_variables(engine: EngineFacts, names: Sequence[str], files: Mapping[str, str]) -> list[str]:
    """Return those of some variables for which the engine is restarted: on one of others, those of our own file.

    files: the text of our files, by path.
    """
    texts = files.get(daemon.OWN_VARIABLES, ""), engine.files.get(daemon.OWN_VARIABLES, "")
    own = {name for text in texts for name in arguments.environment_file(text)}
    return [name for name in names if engine.managed_as_ours or name in own]


def stale_proxies(engine: EngineFacts, requested: RequestedConfiguration) -> list[str]:
    """Return proxies that the running process has otherwise; those of environment files of others are not judged."""
    others = {
        name
        for path, text in engine.files.items()
        if path != daemon.OWN_VARIABLES
        for name in arguments.environment_file(text)
    }
    # What our file sets, and will not set any more.
    gone = arguments.environment_file(engine.files.get(daemon.OWN_VARIABLES, "")).keys() - requested.proxies.keys()
    stale = {name for name, value in requested.proxies.items() if daemon.differs(name, value, engine.environment)}
    stale |= {name for name in gone & engine.environment.keys() if daemon.differs(name, "", engine.environment)}
    return sorted(stale - others) if engine.process else []


def moved_root(engine: EngineFacts, existing: Mapping[str, Any]) -> str:
    """Return where a restarted engine would keep containers, if the running one keeps them elsewhere; else "".

    Its owner has changed unit or file, and not restarted it since.
    """
    now = str(engine.info.get("DockerRootDir") or "")
    if not now or not arguments.is_dockerd(engine.command):
        return ""
    root = daemon.data_root({}, arguments.parse(engine.command), existing)
    return "" if root.rstrip("/") == now.rstrip("/") else root


def moved_driver(engine: EngineFacts, existing: Mapping[str, Any]) -> str:
    """Return with which storage driver an engine would restart, if the running one uses another; else "".

    Not known where containerd keeps the images, whose drivers have other names.
    """
    flags = arguments.parse(engine.command) if arguments.is_dockerd(engine.command) else {}
    driver = arguments.last(flags, "storage-driver") or str(existing.get("storage-driver") or "")
    now = engine.info.get("Driver")
    return driver if now and driver != now and not daemon.in_containerd(engine.info) else ""


def dropped_runtimes(engine: EngineFacts, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the runtimes of a running engine that it would drop when it reloads its file: their entries by name.

    content: of the file. With ``runtimes`` in it, only these stay, and what the engine needs no entry for: runtimes of
    flags (--add-runtime) are dropped by every engine, its own by one before 23. Containers of a dropped runtime run on,
    and are not started again.
    """
    present = content.get("runtimes")
    if not isinstance(present, Mapping):
        return {}
    stays = {*present, _STOCK, *(_BUILT_IN if daemon.major(engine.version) >= _KEEPS_BUILT_IN else ())}
    return {name: entry for name, entry in (engine.info.get("Runtimes") or {}).items() if name not in stays}


def check_reload(
    containers: Mapping[str, str], dropped: Mapping[str, Mapping[str, Any]], keys: Sequence[str], path: str
) -> None:
    """Refuse a reload of the engine after which some containers would not start again. Raises Refusal.

    containers: the runtime by name of a container that has one of those dropped, running or not. keys: what needs the
    reload. path: the engine's configuration file.
    """
    if not containers:
        return
    named = ", ".join(f"{name} ({runtime})" for name, runtime in sorted(containers.items()))
    lacking = {name: _as_written(dropped[name]) for name in sorted(set(containers.values()))}
    raise Refusal(
        "reload_drops_runtimes",
        f"The engine must be reloaded for {', '.join(keys)}. It would then forget runtimes that are not in {path}, and "
        f"not start containers again that have them: {named}. Add them to runtimes in that file, "
        f"{json.dumps(lacking)}, or create these containers again without them. Then run again.",
    )


def _as_written(runtime: Mapping[str, Any]) -> dict[str, Any]:
    """Return a runtime that docker info prints as an entry of the file."""
    return {key: value for key, value in runtime.items() if key != "status" and value}


def removes_at_restart(version: str) -> bool:
    """Whether an engine of this version removes running containers with --rm at its restart, even with live-restore."""
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return numbers is None or tuple(int(number or 0) for number in numbers.groups()) < _KEEPS_AUTO_REMOVE


def at_restart(version: str) -> str:
    """Return how the owner restarts an engine, and what that ends, for "Stays" in a message.

    version: of the engine or of its package, "" if it is not known.
    """
    # A package's number may begin with an epoch.
    removes = removes_at_restart(version.rpartition(":")[2])
    also = "; running containers with --rm are removed even with it" if removes else ""
    return f"systemctl restart docker; without live-restore this ends its containers{also}"


def check_restart(
    decision: Decision,
    keys: Sequence[str],
    containers: Mapping[str, bool],
    *,
    ours: bool,
    moved: str = "",
    removed: Collection[str] = (),
) -> None:
    """Refuse a restart of the engine that containers of others would not survive. Raises Refusal.

    keys: what needs the restart. containers: whether it is an instance of this project, by name of a running container.
    ours: whether this project installed the engine; instances on it start again by themselves. moved: the
    data-root or storage-driver of the engine's next start, if it is not that of the running one. removed: those of the
    containers that the engine removes at a restart, whatever live-restore is.
    """
    if containers and moved:
        raise Refusal(
            "restart_moves_data_root",
            f"The engine must be restarted for {', '.join(keys)}. It would then use the {moved}, and not know "
            f"its running containers any more: {', '.join(sorted(containers))}. Its unit or configuration file was "
            "changed after its last start. Take that change back, or stop these containers and restart the engine. "
            "Then run again.",
        )
    others = sorted(name for name, own in containers.items() if not (own and ours))
    gone = [name for name in others if name in removed]
    ended = [name for name in others if name not in removed] if decision.ending else []
    because = [f"{', '.join(ended)}, because {decision.ending}"] if ended else []
    if gone:
        because.append(f"{', '.join(gone)}, because this engine removes containers with --rm whenever it restarts")
    if because:
        # The engine of a swarm does not start with live-restore, and older ones remove containers in spite of it.
        live_helps = not gone and decision.ending != _SWARM
        advice = "Set container_runtime_live_restore: true, or stop" if live_helps else "Stop"
        raise Refusal(
            "restart_ends_containers",
            f"The engine must be restarted for {', '.join(keys)}, which would end running containers: "
            f"{'; '.join(because)}. {advice} these containers first, or leave these settings "
            "as the engine has them"
            + (
                " (container_runtime_http_proxy and container_runtime_https_proxy: '' leave its proxies to its owner)."
                if _PROXY_KEYS.keys() & set(keys)
                else "."
            ),
        )
