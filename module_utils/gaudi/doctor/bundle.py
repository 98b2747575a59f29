"""What a support bundle is made of, and what is taken out of it: nothing in it may open anything.

The files are named one by one; a new file on the node is in no bundle until it is named here. API keys, tokens and the
environment of instances are never read. What is read is masked all the same: a site may have put a secret anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import paths
from ..base.printable import printable

FILES = (
    paths.ACCEPTANCE,
    f"{paths.STATE}/host_tuning.json",
    paths.IMAGE_RECORD,
    paths.RESERVATIONS,
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/meminfo",
    "/proc/buddyinfo",
)
# Of each instance, below the folder of its plan and of its state.
OF_PLAN = ("plan.json", "let_through.json")
OF_STATE = ("state.json",)
# Seconds a command may take; hl-smi hangs where the driver does.
COMMAND_SECONDS = 20
COMMANDS: Sequence[Sequence[str]] = (
    ("uname", "-a"),
    ("hl-smi",),
    ("lsmod",),
    ("dkms", "status"),
    ("df", "-h"),
    ("docker", "version"),
    ("docker", "ps", "--all", "--format", "{{.ID}} {{.Image}} {{.Names}} {{.Status}}"),
    ("systemctl", "list-units", "--all", "--no-pager", "--plain", "vllm-*", "gaudi-*", "docker.service"),
    ("journalctl", "--dmesg", "--boot", "--priority=err", "--no-pager", "--lines=200"),
)

MASKED = "(taken out)"
# max_num_batched_tokens is no secret.
_NAMES = r"token(?![a-z])|secret|passw|credential|authorization"
_SECRET_NAME = re.compile(rf"{_NAMES}|(?:^|[_-])keys?$|apikey", re.IGNORECASE)
# The account in an address, and a value behind a name that says it is a secret.
_ACCOUNT = re.compile(r"://[^/@\s\"]+@")
_WORD = re.compile(rf"(--[\w-]*(?:{_NAMES}|api-?key)[\w-]*\s+)[^\s\"-][^\s\"]*", re.IGNORECASE)
# The same in a proxy's address, which may be written without what it begins with.
_PROXY_NAME = re.compile(r"proxy$", re.IGNORECASE)
_PROXY_ACCOUNT = re.compile(r"^[^/\s]+@")
_GIVEN_PROXY = re.compile(r"(\w*proxy\"?\s*[=:]\s*\"?)[^/@\s\"]+@", re.IGNORECASE)
_GIVEN = re.compile(rf"([\w-]*(?:{_NAMES}|api[_-]?key)[\w-]*\"?\s*[=:]\s*\"?(?:bearer\s+)?)[^\s\",}}]+", re.IGNORECASE)


def masked(value: Any, name: str = "") -> Any:
    """Return a value of a JSON document without what its names call secret; ``name`` is the key that it stands at."""
    if isinstance(value, Mapping):
        # {"name": "HF_TOKEN", "value": ...} names its value beside it.
        beside = str(value.get("name", ""))
        return {key: masked(each, beside if key == "value" else str(key)) for key, each in value.items()}
    if isinstance(value, list):
        # ["--hf-token", ...] has its value behind it.
        return [masked(each, _option(before) or name) for before, each in zip([None, *value], value)]
    if isinstance(value, str):
        if _PROXY_NAME.search(name):
            value = _PROXY_ACCOUNT.sub(f"{MASKED}@", value)
        return MASKED if value and _SECRET_NAME.search(name) else _plain(value)
    return value


def _option(word: object) -> str:
    """The name of an option that has its value in the next word; empty for everything else."""
    return word if isinstance(word, str) and word.startswith("--") and "=" not in word else ""


def _plain(text: str) -> str:
    text = _GIVEN_PROXY.sub(rf"\1{MASKED}@", _ACCOUNT.sub(f"://{MASKED}@", text))
    return _WORD.sub(rf"\1{MASKED}", _GIVEN.sub(rf"\1{MASKED}", text))


def masked_text(text: str) -> str:
    """Return the text of a file or of a command without what looks like a secret, and printable."""
    try:
        document = json.loads(text)
    except ValueError:
        return "\n".join(_plain(printable(line)) for line in text.splitlines()) + "\n"
    return json.dumps(masked(document), indent=1) + "\n"


def page(texts: Mapping[str, str]) -> str:
    """Return one text of many, each masked and under its name."""
    return "\n".join(f"==== {name}\n{masked_text(text)}" for name, text in texts.items())
