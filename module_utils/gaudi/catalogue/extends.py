"""Release files that extend another: such a file contains only the differences, and is read as a whole.

``extends: "1.22"`` takes the keys of ``catalog/releases/1.22.yml``. A file's own keys are added or replace them:
mappings are merged key by key, a list replaces the whole list, a key set to null is removed. A null for a key that no
base has is refused. The base may extend another file in turn.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.checks import mapping, question, shown
from ..base.refusal import Refusal

KEY = "extends"


def file_of(name: str) -> str:
    """Return the file name of a release, for messages."""
    return f"catalog/releases/{name}.yml"


@dataclass(frozen=True)
class ReleaseContent:
    """A release's whole content, and the files it comes from: its own first, then each base in turn."""

    content: Any
    files: Mapping[str, Any]

    def file_with(self, path: Sequence[str | int]) -> str:
        """Return the file that defines a key or sets it to null; the release's own file if none does."""
        own = next(iter(self.files))
        return file_of(next((name for name, content in self.files.items() if _has(content, path)), own))


def _has(content: Any, path: Sequence[str | int]) -> bool:
    for part in path:
        if isinstance(content, Mapping):
            if part not in content:
                return False
        elif not (isinstance(content, list) and isinstance(part, int) and part < len(content)):
            return False
        content = content[part]
    return True


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``below`` with the keys of ``above`` merged into it."""
    result = dict(below)
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            under = below.get(key)
            result[key] = merged(under if isinstance(under, Mapping) else {}, value)
        else:
            result[key] = value
    return result


def _removes_nothing(below: Any, above: Mapping[str, Any], path: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Return the path of the first null in ``above`` for a key that ``below`` does not have; None if there is none."""
    under = below if isinstance(below, Mapping) else {}
    for key, value in above.items():
        if value is None and key not in under:
            return (*path, key)
        if isinstance(value, Mapping):
            found = _removes_nothing(under.get(key), value, (*path, key))
            if found is not None:
                return found
    return None


def _check_removals(file: str, below: Mapping[str, Any], above: Mapping[str, Any]) -> None:
    path = _removes_nothing(below, above)
    if path is None:
        return
    known: Any = below
    for part in path[:-1]:
        known = known.get(part, {}) if isinstance(known, Mapping) else {}
    near = difflib.get_close_matches(str(path[-1]), [str(key) for key in known], n=1)
    raise Refusal(
        "nothing_to_remove",
        f"{file}: {'.'.join(map(str, path))} is null, which removes a key, but the file that it extends has none of "
        f"that name.{question(near)} Correct it, or leave it out.",
    )


def extended(name: str, known: Collection[str], read: Callable[[str], Any]) -> ReleaseContent:
    """Return the whole content of a release.

    ``known``: releases that have a file. ``read``: returns the content of one file. Raises Refusal, with the file, for
    a missing base, for files that extend each other in a circle, and for a null that removes nothing.
    """
    files: dict[str, Any] = {}
    current = name
    while True:
        files[current] = content = read(current)
        if not isinstance(content, Mapping) or KEY not in content:
            break
        base = content[KEY]
        where = f"{file_of(current)}: {KEY} is {shown(base)}"
        if base in files:
            raise Refusal(
                "circular_extends",
                f"{where}, which extends it in turn ({' -> '.join([*files, base])}). Break the circle.",
            )
        if not isinstance(base, str) or base not in known:
            raise Refusal(
                "not_in_catalogue",
                f"{where}, which has no file in catalog/releases. Known: {', '.join(sorted(known))}.",
            )
        current = base
    if len(files) == 1:
        return ReleaseContent(content, files)
    whole: dict[str, Any] = {}
    for file, part in reversed(files.items()):
        own = {key: value for key, value in mapping(part, file_of(file)).items() if key != KEY}
        if whole:
            _check_removals(file_of(file), whole, own)
        whole = merged(whole, own) if whole else own
    return ReleaseContent(whole, files)
