"""The records beside weights: their files, and where they came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..base.documents import parse as parse_json

FOLDER = ".gaudi-serving"
MANIFEST = FOLDER + "/manifest.json"
VERIFIED = FOLDER + "/verified.json"
# The form of VERIFIED: when every byte was read, and files that differed from the record then.
VERIFICATION = {"verified": str, "wrong": [str]}
LOCK = FOLDER + "/lock"
# One line for each file that was received and checked. The final record replaces it.
ARRIVED = FOLDER + "/arrived"
# Files from a peer that are not checked yet. They are never passed on.
INCOMING = FOLDER + "/incoming"
# Tells the receiver of this node that this one is alive, or why it gave up.
RELAY = FOLDER + "/relay.json"
# Temporary files of a source.
SCRATCH = FOLDER + "/scratch"
# Directory for an incomplete download. It lies beside the target, so that one rename publishes it.
STAGING_SUFFIX = ".partial"


@dataclass(frozen=True)
class Entry:
    """One file of complete weights: relative name, size in bytes, SHA-256 of its content."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The origin and the files of weights. It never contains a token, or an address with one."""

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
    def sizes(self) -> dict[str, int]:
        """Bytes of each file."""
        return {file.name: file.size for file in self.files}

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def render(self) -> str:
        """The text of manifest.json."""
        return json.dumps({"schema": 1, **asdict(self)}, indent=1) + "\n"


def unsafe(name: str) -> bool:
    """Whether a relative file name leaves its folder, or collides with the record."""
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


@dataclass(frozen=True)
class Converted:
    """A conversion's record: bytes by file, files that a check found wrong, and the tool."""

    sizes: Mapping[str, int]
    wrong: tuple[str, ...]
    source: str
    tool: str


_SIZED = {str: {"bytes": int}}
_CONVERTED = {"shards": _SIZED, "carried?": _SIZED, "wrong?": {"files": [str]}, "source?": str, "tool?": str}


def parse_converted(text: str) -> Converted:
    """Read the record of a conversion; raises ValueError with what is wrong."""
    said = parse_json(text, _CONVERTED)
    sizes = {name: seen["bytes"] for name, seen in {**said["shards"], **said.get("carried", {})}.items()}
    found = tuple(said.get("wrong", {"files": []})["files"])
    return Converted(sizes, found, said.get("source", ""), said.get("tool", ""))


def mend_converted(record: Converted, folder: str) -> str:
    """Return the command that repairs a folder of converted weights."""
    tool = " -e tool=fp8_dynamic" if record.tool == "fp8_dynamic" else ""
    return f"ansible-playbook playbooks/convert_weights.yml -e source={record.source} -e target={folder}{tool}"


def mend_fetched(record: Manifest, folder: str) -> str:
    """Return the command that repairs a folder of fetched weights."""
    if record.repository.rpartition("/")[2] == folder.rpartition("/")[2]:
        wanted = f"-e repository={record.repository} -e revision={record.revision}"
    else:
        wanted = f"-e model=NAME (its file in catalog/models names {folder.rpartition('/')[2]})"
    return f"ansible-playbook playbooks/fetch_weights.yml {wanted}"


def wrong_sizes(recorded: Mapping[str, int], sizes: Mapping[str, int | None]) -> list[str]:
    """Return files that are missing or have another size than recorded, in the record's order.

    Both are bytes by name; None for anything but a regular file.
    """
    return [name for name, size in recorded.items() if sizes.get(name) != size]


def used_by(plan: Mapping[str, Any], folder: str) -> bool:
    """Whether a serving plan uses a folder, as its weights or in a mount of its container."""
    container = plan.get("container") or {}
    paths = [mount.get("source") for mount in container.get("mounts", [])]
    paths.append((plan.get("requires") or {}).get("weights_path"))
    return any(path == folder or str(path).startswith(folder.rstrip("/") + "/") for path in paths if path)
