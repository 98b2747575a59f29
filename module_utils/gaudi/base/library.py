"""The brain as it is installed on a node: a directory named after its content, and who there needs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

SCHEMA = 1
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


def parse_users(text: str | None) -> set[str]:
    """Read who needs the library; None is a file that is not there. Raises ValueError with what is wrong."""
    if text is None:
        return set()
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    users = content.get("users") if isinstance(content, dict) and content.get("schema") == SCHEMA else None
    if not isinstance(users, list) or not all(isinstance(user, str) for user in users):
        raise ValueError(f"it is no list of users of schema {SCHEMA}")
    return set(users)


def render_users(users: Collection[str]) -> str:
    """Write who needs the library."""
    return json.dumps({"schema": SCHEMA, "users": sorted(users)}, indent=1) + "\n"


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

    present: whether the user needs the library from now on. wanted: digest of this checkout's files. current: digest of
    the files that are current on the node, None where none are. there: names of the library's directories on the node.
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
