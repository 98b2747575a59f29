"""What a simulated hub holds: repositories, their commits, and the files of each with every checksum a hub states."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

# What git-lfs holds on the real hub; anything else up to 10 MB is in git itself.
LFS_SUFFIXES = (".safetensors", ".npz", ".bin", ".pt", ".pth", ".gguf")
LFS_FROM = 10_000_000  # bytes
BLOCK = 1024 * 1024
# A pointer file has about this many bytes; the real hub states its exact size, and no client looks at it.
POINTER_SIZE = 134


@dataclass(frozen=True)
class HubFile:
    """One file of one commit. oid: git's hash of what git holds, which is the pointer for an LFS file."""

    name: str
    path: Path
    size: int
    sha256: str
    oid: str
    lfs: bool

    def sibling(self, blobs: bool) -> dict[str, object]:
        """The file as model info lists it."""
        if not blobs:
            return {"rfilename": self.name}
        found: dict[str, object] = {"rfilename": self.name, "size": self.size, "blobId": self.oid}
        if self.lfs:
            found["lfs"] = {"sha256": self.sha256, "size": self.size, "pointerSize": POINTER_SIZE}
        return found

    def leaf(self) -> dict[str, object]:
        """The file as a tree lists it."""
        found: dict[str, object] = {"type": "file", "oid": self.oid, "size": self.size, "path": self.name}
        if self.lfs:
            found["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": POINTER_SIZE}
        return found


@dataclass
class HubRepository:
    """One repository: commits by id, the one main names, and who may read it."""

    name: str
    commits: dict[str, dict[str, HubFile]] = field(default_factory=dict)
    main: str = ""
    private: bool = False
    gated: bool = False

    def commit(self, revision: str) -> str | None:
        """The commit a revision names, None without one."""
        if revision == "main":
            return self.main
        return revision if revision in self.commits else None

    def add(self, folder: Path) -> str:
        """Make a folder's files the newest commit of main; returns its id. The files are not copied."""
        files = {
            name: describe(name, path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not (name := path.relative_to(folder).as_posix()).startswith(".git/")
        }
        digest = hashlib.sha1(
            "".join(f"{f.name}\0{f.sha256}\n" for f in files.values()).encode(), usedforsecurity=False
        )
        self.main = digest.hexdigest()
        self.commits[self.main] = files
        return self.main

    def rename(self, commit: str) -> None:
        """Call the newest commit by another id, as a mirror does that passes other files off as these."""
        self.commits[commit] = self.commits.pop(self.main)
        self.main = commit


def describe(name: str, path: Path) -> HubFile:
    """Compute what a hub states about a file."""
    size = path.stat().st_size
    lfs = name.endswith(LFS_SUFFIXES) or size > LFS_FROM
    sha256 = hashlib.sha256()
    blob = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            sha256.update(block)
            blob.update(block)
    if lfs:
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256.hexdigest()}\nsize {size}\n".encode()
        blob = hashlib.sha1(f"blob {len(pointer)}\0".encode() + pointer, usedforsecurity=False)
    return HubFile(name, path, size, sha256.hexdigest(), blob.hexdigest(), lfs)
