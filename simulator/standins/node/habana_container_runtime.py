#!/usr/bin/python3
"""Stand-in for habana-container-runtime: gives a container its simulated cards, then becomes runc.

As the real one it looks at a "create", rewrites config.json of the OCI bundle and never stops the container for
what it could not do: the error is in the container's HABANA_RUNTIME_ERROR and in the log. Without a driver there
are no cards to give, and the program in the container finds none.

Different from the real one, because a simulated node is a container itself:
* device nodes are bound, not made: one inode for node and containers lets flock stand for "card acquired";
* the node document is bound at /etc/gaudi-simulator/node.json, for the stand-ins in the serving image;
* an rlimit above what this node may grant is lowered to what it may, with a line in the log.

Where the node is described so ("ended"), a card's memory stays in use for a while after its container is deleted, and
a worker outlives it. Until the memory is free, no other container gets the card: what a server does that starts then
was never seen.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CONFIG = Path("/etc/habana-container-runtime/config.toml")
NODE_DOCUMENT = Path("/etc/gaudi-simulator/node.json")
DEV = Path("/dev/accel")
# What containers have which cards, and when the card of one that is gone will be free, by its index.
CONTAINERS = Path("/run/gaudi-simulator/containers")
FREE_AT = Path("/run/gaudi-simulator/free_at")
WORKER = Path(__file__).resolve().parent / "simulated_worker.py"
CAP_SYS_RESOURCE = 1 << 24
NO_DEVICES = "no habanalabs devices found. driver might not be loaded"


def bundle_of(arguments: list[str]) -> Path | None:
    """Return the bundle directory of a create command, None for every other command."""
    return file_of(arguments, "create", "b", "bundle") or Path.cwd() if "create" in arguments else None


def process_of(arguments: list[str]) -> Path | None:
    """Return the description of the process that an exec command adds, None for every other command."""
    return file_of(arguments, "exec", "p", "process")


def file_of(arguments: list[str], command: str, short: str, long: str) -> Path | None:
    """Return the path an option of a command names, None for other commands and without the option."""
    if command not in [argument for argument in arguments if not argument.startswith("-")]:
        return None
    for position, argument in enumerate(arguments):
        name, has_value, value = argument.partition("=")
        if name.lstrip("-") in (short, long) and name.startswith("-"):
            return Path(value if has_value else arguments[position + 1])
    return None


def deleted_by(arguments: list[str]) -> str | None:
    """Return the container that a delete command removes, None for every other command."""
    return arguments[-1] if "delete" in [argument for argument in arguments if not argument.startswith("-")] else None


def still_held(now: float) -> set[int]:
    """Return the cards whose memory is not free yet after their container."""
    entries = FREE_AT.iterdir() if FREE_AT.is_dir() else ()
    return {int(entry.name) for entry in entries if float(entry.read_text(encoding="ascii") or now) > now}


def group_of(spec: dict[str, Any], container: str) -> str:
    """Return a container's control group below the root, as systemd's driver or the engine's own names it."""
    path = str(spec.get("linux", {}).get("cgroupsPath") or f"docker/{container}")
    slice_, colon, scope = path.partition(":")
    return f"{slice_}/{scope.replace(':', '-')}.scope" if colon else path.lstrip("/")


def remember(spec: dict[str, Any], container: str) -> None:
    """Write down what a container has, for its end."""
    found = [re.fullmatch(rf"{DEV}/accel([0-9]+)", mount["destination"]) for mount in spec.get("mounts", [])]
    record = {"cards": [int(match[1]) for match in found if match], "group": group_of(spec, container)}
    CONTAINERS.mkdir(parents=True, exist_ok=True)
    (CONTAINERS / container).write_text(json.dumps(record), encoding="utf-8")


def forget(container: str, now: float) -> list[str] | None:
    """Note when the cards of a deleted container will be free; return the command of a worker that outlives it."""
    record = CONTAINERS / container
    if not record.exists():
        return None
    known = json.loads(record.read_text(encoding="utf-8"))
    ended = json.loads(NODE_DOCUMENT.read_text(encoding="utf-8"))["ended"]
    record.unlink()
    FREE_AT.mkdir(parents=True, exist_ok=True)
    for index in known["cards"]:
        (FREE_AT / str(index)).write_text(str(now + ended["memory_free_after"]), encoding="ascii")
    if not (ended["worker_stays"] and known["cards"]):
        return None
    return [sys.executable, str(WORKER), known["group"], *map(str, known["cards"])]


def environment_of(spec: dict[str, Any], name: str) -> str | None:
    """Return a variable of the container's environment."""
    for entry in spec["process"].get("env", []):
        key, _, value = entry.partition("=")
        if key == name:
            return str(value)
    return None


def choose(wanted: str | None, available: list[int]) -> tuple[list[int], list[str]]:
    """Pick the cards for HABANA_VISIBLE_DEVICES: all when it is unset, empty or "all".

    The second list holds what was asked for and is not there.
    """
    if not wanted or wanted == "all":
        return available, []
    names = wanted.split(",")
    return [index for index in available if str(index) in names], [n for n in names if n not in map(str, available)]


