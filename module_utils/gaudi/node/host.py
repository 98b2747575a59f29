"""Read what a node's host settings are: GRUB's files, kernel settings, and where files of ours can be written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..base.refusal import Refusal
from ..host.sysctl import normal


def grub_files(defaults: Path) -> list[tuple[str, str]]:
    """Return /etc/default/grub (`defaults`) and the files behind it, path and text, as grub-mkconfig finds them.

    It passes over a link that leads nowhere. Bytes that are no UTF-8, as in old comments, are kept as "?".
    Raises Refusal, with the path, for a file that cannot be read.
    """
    found = []
    for path in (defaults, *sorted(defaults.parent.glob("grub.d/*.cfg"))):
        if path.is_file():
            try:
                found.append((str(path), path.read_text(errors="replace")))
            except OSError as error:
                raise Refusal(
                    "file_unreadable", f"{path} cannot be read ({error.strerror}). Mend that, then run again."
                ) from error
    return found


def running_settings(proc_sys: Path, keys: Iterable[str]) -> dict[str, str]:
    """Return the values of the settings this kernel knows. `proc_sys` is /proc/sys.

    Raises Refusal for a name that is no single setting, or one that the kernel does not show.
    """
    found = {}
    for key in keys:
        path = proc_sys / key.replace(".", "/")
        if path.is_dir():
            raise Refusal(
                "not_a_kernel_setting", f"{key} is a group of kernel settings, not one. Name one of them, below {path}."
            )
        if path.exists():
            try:
                found[key] = normal(path.read_text())
            except OSError as error:
                raise Refusal(
                    "kernel_setting_hidden",
                    f"The kernel does not show {key} ({path}: {error.strerror}), so nobody can tell whether it holds. "
                    "Take it out of host_tuning_sysctl.",
                ) from error
    return found


def obstacle(path: Path) -> str | None:
    """Say why a file of ours cannot be written or taken away here, or None when it can."""
    if path.is_dir():
        return f"{path} is a directory, where a file of this role is to be. Move it away, then run again."
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return f"{folder} is no directory, where {path} is to be. Move it away, then run again."
    # access() answers "no" to root only where the file system is read-only.
    if not os.access(folder, os.W_OK):
        return f"{folder} cannot be written, where {path} is to be. Mount it for writing, then run again."
    return None
