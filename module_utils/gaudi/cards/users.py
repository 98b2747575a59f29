"""The users of a card: processes, and the systemd unit or container that each belongs to; and a card's name.

A user is plain data: pid, name, account (its user on the node), unit, container (the short id of twelve digits that
``docker ps`` shows) and container_name. Unknown values are None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Each card has a compute device and a control device, which answers queries. The vendor's own scripts call a card free
# if no process has its control device open.
_DEVICE = re.compile(r"/dev/accel/accel(?:_controlD)?([0-9]{1,4})(?: \(deleted\))?")

# docker-<id>.scope, libpod-<id>.scope, cri-containerd-<id>.scope with the systemd driver;
# the bare id with the cgroupfs driver.
_CONTAINER = re.compile(r"(?:[a-z][a-z-]*-)?([0-9a-f]{64})(?:\.scope)?")
_UNIT = re.compile(r"[^/]+\.(?:service|scope)")
_OF_USERS = "/user.slice/"
_SHORT_ID = 12
_INSTANCE = re.compile(r"[a-z0-9-]{1,48}")
# What an instance is called: its container, and its unit.
_OF_INSTANCE = re.compile(r"vllm-([a-z0-9][a-z0-9-]*?)(?:\.service)?")

# What docker ps is asked for: id, name, and the instance that the container is of.
CONTAINER_LINE = '{{.ID}} {{.Names}} {{.Label "gaudi-serving.instance"}}'

# hl-smi keeps a control device open while it runs, so two simultaneous queries must not count as users.
_READERS = frozenset({"hl-smi"})


def new_user() -> dict[str, Any]:
    """Return a user without details: the card is in use, nothing more is known."""
    return {"pid": None, "name": None, "account": None, "unit": None, "container": None, "container_name": None}


def device_index(path: str) -> int | None:
    """Return the index of the card a path is a device of, None for any other path."""
    match = _DEVICE.fullmatch(path)
    return None if match is None else int(match.group(1))


def is_reader(name: str) -> bool:
    """Whether a process only queries cards and does not compute on them."""
    return name in _READERS


def parse_container_names(text: str) -> dict[str, str]:
    """Return container names by short id, from lines of CONTAINER_LINE, or of id and name.

    A container of an instance that somebody renamed is returned under its original name, vllm-INSTANCE.
    """
    to_be = {name: f"vllm-{instance}" for instance, name in renamed_containers(text).items()}
    names = {line[0][:_SHORT_ID]: line[1] for line in _container_lines(text)}
    return {short: to_be.get(name, name) for short, name in names.items()}


def renamed_containers(text: str) -> dict[str, str]:
    """Return the current names of containers that somebody renamed, by instance.

    A label alone proves nothing if a container with the right name exists: an image made from it has the label too.
    """
    lines = _container_lines(text)
    names = {line[1] for line in lines}
    labelled = {line[2]: line[1] for line in lines if len(line) > 2 and _INSTANCE.fullmatch(line[2])}
    return {instance: name for instance, name in labelled.items() if f"vllm-{instance}" not in names}


def _container_lines(text: str) -> list[list[str]]:
    return [words for words in map(str.split, text.splitlines()) if len(words) > 1]


def owner_of(cgroup: str, init_cgroup: str = "") -> tuple[str | None, str | None]:
    """Return (systemd unit, container id) of a process from its /proc/PID/cgroup.

    Reads the one line of cgroup v2 (``0::/path``) and the many of v1, where systemd's own hierarchy
    knows the unit. init_cgroup is /proc/1/cgroup: on a node that is itself a container, its path stands
    before every other and says nothing about the process. A container's own scope is not a unit. Below user.slice,
    whose groups a user names, nothing is a container or an instance.
    """
    base = _init_paths(init_cgroup)
    unit: str | None = None
    container: str | None = None
    # systemd's hierarchy first: the resource hierarchies of v1 may know a parent only.
    for controllers, path in sorted(_paths(cgroup), key=lambda line: line[0] not in {"", "name=systemd"}):
        root = base.get(controllers, "")
        below = path[len(root) :] if f"{path}/".startswith(f"{root}/") else path
        for part in below.split("/"):
            match = _CONTAINER.fullmatch(part)
            if match and not below.startswith(_OF_USERS):
                container = container or match.group(1)[:_SHORT_ID]
            elif not match and _UNIT.fullmatch(part) and part != "init.scope" and unit is None:
                unit = _last_unit(below)
    return unit, container


def _last_unit(path: str) -> str | None:
    """Return the innermost unit of a path: app.service of user@1000.service/app.slice/app.service."""
    units = [part for part in path.split("/") if _UNIT.fullmatch(part) and not _CONTAINER.fullmatch(part)]
    if path.startswith(_OF_USERS):
        units = [unit for unit in units if not _OF_INSTANCE.fullmatch(unit)]
    return units[-1] if units else None


def _paths(cgroup: str) -> list[tuple[str, str]]:
    """Return (controllers, path) of each line of a cgroup file."""
    lines = [line.split(":", 2) for line in cgroup.splitlines()]
    return [(line[1], line[2]) for line in lines if len(line) == 3]


def _init_paths(cgroup: str) -> dict[str, str]:
    """Return where the root of each hierarchy lies for this node: the place of PID 1."""
    bases = {}
    for controllers, path in _paths(cgroup):
        bases[controllers] = re.sub(r"/init\.scope$", "", path).rstrip("/")
    return bases


def is_own(user: Mapping[str, Any], instance: str) -> bool:
    """Whether a user of a card is the instance itself: its unit or its container."""
    return user.get("unit") == f"vllm-{instance}.service" or user.get("container_name") == f"vllm-{instance}"


def may_stay(user: Mapping[str, Any], instance: str, is_held: bool) -> bool:
    """Whether a user of a card does not block the instance; is_held: the instance has the card reserved.

    The instance itself does not block. On a card that it holds, two more do not: a container whose name is unknown (the
    engine is restarting), and memory in use without a visible process (a server is just ending). No other instance can
    have been given that card.
    """
    nameless = user["container"] is not None and user["container_name"] is None
    return is_own(user, instance) or (is_held and (nameless or user["pid"] is None))


def describe_user(user: Mapping[str, Any]) -> str:
    """Return a user in a few words: ``foo.service (pid 4242 python3 of alice)``."""
    process = " ".join([f"pid {user['pid']}"] * (user["pid"] is not None) + [user["name"]] * bool(user["name"]))
    # In a container the account is mostly root, and the container's name says more.
    if process and user.get("account") and not user["container"]:
        process += f" of {user['account']}"
    if user["container"] or user["container_name"]:
        owner = f"container {user['container_name'] or user['container']}"
    else:
        owner = user["unit"] or ""
    if not owner:
        return process or "a process that cannot be seen"
    return f"{owner} ({process})" if process else owner


def instance_of(user: Mapping[str, Any]) -> str | None:
    """Return the instance that a process belongs to, by its container or unit; None for any other process."""
    for name in (user["container_name"], user["unit"]):
        match = _OF_INSTANCE.fullmatch(name or "")
        if match:
            return match.group(1)
    return None


def label(card: Mapping[str, Any]) -> str:
    """Return a card's name for a sentence: ``module 3 (accel0, 0000:43:00.0)``."""
    numbers = [f"accel{card['index']}"] * (card["index"] is not None) + [card["bus_id"]] * bool(card["bus_id"])
    name = "a card without module id" if card["module_id"] is None else f"module {card['module_id']}"
    return f"{name} ({', '.join(numbers)})" if numbers else name
