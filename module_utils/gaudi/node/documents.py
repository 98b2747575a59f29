"""Read our own files, which may be missing, truncated, a directory, a pipe, or damaged in another way."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from ..base.documents import Damaged, parse
from ..base.refusal import Refusal
from . import beneath

# Bytes. The longest are a checkpoint's index and its conversion's journal, about 100 bytes a tensor: 9 MB for the 92
# 000 tensors of DeepSeek-R1.
LONGEST = 64 * 1024 * 1024

_KINDS = {
    stat.S_IFDIR: "it is a directory",
    stat.S_IFIFO: "it is a pipe",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}

Content = TypeVar("Content")


def read(
    path: Path, parse: Callable[[str], Content], place: Path | None = None, within: Iterable[Path] = ()
) -> Content | None:
    """Read a file with a parser that raises ValueError; None if the file is missing.

    place: the folder beneath which no link is followed (see beneath). Without one, links are followed anywhere or, if
    folders are given, only into these. Raises Damaged for anything but a regular file, and for content that the parser
    rejects.
    """
    text = read_text(path, place, within)
    if text is None:
        return None
    try:
        return parse(text)
    except Damaged:
        raise
    except RecursionError as error:
        raise Damaged(str(path), "it is nested too deeply") from error
    except ValueError as error:
        raise Damaged(str(path), str(error)) from error


def read_json(
    path: Path,
    form: Any = dict,
    schema: int | None = None,
    place: Path | None = None,
    within: Iterable[Path] = (),
    *,
    of_model: bool = False,
) -> dict[str, Any] | None:
    """Read a JSON document of a form, as base.documents.parse tells; None where no file is there. Raises Damaged."""
    return read(path, lambda text: parse(text, form, schema, of_model=of_model), place, within)


def read_text(path: Path, place: Path | None = None, within: Iterable[Path] = ()) -> str | None:
    """Read a regular file; None if it is missing. Raises Damaged, and Refusal for a link out of the allowed folders."""
    try:
        stream = beneath.open_linked(path, within) if within else beneath.open_file(path, place)
    except FileNotFoundError:
        if path.is_symlink():
            raise Damaged(str(path), "it is a link to nothing") from None
        return None
    except Refusal as refusal:
        if refusal.id == "link_leads_out":
            raise
        raise Damaged(str(path), _kind(path, place)) from refusal
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise Damaged(str(path), _KINDS[stat.S_IFSOCK]) from error
        raise Damaged(str(path), f"it cannot be opened ({error.strerror})") from error
    try:
        with stream:
            content = stream.read(LONGEST + 1)
    except OSError as error:
        raise Damaged(str(path), f"it cannot be read ({error.strerror})") from error
    if len(content) > LONGEST:
        raise Damaged(str(path), f"it is larger than {LONGEST} bytes")
    try:
        text: str = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Damaged(str(path), "it is no text") from error
    return text


def _kind(path: Path, place: Path | None) -> str:
    """Return what exists at the path instead of a regular file."""
    seen = path.stat() if place is None else beneath.look(path, place)
    if seen is None or stat.S_ISLNK(seen.st_mode):
        return "it is a link, or lies behind one, and links are not followed there"
    return _KINDS.get(stat.S_IFMT(seen.st_mode), "it is no regular file")


def make_room(path: Path) -> Path | None:
    """Move a directory away from a file's path, and return its new path; None if there is no directory.

    A file replaces anything but a directory in one rename. A directory may hold files that somebody needs.
    """
    if not path.is_dir() or path.is_symlink():
        return None
    aside = path.with_name(f"{path.name}.was-a-directory")
    while aside.exists():
        aside = aside.with_name(f"{aside.name}-too")
    return path.rename(aside)
