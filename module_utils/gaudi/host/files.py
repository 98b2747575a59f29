"""Recognise the files that the role host_tuning wrote."""

from __future__ import annotations

from collections.abc import Mapping

MARK = "# Written by gaudi-serving (role host_tuning)."
"""First line of every file of ours; a file of ours without it belongs to somebody else and is left alone."""


def foreign(files: Mapping[str, str | None], mark: str = MARK) -> list[str]:
    """Say which files at our paths were not written by the role. ``files``: text by path, None for a missing file.

    ``mark``: their first line.
    """
    return [
        f"{path} was not written by this role. Move it away, then run again."
        for path, text in files.items()
        if text is not None and not text.startswith(mark)
    ]
