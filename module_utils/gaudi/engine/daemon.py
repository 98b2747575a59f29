"""The Docker engine's configuration file: parse it, merge our settings into a user's, and tell how to apply a change.

What decides whether a change is allowed on a node is in ``configuration``; the engine's arguments are in ``flags``.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.access import same_exceptions
from ..base.refusal import Refusal
from . import flags as arguments

# Keys a running dockerd takes up on SIGHUP ("Configuration reload behavior" in dockerd's reference);
# every other key needs a restart.
RELOADABLE = frozenset(
    {
        "allow-nondistributable-artifacts",
        "debug",
        "default-runtime",
        "features",
        "insecure-registries",
        "labels",
        "live-restore",
        "max-concurrent-downloads",
        "max-concurrent-uploads",
        "max-download-attempts",
        "registry-mirrors",
        "runtimes",
        "shutdown-timeout",
    }
)
DEFAULT_DATA_ROOT = "/var/lib/docker"
# In docker info: images are kept by containerd; and the sockets of one that the engine did not start itself.
_CONTAINERD_STORE = ["driver-type", "io.containerd.snapshotter.v1"]
_CONTAINERD_SOCKETS = ("/run/containerd/containerd.sock", "/var/run/containerd/containerd.sock")
_CONTAINERD_ROOT = "/var/lib/containerd"
# What an engine reads of its environment for its own connections ("Configure the daemon to use a proxy").
# Proxies from the inventory are in a file that only root can read, beside our drop-in.
OWN_VARIABLES = "/etc/systemd/system/docker.service.d/gaudi-serving-proxy.env"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


_MARK = b"\xef\xbb\xbf"
# The first release that reads a file with a byte order mark (moby, pull request 44777).
_READS_MARKS = 23
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def decode(raw: bytes, path: str, version: str = "") -> str:
    """Return a daemon.json as text, without a byte order mark.

    version: the engine's, "" if none is installed. Raises Refusal for a byte order mark that this engine refuses, and
    for any other encoding than UTF-8.
    """
    marked = raw.startswith(_MARK)
    if marked and version and major(version) < _READS_MARKS:
        raise Refusal(
            "byte_order_mark",
            f"{path} begins with a byte order mark. Engine {version} refuses that; engines since {_READS_MARKS}.0 read "
            "it. Save the file as UTF-8 without a byte order mark.",
        )
    try:
        return raw[len(_MARK) if marked else 0 :].decode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start + (len(_MARK) if marked else 0)
        kind = " (it looks like UTF-16)" if raw.startswith(_UTF16) else ""
        raise Refusal(
            "not_utf8",
            f"{path} is not valid UTF-8{kind}: byte 0x{raw[offset]:02x} at offset {offset}. JSON must be UTF-8. Save "
            "the file as UTF-8.",
        ) from error


def major(version: str) -> int:
    """Return the first number in a version; 0 if it has none."""
    number = re.search(r"\d+", version)
    return int(number[0]) if number else 0


def parse(text: str, path: str) -> dict[str, Any]:
    """Read a daemon.json; an empty or missing file is an empty configuration.

    Raises Refusal, with file and line, when it is not a JSON object.
    """
    if not text.strip():
        return {}
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise Refusal(
            "not_json",
            f"{path}, line {error.lineno}, column {error.colno}, is not valid JSON ({error.msg}). "
            "Correct it: our settings are merged into this file, and the engine refuses it as well.",
        ) from error
    if not isinstance(document, dict):
        raise Refusal(
            "not_a_json_object", f"{path} holds {type(document).__name__}, but a JSON object is needed. Correct it."
        )
    return document


def data_root(info: Mapping[str, Any], flags: arguments.Flags, existing: Mapping[str, Any]) -> str:
    """Return where the engine keeps images: as it tells itself, else by its flags, else by its file.

    info: what ``docker info`` prints, {} without a running engine. With containerd's image store, images are in the
    directory of the containerd that the engine uses, whose default is meant where that runs on its own.
    """
    root = str(
        info.get("DockerRootDir")
        or arguments.last(flags, "data-root")
        or existing.get("data-root")
        or existing.get("graph")
        or DEFAULT_DATA_ROOT
    )
    address = str((info.get("Containerd") or {}).get("Address") or "")
    return _CONTAINERD_ROOT if in_containerd(info) and address in _CONTAINERD_SOCKETS else root


def in_containerd(info: Mapping[str, Any]) -> bool:
    """Whether an engine keeps its images in containerd."""
    return _CONTAINERD_STORE in (info.get("DriverStatus") or [])


def merge(
    existing: Mapping[str, Any],
    desired: Mapping[str, Mapping[str, Any]],
    path: str,
    flags: arguments.Flags | None = None,
) -> dict[str, Any]:
    """Return ``existing`` with our settings merged in; every other key stays as it was.

    ``desired`` has four parts. ``settings`` replace what is there. ``defaults`` belong together, and are only used if
    none of their keys is set: our options for a log driver would stop an engine that uses another driver. ``runtimes``
    are added to a user's own. ``additions`` are appended to lists, without duplicates. A key that ``flags`` set is not
    merged: the engine does not start if a flag and the file set the same key. Raises Refusal, with the file, if a key's
    value has the wrong type.
    """
    set_by_flags: Mapping[str, Any] = flags or {}
    merged: dict[str, Any] = dict(existing)
    if not desired["defaults"].keys() & {*existing, *set_by_flags}:
        merged.update(desired["defaults"])
    merged.update({key: value for key, value in desired["settings"].items() if key not in set_by_flags})
    runtimes = {
        name: runtime
        for name, runtime in desired["runtimes"].items()
        if f"{name}={runtime['path']}" not in set_by_flags.get("runtimes", ())
    }
    if runtimes:
        merged["runtimes"] = {**_expect(existing, "runtimes", dict, path), **runtimes}
    for key, values in desired["additions"].items():
        if values and key not in set_by_flags:
            old = _expect(existing, key, list, path)
            merged[key] = [*old, *(value for value in dict.fromkeys(values) if value not in old)]
    return merged


def _expect(existing: Mapping[str, Any], key: str, kind: type, path: str) -> Any:
    """Return what ``existing`` has under ``key``, which must be of ``kind``; an absent key is empty."""
    value = existing.get(key, kind())
    if not isinstance(value, kind):
        wanted = "an object" if kind is dict else "a list"
        raise Refusal("wrong_type", f"{path}: the key {key!r} holds {value!r}, but {wanted} is needed. Correct it.")
    return value


def without_ours(
    existing: Mapping[str, Any],
    earlier: Mapping[str, Any],
    runtimes: Mapping[str, Any],
    added: Mapping[str, Any],
    flags: arguments.Flags,
) -> dict[str, Any]:
    """Return a configuration without what was merged into an earlier one; every other key stays as it is.

    added: keys that were set, with their values; one that still has this value gets its earlier one, or is removed. A
    runtime or key that was changed since stays, and so does the default runtime, without which the engine would not
    start.
    """
    rest = dict(existing)
    for key, value in added.items():
        if key != "runtimes" and key in rest and rest[key] == value:
            del rest[key]
            rest.update({key: earlier[key]} if key in earlier else {})
    present, before = existing.get("runtimes"), earlier.get("runtimes") or {}
    defaults = [existing.get("default-runtime"), *flags.get("default-runtime", ())]
    if not isinstance(present, Mapping):
        return rest
    ours = {name for name, runtime in runtimes.items() if present.get(name) == runtime and name not in before}
    rest["runtimes"] = {name: runtime for name, runtime in present.items() if name not in ours or name in defaults}
    if not rest["runtimes"] and "runtimes" not in earlier:
        del rest["runtimes"]
    return rest


def render(document: Mapping[str, Any]) -> str:
    """Write a configuration the way people write it: four blanks, keys in the order they had."""
    return json.dumps(document, indent=4, ensure_ascii=False) + "\n"


def between(current: str, earlier: str) -> str:
    """Return the text to start an engine with, before the earlier file is restored; "" if none is needed.

    An engine that starts without live-restore ends the containers that survived with it. So it starts with
    live-restore, and takes up the earlier file by a reload. Both are texts of a valid file.
    """
    before, after = (parse(text.lstrip("\ufeff"), "daemon.json") for text in (earlier, current))
    if after.get("live-restore") is not True or before.get("live-restore") is True:
        return ""
    return render({**before, "live-restore": True})


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ, sorted."""
    return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))