def lower_rlimits(process: dict[str, Any], may_raise: bool, own: dict[str, int]) -> list[str]:
    """Lower rlimits above this process's own hard limit, which it may not exceed; say which."""
    notes = []
    for limit in [] if may_raise else process.get("rlimits") or []:
        granted = own.get(limit["type"], -1)
        if granted != -1 and limit["hard"] > granted:
            notes.append(
                f"{limit['type']} {limit['hard']} lowered to {granted}: this simulated node may not grant more"
            )
            limit["hard"] = granted
            limit["soft"] = min(limit["soft"], granted)
    return notes


def add_error(spec: dict[str, Any], message: str) -> None:
    """Leave an error where a person in the container finds it; the first one stays."""
    if environment_of(spec, "HABANA_RUNTIME_ERROR") is None:
        spec["process"].setdefault("env", []).append(f"HABANA_RUNTIME_ERROR={json.dumps(message)}")


def bind(source: Path, options: list[str]) -> dict[str, Any]:
    """Return an OCI mount of a file at its own place."""
    return {"destination": str(source), "type": "bind", "source": str(source), "options": ["bind", *options]}


def rewrite(
    spec: dict[str, Any],
    config: dict[str, Any],
    available: list[int],
    own: dict[str, int],
    may_raise: bool,
    held: frozenset[int] = frozenset(),
) -> list[str]:
    """Change the container's specification in place; return what is worth a line in the log.

    held: cards whose memory is not free yet.
    """
    notes = lower_rlimits(spec["process"], may_raise, own)
    always = config.get("habana-container-runtime", {}).get("visible_devices_all_as_default", True)
    wanted = environment_of(spec, "HABANA_VISIBLE_DEVICES")
    if wanted is None and not always:
        return notes
    spec.setdefault("mounts", []).append(bind(NODE_DOCUMENT, ["ro"]))
    if not available:
        add_error(spec, NO_DEVICES)
        return [*notes, NO_DEVICES]
    cards, missing = choose(wanted, available)
    for name in missing:
        add_error(spec, f"mountHLDevice: requested device does not exist: {name}")
        notes.append(f"requested device does not exist: {name}")
    if not config.get("mount_accelerators", True):
        return notes
    late = sorted(held.intersection(cards))
    if late:
        notes.append(f"cards {late} are not given: their memory is not free yet")
    for index in sorted(set(cards) - held):
        spec["mounts"] += [bind(DEV / f"accel{index}", ["rw"]), bind(DEV / f"accel_controlD{index}", ["rw"])]
    return [*notes, f"cards {sorted(set(cards) - held)}"]


def accelerators() -> list[int]:
    """Return the indexes of the cards of this node."""
    names = [entry.name for entry in DEV.iterdir()] if DEV.is_dir() else []
    return sorted(int(match[1]) for name in names if (match := re.fullmatch(r"accel([0-9]+)", name)))


def hard_limits() -> dict[str, int]:
    """Return this process's hard limits by their OCI names; -1 is unlimited."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name))[1] for name in names}


def may_raise_limits() -> bool:
    """Whether this process has CAP_SYS_RESOURCE."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return match is not None and bool(int(match[1], 16) & CAP_SYS_RESOURCE)


def main() -> None:
    """Rewrite the bundle of a create command, then run runc in any case."""
    arguments = sys.argv[1:]
    bundle = bundle_of(arguments)
    if bundle is not None:
        config = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
        path = bundle / "config.json"
        spec = json.loads(path.read_text(encoding="utf-8"))
        held = frozenset(still_held(time.time()))
        notes = rewrite(spec, config, accelerators(), hard_limits(), may_raise_limits(), held)
        remember(spec, bundle.name)
        path.write_text(json.dumps(spec), encoding="utf-8")
        if target := config.get("habana-container-runtime", {}).get("debug"):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            with Path(target).open("a", encoding="utf-8") as log:
                log.writelines(f"{now} simulated {bundle.name[:12]}: {note}\n" for note in notes)
    added = process_of(arguments)
    if added is not None:
        process = json.loads(added.read_text(encoding="utf-8"))
        lower_rlimits(process, may_raise_limits(), hard_limits())
        added.write_text(json.dumps(process), encoding="utf-8")
    runc = shutil.which("runc")
    if runc is None:
        sys.exit('ERROR: exec: "runc": executable file not found in $PATH')
    container = deleted_by(arguments)
    if container is not None:
        status = subprocess.run([runc, *arguments], check=False).returncode
        worker = forget(container, time.time()) if status == 0 else None
        if worker is not None:
            quiet = subprocess.DEVNULL
            subprocess.Popen(worker, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        sys.exit(status)
    os.execv(runc, [runc, *arguments])


if __name__ == "__main__":
    main()
