"""Contents of a support bundle, and what is masked in it: a bundle must not contain a usable secret.

The files are listed one by one; a new file on the node is in no bundle until it is listed here. API keys, tokens and
the environment of instances are never read. Everything else is masked too, as a site may have put a secret anywhere.
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
# Files of each instance, below the directories of its plan and of its state.
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
# The account in an address, and a value after an option whose name says that it is a secret.
_ACCOUNT = re.compile(r"://[^/@\s\"]+@")
_WORD = re.compile(rf"(--[\w-]*(?:{_NAMES}|api-?key)[\w-]*\s+)[^\s\"-][^\s\"]*", re.IGNORECASE)
# The account in a proxy's address, which may be written without its scheme.
_PROXY_NAME = re.compile(r"proxy$", re.IGNORECASE)
_PROXY_ACCOUNT = re.compile(r"^[^/\s]+@")
_GIVEN_PROXY = re.compile(r"(\w*proxy\"?\s*[=:]\s*\"?)[^/@\s\"]+@", re.IGNORECASE)
_GIVEN = re.compile(rf"([\w-]*(?:{_NAMES}|api[_-]?key)[\w-]*\"?\s*[=:]\s*\"?(?:bearer\s+)?)[^\s\",}}]+", re.IGNORECASE)


def masked(value: Any, name: str = "") -> Any:
    """Return a JSON value with secrets masked, by the names of their keys; ``name`` is the key of the value itself."""
    if isinstance(value, Mapping):
        # {"name": "HF_TOKEN", "value": ...}: the name is in the neighbouring key.
        beside = str(value.get("name", ""))
        return {key: masked(each, beside if key == "value" else str(key)) for key, each in value.items()}
    if isinstance(value, list):
        # ["--hf-token", ...]: the value is the next word.
        return [masked(each, _option(before) or name) for before, each in zip([None, *value], value)]
    if isinstance(value, str):
        if _PROXY_NAME.search(name):
            value = _PROXY_ACCOUNT.sub(f"{MASKED}@", value)
        return MASKED if value and _SECRET_NAME.search(name) else _plain(value)
    return value


def _option(word: object) -> str:
    """Return the option's name if its value is the next word; "" for any other word."""
    return word if isinstance(word, str) and word.startswith("--") and "=" not in word else ""


def _plain(text: str) -> str:
    text = _GIVEN_PROXY.sub(rf"\1{MASKED}@", _ACCOUNT.sub(f"://{MASKED}@", text))
    return _WORD.sub(rf"\1{MASKED}", _GIVEN.sub(rf"\1{MASKED}", text))


def masked_text(text: str) -> str:
    """Return a file's or command's text as printable text with secrets masked."""
    try:
        document = json.loads(text)
    except ValueError:
        return "\n".join(_plain(printable(line)) for line in text.splitlines()) + "\n"
    return json.dumps(masked(document), indent=1) + "\n"


def page(texts: Mapping[str, str]) -> str:
    """Join several texts into one, each masked and below its name."""
    return "\n".join(f"==== {name}\n{masked_text(text)}" for name, text in texts.items())
