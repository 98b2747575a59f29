"""The brain as it is installed on a node: a directory named after its content, there while a program needs it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

# Digits of the digest in the directory's name; enough that two versions never meet.
DIGITS = 16
PREFIX = "library-"


def digest(files: Mapping[str, str]) -> str:
    """Name a set of files by all of its content.

    files: text by relative name. Every part goes in with its length, so that no two sets are read as one.
    """
    sha = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name].encode()):
            sha.update(f"{len(part)}:".encode())
            sha.update(part)
    return sha.hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Change:
    """What has to be done: users afterwards, whether the files must come, and which directories go."""

    users: frozenset[str]
    install: bool
    remove: tuple[str, ...]

    @property
    def gone(self) -> bool:
        """Whether nothing of the library stays."""
        return not self.users


def decide(
    user: str, present: bool, users: Collection[str], wanted: str, current: str | None, there: Collection[str]
) -> Change:
    """What a user's coming or going changes.

    present: whether the user needs the library from now on. users: roles whose programs are on the node. wanted: digest
    of this checkout's files. current: digest of the files that are current on the node, None where none are. there:
    names of the library's directories on the node.
    The directory that was current before stays, because programs that run may still read from it.
    """
    after = frozenset({*users, user} if present else set(users) - {user})
    if not after:
        return Change(after, install=False, remove=tuple(sorted(there)))
    if not present:
        return Change(after, install=False, remove=())
    kept = {f"{PREFIX}{wanted}", f"{PREFIX}{current}"}
    install = current != wanted
    return Change(after, install, tuple(sorted(set(there) - kept)) if install else ())
