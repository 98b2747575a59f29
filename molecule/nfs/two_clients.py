#!/usr/bin/env python3
"""Have two clients of one NFS server fetch, repair and convert weights, and say what each saw of the other's work.

    python3 two_clients.py

/nodes/a and /nodes/b are the mounts, /srv/models is what the server exports, on its own disk. A peer's rsync daemon
listens; what it gives is below /srv/peer. The programs and their modules are in PYTHONPATH. Prints one JSON document.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import checkpoints
import fp8_convert
from gaudi.node import weight_folders as weights_folders
from gaudi.weights import record as weights

A, B, SERVER, PEER = Path("/nodes/a"), Path("/nodes/b"), Path("/srv/models"), Path("/srv/peer/Model")
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
REVISION = "1" * 40
PATIENCE = 600.0  # seconds until the other one has come to the next point

Run = subprocess.Popen  # of a program that is at work


def start(*command: str | Path) -> Run[str]:
    """Start one of the programs, with its processes in a group of their own."""
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ended(run: Run[str]) -> dict[str, Any]:
    """How it ended."""
    out, said = run.communicate(timeout=PATIENCE)
    return {"status": run.returncode, "out": out.strip(), "said": said.strip()}


def until(condition: Callable[[], bool], run: Run[str]) -> None:
    """Wait until a program has come to a point. Raises TimeoutError with what it said when it did not."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if run.poll() is not None or time.monotonic() > deadline:
            run.kill()
            raise TimeoutError(run.communicate()[1])
        time.sleep(0.01)  # the server's disk tells nobody


def give() -> None:
    """Let the peer have a model of which the second half is still coming."""
    folder = PEER.with_name("Model.partial")
    folder.mkdir(parents=True)
    for number, name in enumerate(SHARDS):
        checkpoints.write(PEER.parent / f"half-{number}", shards=1, seed=number)
        (PEER.parent / f"half-{number}/model-00001-of-00001.safetensors").replace(folder / name)
    files = [weights.RecordedFile(name, len(data := (folder / name).read_bytes()), sha256(data)) for name in SHARDS]
    (folder / weights.FOLDER).mkdir()
    record = weights.Manifest("hub", "maker/Model", REVISION, "2026-01-31T08:00:00Z", tuple(files))
    (folder / weights.MANIFEST).write_text(record.render())


def sha256(data: bytes) -> str:
    """As the record has it."""
    return hashlib.sha256(data).hexdigest()


def given() -> dict[str, Any]:
    """The peer's record."""
    record: dict[str, Any] = json.loads(next(PEER.parent.glob(f"Model*/{weights.MANIFEST}")).read_text())
    return record


def take(root: Path, name: str, **more: Any) -> Run[str]:
    """Start to take the model from the peer through a client, as the role weights_supply does; more replaces."""
    where = Path("/run") / f"{root.name}-{name}"
    where.with_suffix(".token").write_text("secret\n")
    where.with_suffix(".token").chmod(0o600)
    request = {
        "peer": "peer",
        "address": "rsync://receiver@127.0.0.1:8730",
        "relays": True,
        "password_file": str(where.with_suffix(".token")),
        "target": str(root / name),
        "manifest": given(),
        "repositories": {},
        "kinds": [],
        "mounted_on": str(root),
        "root_option": "gaudi_weights_root",
        "measured_cards": 0,
        "reserve": 0,
        "extra_room": 0,
        **more,
    }
    where.with_suffix(".json").write_text(json.dumps(request))
    return start("-m", "gaudi_weights.take", where.with_suffix(".json"))


def look(root: Path, *names: str) -> dict[str, Any]:
    """How folders stand, all without names, and what is wrong: as the part weight_folders of node_report has them."""
    found = weights_folders.look(root, names or None)
    return {said["directory"]: [said["status"], *said["wrong"]] for said in found}


