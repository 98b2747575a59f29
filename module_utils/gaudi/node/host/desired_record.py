"""Keep a record of the settings that a run wants, so that of two runs at once the overwritten one notices it.

A role that sets something keeps a record of its desired state beside its files. At its end a run compares record, files
and kernel with what it had set.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ...base.documents import Damaged
from ..documents import make_room, read_json, read_text
from ..files import write_json

PROC = Path("/proc")
RECORD = {"salt": str, "digest": str, "written": {"by": str, "at": str}}
# A file or a setting may contain a proxy's password, so both are private.
_MODE = 0o600

# The option of modules that keep a record.
OPTION: dict[str, Any] = {
    "type": "dict",
    "options": {
        "record": {"type": "path", "required": True},
        "of": {"type": "str", "required": True},
        "by": {"type": "str", "required": True},
        "asked": {"type": "dict", "default": {}},
    },
}


def note(
    desired: Mapping[str, Any], content: Any, files: Mapping[str, str], kernel: Mapping[str, str], check: bool
) -> tuple[bool, dict[str, Any]]:
    """Record this run's desired state; return whether the record changed, and the data that gone() compares.

    content: the desired state as JSON data. files: the text of each file that implements it, "" for a missing one.
    kernel: values of the running kernel. Only digests of the texts are returned, with a salt from the record, as a text
    may contain a password.
    """
    path, text = Path(desired["record"]), json.dumps([desired["asked"], content], sort_keys=True)
    said = _record(path)
    # The salt stays, so that two runs with the same desired state compute the same digests.
    salt = said["salt"] if said else secrets.token_hex(32)
    changed = said is None or said["digest"] != _digest(salt, text)
    if said is None or changed:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        said = {"salt": salt, "digest": _digest(salt, text), "written": {"by": desired["by"], "at": at}}
        if not check:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            make_room(path)
            write_json(path, said, mode=_MODE)
    return changed, {
        "of": desired["of"],
        "record": str(path),
        "digest": said["digest"],
        "files": {name: text and _digest(salt, text) for name, text in files.items()},
        "kernel": dict(kernel),
        "boot": _boot_id(),
    }


def gone(
    desired: Mapping[str, Any], running: Callable[[Iterable[str]], Mapping[str, str]]
) -> tuple[str, Path | None] | None:
    """Compare a node with the result of note(): None if everything is there, else what differs, and the foreign record.

    running: returns the running kernel's values of settings. The record is None if it is this run's own; then no other
    run is named. Kernel values are compared only until the next boot, which applies the files.
    """
    path = Path(desired["record"])
    said = _record(path)
    ours = said is not None and said["digest"] == desired["digest"]
    differs = [name for name, digest in desired["files"].items() if _seen(Path(name), said) != digest] if ours else []
    if desired["boot"] == _boot_id():
        values = running(desired["kernel"])
        differs += [key for key, value in desired["kernel"].items() if values.get(key) != str(value)]
    if ours and not differs:
        return None
    where = f" ({', '.join(differs)})" if differs else ""
    what = f"{desired['of']} are not on the node as this run has written them{where}"
    return what, None if ours else path


def _record(path: Path) -> dict[str, Any] | None:
    """Return the record; None if it is missing or damaged, as the next run writes it again."""
    try:
        return read_json(path, RECORD)
    except Damaged:
        return None


def _seen(path: Path, said: Mapping[str, Any] | None) -> str:
    """Return the digest of a file on the node; "" if it is missing."""
    try:
        text = read_text(path)
    except Damaged as damage:
        return str(damage)
    return _digest(str((said or {}).get("salt")), text) if text else ""


def _digest(salt: str, text: str) -> str:
    return hmac.new(salt.encode(), text.encode(), hashlib.sha256).hexdigest()


def _boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
