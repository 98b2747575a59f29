"""Check measurement files by content, because a server loads them with numpy and with pickles allowed."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ...base.refusal import Refusal
from ...weights.arrays import MOST_ARRAYS, MOST_BYTES, check_array
from .. import beneath

# numpy.load treats a file with any other beginning as a pickle.
ZIP = b"PK\x03\x04"


def check_measurements(path: Path, place: Path) -> None:
    """Refuse measurement files beneath a place that could run code when they are read."""
    if path.suffix == ".npz":
        with beneath.open_file(path, place) as stream:
            check_npz(stream, path.name)


def check_npz(stream: BinaryIO, name: str) -> None:
    """Refuse an .npz that could run code when it is read; name: the file's name for messages."""
    try:
        for array in _arrays(stream):
            check_array(array)
    # Errors of damaged archives: a truncated member, one that is not deflated, or one that claims to be encrypted.
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise Refusal(
            "measurements_unsafe",
            f"{name} is no plain file of numpy arrays ({error}), and the server would run what is in it. It is not "
            f"published; look at where it comes from.",
        ) from error


def _arrays(stream: BinaryIO) -> Iterator[bytes]:
    """The content of each member, within the bounds."""
    if stream.read(len(ZIP)) != ZIP:
        raise ValueError("it does not begin as an archive")
    with zipfile.ZipFile(stream) as archive:
        names = archive.namelist()
        if len(names) > MOST_ARRAYS or len(set(names)) < len(names):
            raise ValueError(f"it holds {len(names)} arrays, or two of one name")
        for array in names:
            with archive.open(array) as member:
                content = member.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise ValueError(f"{array!r} is larger than {MOST_BYTES} bytes")
            yield content