def tree(folder: Path) -> list[str]:
    """Names of everything below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@contextmanager
def relaying(folder: Path) -> Iterator[None]:
    """Tell receivers that the peer is still fetching, as a peer does; without that they give up after a minute."""
    relay, over = folder / weights.RELAY, threading.Event()

    def watch() -> None:
        beat = 0
        while not over.wait(1):
            beat += 1
            relay.with_suffix(".new").write_text(json.dumps({"beat": beat, "gave_up": ""}))
            relay.with_suffix(".new").replace(relay)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        relay.unlink(missing_ok=True)


def fetched(name: str) -> dict[str, Any]:
    """A takes a model, b looks on and wants to take it, too; then the peer gives the rest, and a publishes."""
    arriving, later = PEER.with_name("Model.partial"), PEER.parent / SHARDS[1]
    (arriving / SHARDS[1]).replace(later)
    before = look(B, name)
    with relaying(arriving):
        first = take(A, name)
        until((SERVER / f"{name}.partial" / SHARDS[0]).exists, first)
        meanwhile, second = look(B), ended(take(B, name))
        # From now on b believes, as NFS does, that there is no such name.
        absent = not (B / name).exists()
        later.replace(arriving / SHARDS[1])
    arriving.replace(PEER)
    return {
        "before": before,
        "meanwhile": meanwhile,
        "second": second,
        "first": ended(first),
        "believed_absent": absent and not (B / name).exists(),
    }


def repaired(name: str) -> dict[str, Any]:
    """A file is damaged and a's verification notes it; b has it repaired, and a sees that."""
    before = look(B, name)
    with (A / name / SHARDS[0]).open("r+b") as damaged:
        damaged.write(b"damaged")
    (A / name / weights.VERIFIED).write_text(json.dumps({"verified": "2026-02-28T08:00:00Z", "wrong": [SHARDS[0]]}))
    noted, noticed = look(A, name), look(B, name)
    # Refused when the lock is held: nothing of the attempt may stay.
    refused = ended(take(B, name, manifest={**given(), "files": given()["files"][:1]}))
    left = tree(SERVER)
    repair = ended(take(B, name))
    return {
        "before": before,
        "noted": noted,
        "noticed": noticed,
        "refused": refused,
        "left": left,
        "repair": repair,
        "after": [look(A, name), look(B, name)],
        "same": [
            (root / name / shard).read_bytes() == (PEER / shard).read_bytes() for root in (A, B) for shard in SHARDS
        ],
    }


def served(folder: Path) -> dict[str, str]:
    """Checksums of what is served of a converted model."""
    files = [path for path in folder.rglob("*") if path.is_file() and weights.FOLDER not in path.parts]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()) for path in files}


def convert(source: Path, target: Path, *more: str) -> Run[str]:
    """Start to convert."""
    return start(fp8_convert.__file__, source, target, "--jobs", "2", *more)


def converted(name: str, killed: bool) -> dict[str, Any]:
    """A converts and stands still half-way, where b is refused; a is killed or goes on, and b begins again."""
    first = convert(A / "In", A / name)
    until((SERVER / f"{name}.partial/.gaudi-serving/done.json").exists, first)
    os.killpg(first.pid, signal.SIGSTOP)
    done = json.loads((SERVER / f"{name}.partial/.gaudi-serving/done.json").read_text())
    meanwhile, second = look(B), ended(convert(B / "In", B / name))
    absent = not (B / name).exists()
    if killed:
        first.kill()
    os.killpg(first.pid, signal.SIGCONT)  # of a killed one the workers, which end by themselves
    return {
        "done": len(done),
        "meanwhile": meanwhile[f"{name}.partial"],
        "second": second,
        "first": ended(first),
        "believed_absent": absent and not (B / name).exists(),
        "third": ended(convert(B / "In", B / name)),
        "same": served(SERVER / name) == served(PEER.parent / "reference"),
        "check": ended(convert(A / "In", A / name, "--check")),
        "record": tree(SERVER / name / weights.FOLDER),
    }


def main() -> None:
    """Do it all, report."""
    give()
    said: dict[str, Any] = {"looked": {**fetched("Looked"), "at_once": look(B, "Looked")}}
    PEER.replace(PEER.with_name("Model.partial"))
    said["taken"] = {**fetched("Taken"), "at_once": ended(take(B, "Taken"))}
    said["repaired"] = repaired("Looked")
    said["weights"] = tree(SERVER)
    checkpoints.write(A / "In", shards=6, rows=8192)
    said["reference"] = ended(convert(SERVER / "In", PEER.parent / "reference"))
    said["continued"] = converted("Continued", killed=True)
    said["converted"] = converted("Converted", killed=False)
    said["folders"] = sorted(path.name for path in SERVER.iterdir())
    print(json.dumps(said))


main()
