"""Write files atomically, make renames survive a power cut, and take locks with a time limit."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from ..base.refusal import Refusal
from .beneath import replacing

# Seconds between two attempts to take a lock.
LOOK_AGAIN = 0.1
_LOCKS = Path("/proc/locks")


class WriteFailure(OSError):
    """A file could not be written; its text is a sentence for people."""

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"{self.filename} cannot be written ({self.strerror}), and is as it was. Correct that, then run this again."
        )


def text_of(path: Path) -> str:
    """Return a small file's text, as of /sys or /proc; "" if it is missing, unreadable, or disappears meanwhile."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def unwritable(path: Path) -> str | None:
    """Say why nothing can be made or removed at a path, by what there is above it; None where it can."""
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return f"{folder} is no directory, where {path} is to be. Move it away, then run again."
    # access() answers "no" to root only where the file system is read-only.
    if os.access(folder, os.W_OK):
        return None
    return f"{folder} cannot be written, where {path} is to be. Mount it for writing, then run again."


def sync_folder(folder: Path) -> None:
    """Make a rename inside the folder survive a power cut (fsync)."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str, durable: bool = True, mode: int | None = None, place: Path | None = None) -> None:
    """Replace a file in one rename; a reader sees the old text or the new, never a part.

    durable: whether it must survive a power cut. mode: permissions, by default from the umask. place: the folder
    beneath which no link is followed (see beneath); without one, links to the file's folder are followed. Raises
    WriteFailure, for example on a full file system, and Refusal as beneath does.
    """
    try:
        with replacing(path, place, mode, durable) as out:
            out.write(text.encode("utf-8"))
    except OSError as failed:
        raise WriteFailure(failed.errno, failed.strerror, str(path)) from failed


def write_json(
    path: Path, content: Any, durable: bool = True, mode: int | None = None, place: Path | None = None
) -> None:
    """Replace a JSON file in one step, as write_text does."""
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    write_text(path, text, durable=durable, mode=mode, place=place)


def take_turn(handle: int, path: Path, patience: float) -> None:
    """Take the lock of an open file; the kernel releases it when the process ends, even by a kill.

    path: the file, for messages. patience: seconds. Raises Refusal if another process holds the lock for longer.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                break
            time.sleep(LOOK_AGAIN)
        else:
            return
    raise Refusal(
        "lock_held",
        f"{path} is locked by {holder(handle)}, and was for {patience:g} s. Nothing was changed. Wait until it ends, "
        "or end it where it hangs; then run this again.",
    )


def holder(handle: int) -> str:
    """Return the process that holds a file's lock; systems differ in whether they show it."""
    inode = os.fstat(handle).st_ino
    for line in _LOCKS.read_text(encoding="ascii", errors="replace").splitlines():
        # 1: FLOCK  ADVISORY  WRITE 811 00:1a:4711 0 EOF; "->" follows the number of one that waits.
        words = line.split()
        if words[1:2] == ["FLOCK"] and words[5].rpartition(":")[2] == str(inode):
            try:
                command = Path(f"/proc/{words[4]}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                command = ""
            said = " ".join(command.replace("\0", " ").split())[:80]
            return f"process {words[4]} ({said})" if said else f"process {words[4]}"
    return "another process"
