"""Take a model from another node of the site: python3 -m gaudi_weights.take REQUEST.json

rsync brings the bytes into the staging folder and continues with what is there; every file is then read and held
against the giver's record, and one rename publishes the folder. Python 3.9 and its standard library. Exit status 0
when it is whole, 1 with one sentence.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import manifest, record
from .model import Refusal, listed
from .progress import Progress
from .record import Manifest
from .request import Request, Source
from .run import Work, run
from .staging import check_room, only_one, publish, standing

LOOK_AGAIN = 0.5  # seconds between two looks at how much has arrived
SILENCE = 60  # seconds without a byte after which the giver counts as gone
NO_ANSWER = 15  # seconds for the first answer
UNREACHED = (10, 30, 35)  # rsync's status for sockets and timeouts
READERS = 4  # files read at the same time when they are checked


@dataclass(frozen=True)
class Giver:
    """The node that gives: its name for people, rsync's address of the folder, and the file the password lies in."""

    name: str
    address: str
    password_file: Path


def load(path: Path) -> tuple[Request, Giver, Manifest]:
    """Read a request the role has written; raises Refusal for one that is not whole."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        giver = Giver(content["giver"], content["address"], Path(content["password_file"]))
        made = record.parse(json.dumps(content["manifest"]))
        # What is there already counts if it is of the revision that is given.
        of_giver = Source(giver.name, giver.address, made.repository, made.revision, None, None)
        wish = Request(
            target=Path(content["target"]),
            sources=(of_giver,),
            extra_room=int(content["extra_room"]),
            reserve=int(content["reserve"]),
            mounted_on=Path(content["mounted_on"]) if content["mounted_on"] else None,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refusal(f"the request {path} cannot be read ({type(error).__name__}: {error})") from error
    return wish, giver, made


def arrived_bytes(staging: Path, made: Manifest) -> int:
    """Bytes of the model's files that lie in the staging folder."""
    return sum(min(manifest.size_of(staging / file.name) or 0, file.size) for file in made.files)


def bring(wish: Request, giver: Giver, made: Manifest, progress: Progress) -> None:
    """Run rsync and show how much has arrived; raises Refusal with rsync's own words."""
    # Only what the record names is asked for; a symbolic link in its place is not taken.
    names = b"".join(os.fsencode(file.name) + b"\0" for file in made.files)
    command = [
        *("rsync", "--times", "--chmod=F644", "--inplace", f"--timeout={SILENCE}", f"--contimeout={NO_ANSWER}"),
        *(f"--password-file={giver.password_file}", "--files-from=-", "--from0", giver.address, f"{wish.staging}/"),
    ]
    here = arrived_bytes(wish.staging, made)
    progress.begin("take", made.size, here)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_AGAIN):
            progress.advance(arrived_bytes(wish.staging, made) - progress.done)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        ran = subprocess.run(command, input=names, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"})
    finally:
        over.set()
        watcher.join()
    if ran.returncode:
        said = " ".join(ran.stderr.decode(errors="replace").split())[:300]
        where = giver.address.split("/")[2].rpartition("@")[2]
        remedy = f". Nodes of a site must reach each other at {where}" if ran.returncode in UNREACHED else ""
        raise Refusal(f"{giver.name} did not give {wish.target.name} (rsync, status {ran.returncode}: {said}){remedy}")
    progress.advance(made.size - progress.done)
    progress.end()


def check(wish: Request, giver: Giver, made: Manifest, progress: Progress) -> None:
    """Read every byte that was not read before; a file that is not the recorded one is removed and named.

    Raises Refusal.
    """
    arrived = manifest.Arrived(wish.staging)
    unread = [file for file in made.files if not arrived.has(file.name, file.sha256)]
    progress.begin("verify", sum(file.size for file in unread))

    def right(file: record.Entry) -> bool:
        path = wish.staging / file.name
        if manifest.size_of(path) != file.size or manifest.sha256_of(path, progress.advance) != file.sha256:
            path.unlink(missing_ok=True)
            return False
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
        arrived.add(file.name, file.sha256)
        return True

    with ThreadPoolExecutor(READERS) as threads:
        wrong = [file.name for file, fine in zip(unread, threads.map(right, unread)) if not fine]
    progress.end()
    if wrong:
        raise Refusal(
            f"{giver.name} gave {len(wrong)} files of {wish.target.name} that are not what its record says: "
            f"{listed(wrong)}. playbooks/verify_weights.yml --limit {giver.name} tells whether its own are damaged"
        )


def take(wish: Request, giver: Giver, made: Manifest, progress: Progress) -> dict[str, Any]:
    """Have the model at its target, whole. Raises Refusal, and OSError for a disk that takes no more."""
    result = {"target": str(wish.target), "giver": giver.name, "bytes": made.size, "received": 0}
    done = standing(wish)
    if done is not None and not manifest.known_wrong(wish.target, done):
        return result
    if done is not None:
        raise Refusal(f"{wish.target} lacks files or holds damaged ones; playbooks/fetch_weights.yml repairs it")
    with only_one(wish):
        missing = made.size - arrived_bytes(wish.staging, made)
        check_room(wish, missing)
        bring(wish, giver, made, progress)
        check(wish, giver, made, progress)
        publish(wish, made)
    return {**result, "received": missing}


def main(arguments: list[str]) -> int:
    """Entry point."""

    def begin() -> tuple[Path, Work]:
        wish, giver, made = load(Path(arguments[0]))

        def work(progress: Progress) -> dict[str, Any]:
            try:
                return take(wish, giver, made, progress)
            finally:
                # It is for this once.
                giver.password_file.unlink(missing_ok=True)

        return wish.target, work

    return run(begin)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
