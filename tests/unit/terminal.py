"""Run a program on a terminal of its own."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def on_a_terminal(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a command in a folder; return its status and all that its terminal gets."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL
    ) as running:
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 65536):
                seen += part
        except OSError:
            pass  # Linux says EIO when nobody has the other end open any more
        os.close(ours)
    return running.returncode, seen.decode()
