"""The records beside weights: their files, and where they came from."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
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

# A node may have the record from another one, and the origin in it becomes part of commands. No form allows blanks,
# quotes, braces, or what a shell reads. The repository may also be the reference of an image or a key of recipes, the
# revision a branch or a checksum.
_ORIGIN = {
    "source": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"),
    "repository": re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}"),
    "revision": re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,254}"),
}
_DIRECTORY = re.compile(r"(/[A-Za-z0-9._+@,:~-]+)+/?")
_LINE = re.compile(r"[^\x00-\x1f\x7f]{0,4096}")
# Bytes. No file system of Linux has larger files (ext4, XFS).
_LARGEST = 1 << 63
# Of the relative name of a file: characters, and parts. Linux has paths of 4096 bytes; no model has ten parts.
_LONGEST_NAME, _MOST_PARTS = 4096, 64
# Characters of a text that a message quotes.
SHOWN = 80


@dataclass(frozen=True)
class RecordedFile:
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
    files: tuple[RecordedFile, ...]

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
    """Whether a relative file name leaves its folder, collides with the record, or is none that a system can have."""
    if len(name) > _LONGEST_NAME or name.count("/") >= _MOST_PARTS:
        return True
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
        files = tuple(
            RecordedFile(str(f["name"]), _size(f["name"], f["size"]), str(f["sha256"])) for f in content["files"]
        )
        origin = {key: content[key] for key in _ORIGIN}
        fetched = str(content["fetched"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"it lacks {error}") from error
    for key, value in origin.items():
        if not isinstance(value, str) or not _ORIGIN[key].fullmatch(value):
            raise ValueError(f"its {key} {str(value)[:SHOWN]!r} is not one word")
    for file in files:
        if unsafe(file.name):
            raise ValueError(f"the file name {file.name[:SHOWN]!r} leaves the folder, or is none that a file can have")
    _check_unique([file.name for file in files])
    return Manifest(**origin, fetched=fetched, files=files)


def _size(name: object, value: object) -> int:
    """Return the bytes of a file; raises ValueError for what no file has."""
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ValueError(f"the size of {str(name)[:SHOWN]!r} is not a number of bytes")
    return value


def _check_unique(names: Sequence[str]) -> None:
    """Raise ValueError for two files with one name, or a file with the name of a folder of another one."""
    # A folder, and a name that is there twice, stands right before a name below it.
    ordered = sorted(name.split("/") for name in names)
    if any(after[: len(before)] == before for before, after in zip(ordered, ordered[1:])):
        raise ValueError("it has a file name twice")


def folders_of(name: str) -> list[str]:
    """Return the relative names of all folders above a file."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


@dataclass(frozen=True)
class ConversionRecord:
    """A conversion's record: bytes by file, files that a check found wrong, and the tool."""

    sizes: Mapping[str, int]
    wrong: tuple[str, ...]
    source: str
    tool: str


_SIZED = {str: {"bytes": int}}
_CONVERTED = {"shards": _SIZED, "carried?": _SIZED, "wrong?": {"files": [str]}, "source?": str, "tool?": str}


def parse_converted(text: str) -> ConversionRecord:
    """Read the record of a conversion; raises ValueError with what is wrong."""
    said = parse_json(text, _CONVERTED)
    sizes = {name: seen["bytes"] for name, seen in {**said["shards"], **said.get("carried", {})}.items()}
    found = tuple(said.get("wrong", {"files": []})["files"])
    origin = {key: said.get(key, "") for key in ("source", "tool")}
    for key, value in origin.items():
        if not _LINE.fullmatch(value):
            raise ValueError(f"its {key} {value[:SHOWN]!r} is not one line")
    return ConversionRecord(sizes, found, **origin)


def command_for_converted(record: ConversionRecord, folder: str) -> str:
    """Return the command that repairs a folder of converted weights.

    A path that has blanks, quotes or braces is left out. Quotes of a shell do not help: Ansible divides the value of -e
    at blanks, and evaluates braces in it.
    """
    tool = " -e tool=fp8_dynamic" if record.tool == "fp8_dynamic" else ""
    source, target = (path if _DIRECTORY.fullmatch(path) else "DIRECTORY" for path in (record.source, folder))
    return f"ansible-playbook playbooks/convert_weights.yml -e source={source} -e target={target}{tool}"


def command_for_fetched(record: Manifest, folder: str) -> str:
    """Return the command that repairs a folder of fetched weights."""
    if record.repository.rpartition("/")[2] == folder.rpartition("/")[2]:
        wanted = f"-e repository={record.repository} -e revision={record.revision}"
    else:
        wanted = f"-e model=NAME (its file in catalog/models names {shlex.quote(folder.rpartition('/')[2])})"
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
