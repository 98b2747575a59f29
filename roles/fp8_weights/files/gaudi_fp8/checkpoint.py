"""A checkpoint as it lies in a folder: its shards, its index, its other files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gaudi.base.checks import shown
from gaudi.base.documents import misfit
from gaudi.base.refusal import Refusal
from gaudi.node.files import write_json

from .files import STATE_FOLDER, copy_file, open_in, read_json, refuse_special
from .safetensors import Header, header_of
from .shards import sum_of

INDEX = "model.safetensors.index.json"

# Not served: version control and hub caches (a git-lfs checkout holds every weight twice), and the same weights in
# another format.
SKIPPED_FOLDERS = frozenset({".git", ".cache", ".huggingface", "__pycache__", STATE_FOLDER})
SKIPPED_SUFFIXES = (".bin", ".pth", ".pt", ".ckpt", ".msgpack", ".h5", ".gguf", ".incomplete", ".lock")
SKIPPED_NAMES = frozenset({".gitattributes", ".gitignore", ".gitmodules"})


@dataclass(frozen=True)
class Identity:
    """A source file as it was when the work began."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Identity:
        """Read it from the file system."""
        seen = path.stat()
        return cls(seen.st_size, seen.st_mtime_ns, seen.st_ino)


@dataclass(frozen=True)
class SourceCheckpoint:
    """A checkpoint to convert, as it was found."""

    folder: Path
    shards: dict[str, Identity]
    actions: dict[str, dict[str, str]]  # by shard, then by tensor; only tensors that change
    result_bytes: dict[str, int]
    carried: list[str]

    @cached_property
    def fingerprint(self) -> str:
        """Names it in journal and provenance: shard names, sizes, and every decision."""
        seen = [[name, identity.size] for name, identity in sorted(self.shards.items())]
        text = json.dumps([seen, self.actions], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    @property
    def times(self) -> dict[str, int]:
        """When each shard was last written, in nanoseconds since 1970."""
        return {name: identity.mtime_ns for name, identity in self.shards.items()}


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a checkpoint."""
    path = folder / INDEX
    content = read_json(path, {"metadata?": dict})
    if misfit(content.get("weight_map"), {str: str}):
        raise Refusal("index_unreadable", f"{path} has no weight_map of file names; fetch the model again")
    return content


def shards_of(folder: Path) -> list[str]:
    """Names of the shards: those in the index, which must all be there; without an index all that are there."""
    present = {path.name for path in folder.glob("*.safetensors")}
    index = folder / INDEX
    if not index.exists():
        if not present:
            raise Refusal("no_safetensors", f"{folder} holds no .safetensors file")
        refuse_special(folder, sorted(present))
        return sorted(present)
    named = sorted(set(read_index(folder)["weight_map"].values()))
    missing = [name for name in named if name not in present]
    if missing:
        raise Refusal(
            "shards_missing",
            f"{len(missing)} of {len(named)} shards named in {index} are not there, the first is {shown(missing[0])}: "
            "fetch the model again, its download is not complete",
        )
    refuse_special(folder, named)
    return named


def carried_files(folder: Path, shards: Collection[str]) -> list[str]:
    """Relative names of the other files that belong to the served model (tokenizer, configuration, code)."""
    names: list[str] = []
    others, waiting = frozenset(shards).union(SKIPPED_NAMES), [folder]
    while waiting:
        base = waiting.pop()
        with os.scandir(base) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        folders = [base / entry.name for entry in entries if entry.is_dir() and entry.name not in SKIPPED_FOLDERS]
        linked = next(filter(Path.is_symlink, folders), None)
        if linked is not None:
            raise Refusal(
                "linked_folder",
                f"{linked} is a symbolic link to a folder, whose files would be missing in the result. "
                "Put the folder itself there, or remove the link",
            )
        waiting += reversed(folders)
        for name in (entry.name for entry in entries if not entry.is_dir()):
            if name not in others and not name.endswith((".safetensors", *SKIPPED_SUFFIXES)):
                names.append(str((base / name).relative_to(folder)))
    refuse_special(folder, names)
    return names


def read_headers(folder: Path, shards: list[str]) -> dict[str, Header]:
    """Headers of all shards, checked; Refusal names the file."""
    headers: dict[str, Header] = {}
    for name in shards:
        with open_in(folder, name) as stream:
            headers[name] = header_of(stream)
    return headers


def check_names(folder: Path, headers: dict[str, Header]) -> None:
    """Refuse a tensor that is in two shards, or not where the index says."""
    home: dict[str, str] = {}
    for shard, header in headers.items():
        for tensor in header.tensors:
            if tensor.name in home:
                raise Refusal(
                    "tensor_twice", f"the tensor {tensor.name!r} stands in {home[tensor.name]} and again in {shard}"
                )
            home[tensor.name] = shard
    index = folder / INDEX
    if index.exists():
        for name, shard in read_index(folder)["weight_map"].items():
            if home.get(name) != shard:
                raise Refusal(
                    "index_wrong", f"{index} says that tensor {shown(name)} is in {shard}, but it is not there"
                )


def total_size(folder: Path, shards: list[str]) -> int:
    """Bytes of all tensors, as the index states them."""
    return sum(tensor.size for header in read_headers(folder, shards).values() for tensor in header.tensors)


def manifest_hash(folder: Path) -> str | None:
    """SHA-256 over names, sizes and checksums in the downloader's record, not over dates; None without a record."""
    path = folder / STATE_FOLDER / "manifest.json"
    if not path.exists():
        return None
    return hashlib.sha256(json.dumps(read_json(path).get("files"), sort_keys=True).encode("utf-8")).hexdigest()


def headers_of(folder: Path) -> tuple[dict[str, Identity], dict[str, Header]]:
    """Identity and header of every shard of a checkpoint; Refusal when the shards do not belong together."""
    shards = shards_of(folder)
    identities = {name: Identity.of(folder / name) for name in shards}
    headers = read_headers(folder, shards)
    check_names(folder, headers)
    return identities, headers


def decided(
    folder: Path,
    identities: dict[str, Identity],
    headers: dict[str, Header],
    actions: dict[str, str],
    size: Callable[[Header, dict[str, str]], int],
) -> SourceCheckpoint:
    """The checkpoint with an action for each tensor that changes; size gives the bytes of a converted shard."""
    by_shard = {
        name: {t.name: actions[t.name] for t in header.tensors if t.name in actions} for name, header in headers.items()
    }
    result_bytes = {name: size(header, by_shard[name]) for name, header in headers.items()}
    return SourceCheckpoint(folder, identities, by_shard, result_bytes, carried_files(folder, identities))


def carry(source: SourceCheckpoint, folder: Path, rewritten: dict[str, Callable[[], dict[str, Any]]]) -> dict[str, Any]:
    """Copy the other files of a model into folder, but rewrite some; returns size and CRC-32 of each."""
    for name in source.carried:
        if name in rewritten:
            write_json(folder / name, rewritten[name](), place=folder)
        else:
            copy_file(source.folder, folder, name)
    return {name: sum_of(folder / name) for name in source.carried}


def index_for(source: SourceCheckpoint, folder: Path) -> dict[str, Any]:
    """The source's index with the size of all tensors of the result in folder."""
    content = read_index(source.folder)
    content.setdefault("metadata", {})["total_size"] = total_size(folder, list(source.shards))
    return content
