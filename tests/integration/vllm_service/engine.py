"""The scripted docker's part that starts, follows, stops and renames the container; bin/docker has recorded the call.

container.heard: how much of the container's log a supervisor has read; its server answers only after its lines.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from tests.integration.vllm_service import record  # noqa: E402 - found on the path just made

NODE = Path(os.environ["FAKE_NODE"])
LOG, STATUS, ARMED, HEARD = (NODE / f"container.{kind}" for kind in ("log", "status", "armed", "heard"))


# Seconds between two looks at the files that a test and other processes write: nothing reports their changes.
PAUSE = 0.02


def unread() -> int:
    """Count the bytes of our output that nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(1, termios.FIONREAD, bytes(4)), sys.byteorder)


def follow(position: int) -> int:
    """Copy the container's output until it ends, is started again, or the engine does."""
    began = record.read(NODE)
    heard = -1
    with LOG.open("rb") as log:
        log.seek(position)
        while True:
            ended = STATUS.exists()
            sys.stdout.buffer.write(log.read())
            sys.stdout.buffer.flush()
            if heard != log.tell() and not unread():
                heard = log.tell()
                record.replace(HEARD, str(heard))
            if ended:
                return int(STATUS.read_text())
            now = record.read(NODE)
            if began and now and now.started != began.started:
                return 137
            if not NODE.exists():
                return 125  # The test is over, and nobody is left to be told.
            if (NODE / "engine_down").exists():
                print("error waiting for container: unexpected EOF", file=sys.stderr)
                return 125
            time.sleep(PAUSE)


def run(arguments: list[str]) -> int:
    """Start the container, a process of its own."""
    scenario = json.loads((NODE / "scenario.json").read_text())
    if refusal := scenario.get("refuse"):
        print(refusal["text"], file=sys.stderr)
        return int(refusal["status"])
    # The engine takes so long to create a container.
    time.sleep(scenario.get("create_delay", 0))
    labels = dict(arguments[position + 1].split("=", 1) for position, word in enumerate(arguments) if word == "--label")
    for left in (STATUS, HEARD):
        left.unlink(missing_ok=True)
    LOG.write_bytes(b"")
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, HERE / "fake_server.py"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    # A signal before its handlers are set would end it without a status.
    while not ARMED.exists() and process.poll() is None:
        time.sleep(PAUSE)
    ARMED.unlink()
    if (NODE / "passed").exists():
        # What the runtime puts into the container's own /dev.
        root = NODE / f"proc/{process.pid}/root"
        root.parent.mkdir(parents=True)
        root.symlink_to(NODE / "passed")
    name = arguments[arguments.index("--name") + 1]
    record.write(NODE, record.EngineRecord(name, process.pid, labels))
    return follow(0)


def stop(pid: int, grace: float) -> None:
    """SIGTERM, patience, SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and not STATUS.exists():
        time.sleep(PAUSE)
    if not STATUS.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        record.replace(STATUS, "137")


def main(arguments: list[str]) -> int:
    """Do what the words say; an unknown word fails the test loudly."""
    if arguments[0] == "run":
        return run(arguments)
    if arguments[0] == "attach":
        return follow(LOG.stat().st_size)
    container = record.read(NODE)
    if container and arguments[:2] == ["container", "rename"]:
        record.write(NODE, container._replace(name=arguments[3]))
    elif container and arguments[0] == "stop":
        stop(container.pid, float(arguments[1]))
    else:
        sys.exit(f"the scripted docker does not know {arguments}")
    return 0


sys.exit(main(sys.argv[1:]))
