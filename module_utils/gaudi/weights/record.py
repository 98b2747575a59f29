"""The record beside finished weights: what they consist of and where they came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

FOLDER = ".gaudi-serving"
MANIFEST = FOLDER + "/manifest.json"
VERIFIED = FOLDER + "/verified.json"
# The form of VERIFIED: when every byte was read, and the files that were not as recorded then.
VERIFICATION = {"verified": str, "wrong": [str]}
LOCK = FOLDER + "/lock"
# One line for each file that was received and checked. The record replaces it.
ARRIVED = FOLDER + "/arrived"
# Files received from another node and not checked yet. Never passed on.
INCOMING = FOLDER + "/incoming"
# Tells the node that downloads from this one that this one is alive, or why it gave up.
RELAY = FOLDER + "/relay.json"
# Temporary files of a source.
SCRATCH = FOLDER + "/scratch"
# Directory for a download that is not complete. It lies beside the target, so that one rename publishes it.
STAGING_SUFFIX = ".partial"


@dataclass(frozen=True)
class Entry:
    """One file of a finished model: relative name, size in bytes, SHA-256 of its content."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Where a model came from and what it consists of. Never holds a token or an address with one."""

    source: str
    repository: str
    revision: str
    fetched: str
    files: tuple[Entry, ...]

    @property
    def names(self) -> list[str]:
        """Relative names of all files."""
        return [file.name for file in self.files]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def render(self) -> str:
        """The text of manifest.json."""
        return json.dumps({"schema": 1, **asdict(self)}, indent=1) + "\n"


def unsafe(name: str) -> bool:
    """Whether a relative file name would leave its folder, or lie where the record does."""
    parts = name.split("/")
    return (
        any(part in ("", ".", "..") for part in parts)
        or any(ord(character) < 32 or character in "\\\x7f" for character in name)
        or parts[0] == FOLDER
    )


def parse(text: str) -> Manifest:
    """Read manifest.json; raises ValueError with what is wrong."""
    content: Any = json.loads(text)
    if not isinstance(content, dict) or content.get("schema") != 1:
        raise ValueError("it is not a manifest of schema 1")
    try:
        files = tuple(Entry(str(f["name"]), int(f["size"]), str(f["sha256"])) for f in content["files"])
        source, repository, revision, fetched = (
            str(content[key]) for key in ("source", "repository", "revision", "fetched")
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"it lacks {error}") from error
    for file in files:
        if unsafe(file.name):
            raise ValueError(f"the file name {file.name!r} leaves the folder")
    return Manifest(source, repository, revision, fetched, files)


def wrong_sizes(manifest: Manifest, sizes: Mapping[str, int | None]) -> list[str]:
    """Names of files that are missing or have another size, in the manifest's order.

    sizes: bytes by name, None for what is not a regular file.
    """
    return [file.name for file in manifest.files if sizes.get(file.name) != file.size]


def used_by(plan: Mapping[str, Any], folder: str) -> bool:
    """Whether a serving plan uses a folder, as its weights or in a mount of its container."""
    container = plan.get("container") or {}
    paths = [mount.get("source") for mount in container.get("mounts", [])]
    paths.append((plan.get("requires") or {}).get("weights_path"))
    return any(path == folder or str(path).startswith(folder.rstrip("/") + "/") for path in paths if path)
