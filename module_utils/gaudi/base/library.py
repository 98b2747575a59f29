"""The copy of this library on a node: a directory named by the digest of its files, kept while a program needs it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

# Hexadecimal digits of the digest in the directory's name; enough to make collisions improbable.
DIGITS = 16
PREFIX = "library-"


def digest(files: Mapping[str, str]) -> str:
    """Return the digest of a set of files.

    files: text by relative name. The length of each part is hashed with it, so that two different sets never hash the
    same bytes.
    """
    sha = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name].encode()):
            sha.update(f"{len(part)}:".encode())
            sha.update(part)
    return sha.hexdigest()[:DIGITS]


@dataclass(frozen=True)
class LibraryChange:
    """The steps of one change: who uses the library afterwards, whether to install it, which directories to remove."""

    users: frozenset[str]
    install: bool
    remove: tuple[str, ...]

    @property
    def gone(self) -> bool:
        """Whether the library is removed completely."""
        return not self.users


def decide(
    user: str, present: bool, users: Collection[str], wanted: str, current: str | None, there: Collection[str]
) -> LibraryChange:
    """Decide what to install and remove when a role starts or stops needing the library.

    present: whether this user needs the library from now on. users: roles whose programs are on the node. wanted:
    digest of this checkout's files. current: digest of the installed copy, None without one. there: names of the
    library's directories on the node.
    The copy that was current until now stays, because running programs may still read from it.
    """
    after = frozenset({*users, user} if present else set(users) - {user})
    if not after:
        return LibraryChange(after, install=False, remove=tuple(sorted(there)))
    if not present:
        return LibraryChange(after, install=False, remove=())
    kept = {f"{PREFIX}{wanted}", f"{PREFIX}{current}"}
    install = current != wanted
    return LibraryChange(after, install, tuple(sorted(set(there) - kept)) if install else ())