def drift(info: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return the keys of ``wanted`` that a running engine does not use yet, according to ``docker info``.

    Only what docker info shows can be compared: runtimes, live-restore, mirrors, insecure registries, log driver.
    """
    stale = []
    running = info.get("Runtimes") or {}
    for name, runtime in wanted.get("runtimes", {}).items():
        if running.get(name, {}).get("path") != runtime.get("path"):
            stale.append("runtimes")
            break
    if "live-restore" in wanted and info.get("LiveRestoreEnabled") != wanted["live-restore"]:
        stale.append("live-restore")
    registry = info.get("RegistryConfig") or {}
    mirrors = {str(mirror).rstrip("/") for mirror in registry.get("Mirrors") or []}
    if not {str(mirror).rstrip("/") for mirror in wanted.get("registry-mirrors", [])} <= mirrors:
        stale.append("registry-mirrors")
    insecure = set(registry.get("InsecureRegistryCIDRs") or []) | {
        name for name, index in (registry.get("IndexConfigs") or {}).items() if not index.get("Secure", True)
    }
    if not set(wanted.get("insecure-registries", [])) <= insecure:
        stale.append("insecure-registries")
    if "log-driver" in wanted and info.get("LoggingDriver") != wanted["log-driver"]:
        stale.append("log-driver")
    return stale


def apply_with(keys: Sequence[str]) -> str:
    """Return how a running engine applies changed keys: ``nothing``, ``reload`` or ``restart``."""
    if not keys:
        return "nothing"
    return "reload" if RELOADABLE.issuperset(keys) else "restart"


def needs_restart(keys: Sequence[str]) -> list[str]:
    """Return the keys that a running engine takes up by a restart only."""
    return sorted(set(keys) - RELOADABLE)


def stale_environment(unit: str, process: str, other_files: str, own_file: str = "", replaced: str = "") -> list[str]:
    """Return the variables whose values in a running engine differ from its unit's current ones, sorted.

    unit: what ``systemctl show --property=Environment --value`` prints. process: /proc/PID/environ of the engine.
    other_files: the text of the unit's environment files, which systemd does not print and which override the unit's
    own; variables named there are not judged. own_file: the text of our file among them (``OWN_VARIABLES``), which is
    judged. replaced: text of our drop-ins on the node, whose variables the unit loses. Only names are returned, as
    values may be secrets.
    """
    inline = {
        name: value
        for name, value in words_as_pairs(unit).items()
        if not re.search(rf"Environment=\W?{name}=", replaced)
    }
    wanted = {**inline, **_pairs(own_file.splitlines())}
    running = _pairs(process.split("\0"))
    stale = {name for name, value in wanted.items() if differs(name, value, running)}
    gone = {name for name in PROXIES if name in running and name not in wanted and differs(name, "", running)}
    return sorted(name for name in stale | gone if name not in other_files)


def differs(name: str, value: str, running: Mapping[str, str]) -> bool:
    """Whether a process behaves otherwise than with a variable's value. running: its variables."""
    if name.upper() == "NO_PROXY":
        return not same_exceptions(value, running.get(name, ""))
    return running.get(name) != value


def words_as_pairs(environment: str) -> dict[str, str]:
    """Return the variables of a unit, from what systemd prints of its property Environment."""
    return _pairs(_words(environment))


def _words(text: str) -> list[str]:
    """Split what systemd prints; inside quotes it escapes characters that a shell would interpret."""
    try:
        return [re.sub(r"\\([$`])", r"\1", word) for word in shlex.split(text)]
    except ValueError:
        # A text that cannot be split is not judged.
        return []


def _pairs(entries: Sequence[str]) -> dict[str, str]:
    """Read NAME=value entries; anything else is passed over."""
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)
