#!/usr/bin/env python3
"""Run one long piece of work under systemd, so that it belongs to the node and not to a connection.

    gaudi_job.py KEY        (called by gaudi-job@KEY.service)

The description lies in /var/lib/gaudi-serving/jobs/KEY/job.json, written by the Ansible module node_job. Beside
it this program keeps state.json (how the job stands) and log (what the work printed); the work itself keeps
progress.json (path in GAUDI_JOB_PROGRESS) and may leave result.json (path in GAUDI_JOB_RESULT). Work that is refused
leaves {"refused": SENTENCE, "refused_id": ID} there.

A job that was cut off by a stop, a crash or a reboot is "interrupted": the work is started again by the next
request and is expected to continue where it stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gaudi.base.documents import Damaged
from gaudi.base.printable import journal_line, printable
from gaudi.node.beneath import WRITING
from gaudi.node.documents import make_room, read_json
from gaudi.node.files import WriteFailure, write_json
from gaudi.node.long_work import lines_of

JOBS = Path("/var/lib/gaudi-serving/jobs")
LOG_LIMIT = 1024 * 1024  # bytes of log kept of one run; the journal has all of it
DESCRIPTION = {"digest": str, "command": [str], "environment": {str: str}}
TAIL = 20  # lines of it that go into the state


def now() -> str:
    """The time as state files have it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def boot_id() -> str:
    """Names this boot of the node; after another one nothing of ours can still run."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def left_by(result: Path) -> dict[str, Any]:
    """Return what failed work left: the id of its refusal, or nothing. It may have been killed while it wrote."""
    try:
        return read_json(result) or {}
    except Damaged:
        return {}


class Log:
    """The last words of the work: all of them to the journal, the last megabyte to a file, where it has room."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.lost = False
        self.tail: list[str] = []
        try:
            # Anything at this path is replaced, for example a pipe without a reader.
            make_room(path)
            path.unlink(missing_ok=True)
            self.stream = path.open("wb", buffering=0)
        except OSError as failed:
            self.stream = os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb", buffering=0)
            self.lose(failed)

    def lose(self, failed: OSError) -> None:
        """Say once that the file lacks lines; the journal has them."""
        if not self.lost:
            said = f"{self.path} cannot be written ({failed.strerror}). The work goes on."
            print(journal_line(said), file=sys.stderr, flush=True)
        self.lost = True

    def turn_over(self) -> None:
        """Begin a new file; the full one is written to until the new one exists. Raises OSError."""
        make_room(self.path.with_name("log.1"))
        if self.path.exists():
            self.path.replace(self.path.with_name("log.1"))
        full, self.stream = self.stream, self.path.open("wb", buffering=0)
        full.close()
        self.size = 0

    def add(self, line: str) -> None:
        """Take one line."""
        line = printable(line)
        print(journal_line(line), flush=True)
        self.tail = [*self.tail[-(TAIL - 1) :], line]
        try:
            if self.size > LOG_LIMIT:
                self.turn_over()
            self.size += len(line) + 1
            self.stream.write(f"{line}\n".encode())
        except OSError as failed:
            self.lose(failed)


class Job:
    """One run of one job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.description = read_json(folder / "job.json", DESCRIPTION) or {}
        self.started = now()
        self.stopped = False
        self.work: subprocess.Popen[bytes] | None = None

    def state(self, name: str, log: Log, **more: object) -> None:
        """Write down how the job stands. It only reports: without room the work goes on."""
        content = {
            "state": name,
            "digest": self.description["digest"],
            "started": self.started,
            "boot_id": boot_id(),
            "log": log.tail,
            **more,
        }
        try:
            write_json(self.folder / "state.json", content)
        except WriteFailure as failed:
            said = f"{failed.filename} cannot be written ({failed.strerror}). Only this journal says so: {name}."
            print(journal_line(said), file=sys.stderr, flush=True)

    def listen(self) -> None:
        """Hear a stop from now on, whatever the work does.

        Python runs a handler between two steps of its main thread. One that had just begun to wait for a line of silent
        work would run none: what the handler is called for is read by another thread.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGTERM, lambda _signal, _frame: None)
        threading.Thread(target=self.stop, args=(reader,), daemon=True).start()

    def stop(self, signals: int) -> None:
        """Pass a stop on to the work, which may finish what it is writing."""
        os.read(signals, 1)
        self.stopped = True
        if self.work is not None:
            self.work.terminate()

    def run(self) -> int:
        """Do the work; returns its exit status."""
        for name in ("progress.json", "result.json", "cancelled"):
            make_room(self.folder / name)
            (self.folder / name).unlink(missing_ok=True)
        for left_over in self.folder.glob(f"*{WRITING}"):
            left_over.unlink()
        make_room(self.folder / "state.json")
        log = Log(self.folder / "log")
        self.state("running", log)
        self.listen()
        environment = {
            **os.environ,
            # Programs that the work runs are parsed.
            "LC_ALL": "C",
            **self.description["environment"],
            "GAUDI_JOB_PROGRESS": str(self.folder / "progress.json"),
            "GAUDI_JOB_RESULT": str(self.folder / "result.json"),
            "PYTHONUNBUFFERED": "1",
        }
        try:
            self.work = subprocess.Popen(
                self.description["command"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            self.state("failed", log, ended=now(), status=127, message=f"{error.filename}: {error.strerror}")
            return 1
        if self.stopped:  # the stop came before there was anything to stop
            self.work.terminate()
        for line in lines_of(self.work.stdout):
            log.add(line)
        status = self.work.wait()
        self.finish(status, log)
        # A stop is no failure of the unit: the state says "interrupted" or "cancelled".
        return 0 if self.stopped else status if 0 <= status < 128 else 1

    def finish(self, status: int, log: Log) -> None:
        """Record how the work ended; if it failed, with its own last sentence."""
        said = next((line for line in reversed(log.tail) if line.strip()), "it printed nothing")
        if status == 0:
            self.state("succeeded", log, ended=now(), status=0, result=left_by(self.folder / "result.json"))
        elif (self.folder / "cancelled").exists():
            self.state("cancelled", log, ended=now(), status=status, message="cancelled on request")
        elif self.stopped:
            self.state("interrupted", log, ended=now(), status=status, message="stopped; run it again to continue")
        else:
            how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
            result = left_by(self.folder / "result.json")
            # Whoever shows it ends the sentence.
            message = f"{said.rstrip().removesuffix('.')} ({how})"
            self.state("failed", log, ended=now(), status=status, message=message, result=result)


def main(arguments: list[str]) -> int:
    """Entry point: the key of the job."""
    if len(arguments) != 1:
        print("usage: gaudi_job.py KEY", file=sys.stderr)
        return 2
    folder = JOBS / arguments[0]
    if not (folder / "job.json").exists():
        print(f"There is no job {arguments[0]}: {folder / 'job.json'} is missing.", file=sys.stderr)
        return 2
    try:
        job = Job(folder)
    except Damaged as damage:
        print(f"{damage}. Run the playbook that started this work again, which replaces it.", file=sys.stderr)
        return 2
    return job.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
