"""Files from another node of the site: one call of rsync, and what it means when it fails.

Python 3.9 and its standard library. The role fp8_calibration's program uses it, too.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gaudi.base.refusal import Refusal

SILENCE = 60  # seconds without a byte after which the peer counts as gone
NO_ANSWER = 15  # seconds for the first answer
UNREACHED = (10, 30, 35)  # rsync's status for sockets and timeouts
# Its status when a file vanished between the list and the transfer, such as the sign of life of a node that has just
# published its folder. If a vanished file is needed, the check finds it missing.
VANISHED = 24
# What its daemon says (3.2 and 3.5) when the folder of a module is not there, with and without "use chroot".
FOLDER_GONE = ("@ERROR: chroot failed", "@ERROR: chdir failed")
# What a peer offers: a finished folder, or one that still arrives. Of the latter it offers the files it has checked.
WHOLE, ARRIVING = "weights", "arriving"


class NotThere(Exception):
    """The peer has no such folder, or has it no more. The text is one sentence for a person."""


@dataclass(frozen=True)
class Peer:
    """The node that gives: its name for people, rsync's address of it, and the file the password lies in."""

    name: str
    address: str  # rsync://USER@HOST:PORT
    password_file: Path

    @property
    def where(self) -> str:
        """HOST:PORT."""
        return self.address.split("/")[2].rpartition("@")[2]


def direct() -> dict[str, str]:
    """The environment of rsync: without a proxy, which is for hosts outside the site."""
    return {**{key: text for key, text in os.environ.items() if not key.upper().endswith("_PROXY")}, "LC_ALL": "C"}


def receive(
    peer: Peer,
    folder: Path,
    what: str,
    options: Iterable[str],
    module: str = WHOLE,
    names: Iterable[str] = (),
    heard: Callable[[str], None] = lambda _name: None,
) -> None:
    """Have rsync bring what the peer has into a folder.

    what: its name for people; names: the files that are asked for, all without any; heard is told the name of each file
    that has come and that rsync does not touch any more.
    Raises NotThere, and Refusal with rsync's own words.
    """
    command = [
        *("rsync", "--times", "--8-bit-output", f"--timeout={SILENCE}", f"--contimeout={NO_ANSWER}"),
        # With the bytes that were sent in it, a line is written when its file is there, not when it begins.
        *("--out-format=%b %n", f"--password-file={peer.password_file}", *options),
        *(f"{peer.address}/{module}/", f"{folder}/"),
    ]
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as said:
        asked.write(b"".join(os.fsencode(name) + b"\0" for name in names))
        asked.seek(0)
        with subprocess.Popen(command, stdin=asked, stdout=subprocess.PIPE, stderr=said, env=direct()) as ran:
            last = ""
            for line in ran.stdout or ():
                name = os.fsdecode(line.rstrip(b"\n")).partition(" ")[2]
                # rsync sets the times of a file after its line (receiver.c: log_item before finish_transfer), and ends
                # with status 23 if it is gone by then. Lines of folders come from another process, at any time.
                if not name.endswith("/"):
                    if last:
                        heard(last)
                    last = name
        if last:
            heard(last)
        said.seek(0)
        # As much as the peer likes, of which the beginning is shown.
        words = " ".join(said.read(4096).decode(errors="replace").split())
    if words.startswith(FOLDER_GONE):
        raise NotThere(f"{peer.name} has {what} no more (rsync: {words[:300]}). Run this again")
    if ran.returncode not in (0, VANISHED):
        remedy = f". Nodes of a site must reach each other at {peer.where}" if ran.returncode in UNREACHED else ""
        raise Refusal(
            "rsync_failed",
            f"{peer.name} did not give {what} (rsync, status {ran.returncode}: {words[:300]}){remedy}",
        )
