#!/usr/bin/env python3
"""Ask a running instance all requests of a file: the work of gaudi-job@batch.KEY.

    batch.py FOLDER INSTANCE --at-once N --timeout SECONDS --patience SECONDS [--own]

FOLDER/input.jsonl has the requests, a line each, in OpenAI's batch format. Every answer is kept as it comes, in
FOLDER/answered.jsonl. Whoever is cut off is run again, and asks only what has no answer yet. In the end
FOLDER/output.jsonl has a line for each request, in the order of the input.

While the instance is away, the work waits for it. A request that the server refuses is not asked again in this run. The
instance is asked with the token of its supervisor, which changes at each start.

With --own the instance was started for this work alone. It does not start at boot, and however the work ends, it is
stopped and its cards are free, whether or not a controller still follows.

Python 3.9, its standard library, and the library gaudi beside this program. Exit status: 0 everything was asked, 1
with one sentence as the last line, 2 wrong usage, 130 stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gaudi.base import paths
from gaudi.base.documents import Damaged
from gaudi.base.refusal import Refusal
from gaudi.base.units import human_bytes
from gaudi.batch import lines
from gaudi.node import documents, listening, long_work, reservations
from gaudi.node.files import sync_folder
from gaudi.serving.plan import Plan

LOOK_AGAIN = 2.0
"""Seconds between two looks at an instance that is away."""
TRIES = 3
"""How often a request is asked whose answer is that the server failed (status 500), or is broken off."""
MOST_AT_ONCE = 1024
"""A request at a time is a thread and a connection."""
AWAY = (429, 502, 503, 504)
"""What a server, or its guard, answers while it drains, starts, or is full."""
# Bytes. An answer of 128 000 tokens with the probability of each is below 100 MB.
LONGEST_ANSWER = 256 << 20
# Seconds. A power cut takes at most the answers of this time, and they are asked for again.
SYNC_EVERY = 1.0
TELL_EVERY = 0.5
# A server that drains. The unit of the work gives it 60 seconds once it was told to end.
STOP_WITHIN = 600.0
STOP_WITHIN_WHEN_TOLD = 50.0


class BatchInterrupt(Exception):
    """Asked to end."""


@dataclass(frozen=True)
class BatchOptions:
    """What is asked, of whom, and how. timeout, patience: seconds."""

    folder: Path
    instance: str
    at_once: int
    timeout: float
    patience: float
    own: bool = False

    @property
    def input(self) -> Path:
        """The requests."""
        return self.folder / "input.jsonl"

    @property
    def answers(self) -> Path:
        """Answers, as they come."""
        return self.folder / "answered.jsonl"

    @property
    def output(self) -> Path:
        """Answers, in the order of the requests."""
        return self.folder / "output.jsonl"


def systemctl(*words: str, within: float) -> None:
    """Raises OSError where systemd does not do it, or not within so many seconds."""
    command = ["systemctl", *words]
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=within)
    except subprocess.CalledProcessError as error:
        raise OSError(error.returncode, f"{' '.join(command)} failed: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise OSError(0, f"{' '.join(command)} takes longer than {within:.0f} seconds") from error


class OwnServer:
    """The instance that was started for this work alone."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.unit = f"vllm-{instance}.service"
        # Where all was answered before, it may be gone.
        self.there = (Path(paths.INSTANCES) / instance).is_dir()

    def not_at_boot(self) -> None:
        """Keep it from starting at boot: after a power cut it would hold its cards without work. Raises OSError."""
        if self.there:
            systemctl("--quiet", "disable", self.unit, within=STOP_WITHIN)

    def end(self, within: float) -> None:
        """Stop it, then free its cards. Raises Refusal, OSError."""
        if self.there:
            systemctl("stop", self.unit, within=within)
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            reservations.release(Path(paths.STATE), Path(paths.INSTANCES), self.instance, now)


class ServingInstance:
    """A running instance, as its plan and its supervisor tell."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Inodes of its server's sockets, as its supervisor saw them.
        self.sockets: frozenset[int] = frozenset()

    def plan(self) -> dict[str, Any]:
        """The plan on the node. Raises Refusal."""
        path = Path(paths.INSTANCES) / self.name / "plan.json"
        try:
            plan = documents.read_json(path, {"task": str, "served_model_name": str, "listen": dict})
        except Damaged as damaged:
            raise Refusal("record_damaged", f"{damaged}; run site.yml, which writes it again") from damaged
        if plan is None:
            raise Refusal("no_such_instance", f"there is no instance {self.name} on this node")
        return plan

    def endpoint(self) -> str:
        """Where it is asked. Raises Refusal."""
        try:
            return Plan.from_document(self.plan()).endpoint
        except ValueError as wrong:
            raise Refusal(
                "record_damaged", f"the plan of {self.name} cannot be read ({wrong}); run site.yml"
            ) from wrong

    def away(self) -> str:
        """Why it cannot be asked now; empty where it serves."""
        try:
            state = documents.read_json(
                Path(paths.INSTANCE_STATES) / self.name / "state.json", {"phase": str, "sockets?": [int]}
            )
        except Damaged as damaged:
            return str(damaged)
        if state is None:
            return "it never ran"
        self.sockets = frozenset(state.get("sockets", ()))
        if state["phase"] == "serving" and not self.sockets:
            return "its supervisor does not say which sockets are its server's; run site.yml, which brings a newer one"
        return "" if state["phase"] == "serving" else str(state.get("status") or state["phase"])

    def ask(self, request: lines.BatchRequest, timeout: float) -> tuple[int, object]:
        """Ask once. Raises OSError or http.client.HTTPException where there is no answer."""
        # No proxy, no redirection and no other process at its port receives the token or the request.
        connection, _ = listening.connected(self.endpoint(), listening.known_sockets(self.sockets), timeout)
        try:
            body = json.dumps(request.body).encode()
            status, said = listening.answer(
                connection, request.url, listening.headers_for(self.name), LONGEST_ANSWER, body
            )
        finally:
            connection.close()
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(said)
            if lines.is_storable(document):
                return status, document
        return status, said.decode("utf-8", "replace")


@dataclass
class Answers:
    """The file of answers that grows. Each request has one line that counts: its last."""

    path: Path
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    end: int = 0
    # Bytes that the file may have.
    most: int = 0
    synced: float = 0.0

    def __post_init__(self) -> None:
        """Read the answers of earlier runs; a line that an interruption left half written is removed."""
        self.path.touch(mode=0o600)
        with self.path.open("rb") as there:
            while text := there.readline(lines.LONGEST_LINE):
                line = lines.read_line(text.decode("utf-8", "replace")) if text.endswith(b"\n") else None
                if line is None:
                    break
                self._take(line, len(text))
        os.truncate(self.path, self.end)
        # Half of the free disk space is for what comes to this file, and for the output: a copy of all of it, in order.
        self.most = self.end // 2 + shutil.disk_usage(self.path.parent).free // 4
        self._out = self.path.open("ab", buffering=0)

    def _take(self, line: dict[str, Any], length: int) -> None:
        name = str(line["custom_id"])
        self.places[name] = (self.end, length)
        self.ids[name] = str(line["id"])
        self.end += length
        self.failed.pop(name, None)
        if why := lines.failure(line):
            self.failed[name] = why

    def has(self, request: lines.BatchRequest) -> bool:
        """Whether it was answered before, as it is asked now. One that failed is asked again."""
        return self.ids.get(request.custom_id) == request.id and request.custom_id not in self.failed

    def add(self, line: dict[str, Any]) -> None:
        """Keep an answer. Raises OSError, and Refusal for too much disk space; the file ends as before."""
        text = json.dumps(line).encode() + b"\n"
        if len(text) > lines.LONGEST_LINE:
            why = f"the answer takes {human_bytes(len(text))}, and at most {human_bytes(lines.LONGEST_LINE)} are kept"
            line = {**line, "response": None, "error": {"code": "too_long", "message": why}}
            text = json.dumps(line).encode() + b"\n"
        if self.end + len(text) > self.most:
            raise Refusal(
                "batch_answers_too_large",
                f"the answers take more than the {human_bytes(self.most)} that they may have in {self.path.parent}, so "
                "that half of the disk space stays free. Free disk space, or divide the requests into several files. "
                "Answers are kept; run this again, which asks the rest",
            )
        try:
            written = self._out.write(text)
            if written != len(text):
                raise OSError(28, os.strerror(28), str(self.path))
            if time.monotonic() - self.synced >= SYNC_EVERY:
                os.fsync(self._out.fileno())
                self.synced = time.monotonic()
        except OSError:
            os.truncate(self.path, self.end)
            raise
        self._take(line, len(text))

    def write_in_order(self, requests: Iterator[lines.BatchRequest], target: Path) -> None:
        """Write the output, in one rename."""
        os.fsync(self._out.fileno())
        writing = target.with_suffix(".writing")
        with self.path.open("rb") as there, writing.open("wb") as out:
            os.fchmod(out.fileno(), 0o600)
            for request in requests:
                place, length = self.places[request.custom_id]
                there.seek(place)
                out.write(there.read(length))
            out.flush()
            os.fsync(out.fileno())
        writing.replace(target)
        sync_folder(target.parent)


class Batch:
    """The work: one reader, several that ask, one file of answers."""

    def __init__(self, options: BatchOptions) -> None:
        self.options = options
        self.instance = ServingInstance(options.instance)
        self.answers = Answers(options.answers)
        has = [self.answers.has(request) for request in self.requests()]
        self.total, self.before = len(has), sum(has)
        # A worker that takes None ends.
        self.left: queue.Queue[lines.BatchRequest | None] = queue.Queue(maxsize=2 * options.at_once)
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.failure: BaseException | None = None
        self.progress = long_work.progress_file()
        self.began = time.monotonic()
        self.told_at = float("-inf")
        self.done = self.before

    def requests(self) -> Iterator[lines.BatchRequest]:
        """The requests, in order."""
        with self.options.input.open(encoding="utf-8") as there:
            yield from (lines.read_request(line) for line in there if line.strip())

    def check(self) -> None:
        """Raises Refusal where the instance is none, or does not answer what is asked."""
        plan = self.instance.plan()
        urls, models = set(), set()
        for request in self.requests():
            urls.add(request.url)
            models.add(request.model)
        self.instance.endpoint()
        lines.check_task(self.options.instance, plan["task"], urls)
        if models - {plan["served_model_name"]}:
            raise Refusal(
                "batch_model",
                f"{self.options.instance} serves {plan['served_model_name']}, and the batch asks "
                f"{', '.join(sorted(models))}",
            )

    def run(self) -> None:
        """Ask everything that has no answer yet. Raises Refusal, OSError."""
        for _ in range(self.options.at_once):
            threading.Thread(target=self._work, daemon=True).start()
        self.tell("ask")
        for request in self.requests():
            if not self.answers.has(request):
                self._hand_out(request)
        for _ in range(self.options.at_once):
            self._hand_out(None)
        while self.left.unfinished_tasks and not self.ended.wait(0.1):
            pass
        if self.ended.is_set():
            raise self.failure or Refusal("batch_broken", "one of those who ask ended; its last words are above")

    def _hand_out(self, request: lines.BatchRequest | None) -> None:
        while not self.ended.is_set():
            with contextlib.suppress(queue.Full):
                self.left.put(request, timeout=1.0)
                return
        raise self.failure or Refusal("batch_broken", "one of those who ask ended; its last words are above")

    def _work(self) -> None:
        """Send one request after the other, until none is left or a failure ends the whole work."""
        while not self.ended.is_set():
            request, kept = self.left.get(), False
            try:
                if request is None:
                    return
                line = self._ask(request)
                with self.lock:
                    self.answers.add(line)
                    self.done += 1
                self.tell("ask")
                kept = True
            except (Refusal, OSError) as error:
                self.failure = self.failure or error
            finally:
                # Whatever ended it: the others would wait for ever.
                if request is not None and not kept:
                    self.ended.set()
                self.left.task_done()

    def _ask(self, request: lines.BatchRequest) -> dict[str, Any]:
        """The line of output for a request. Raises Refusal where the instance stays away."""
        waited, tries = 0.0, 0
        while True:
            why = self.instance.away()
            if not why:
                line, why, tried = self._try(request, tries + 1 == TRIES)
                if line is not None:
                    return line
                tries += tried
            if waited >= self.options.patience:
                raise Refusal(
                    "not_serving",
                    f"{self.options.instance} could not be asked for {self.options.patience:.0f} seconds: {why}. "
                    "Answers are kept; once it serves, run this again, which asks the rest",
                )
            self.tell(f"wait for {self.options.instance}: {why}")
            if self.ended.wait(LOOK_AGAIN):
                raise self.failure or BatchInterrupt
            waited += LOOK_AGAIN

    def _try(self, request: lines.BatchRequest, last: bool) -> tuple[dict[str, Any] | None, str, bool]:
        """Ask once: the line of output, or None, why there is none, and whether that was the request's own try."""
        try:
            status, body = self.instance.ask(request, self.options.timeout)
        # Up to Python 3.9, a socket has an error of its own.
        except (TimeoutError, socket.timeout):
            said = f"no answer within {self.options.timeout:.0f} seconds"
            return lines.unanswered(request, "timeout", said), "", True
        except ConnectionRefusedError as error:
            return None, f"it gives no answer ({error})", False
        except (OSError, http.client.HTTPException) as error:
            # A request that ends its server would end it for ever.
            why = f"its answer was broken off ({error!r})"
            return lines.unanswered(request, "broken_off", why) if last else None, why, True
        failed = status == http.client.INTERNAL_SERVER_ERROR
        if status in AWAY or (failed and not last):
            return None, f"it answers with status {status}", failed
        return lines.answered(request, status, body), "", True

    def tell(self, phase: str) -> None:
        """Leave how far the work is, twice a second at most."""
        with self.lock:
            now = time.monotonic()
            if now - self.told_at < TELL_EVERY:
                return
            self.told_at = now
            rate = (self.done - self.before) / max(now - self.began, 1e-6)
            eta = round((self.total - self.done) / rate, 1) if rate else None
            state = {"phase": phase, "done": self.done, "total": self.total, "unit": "requests"}
            long_work.tell_progress(self.progress, {**state, "rate": round(rate, 3), "eta": eta})


def work(options: BatchOptions) -> dict[str, Any]:
    """Ask everything; the result for the job. Raises Refusal, OSError, BatchInterrupt."""
    batch = Batch(options)
    # With all answers present, no server is needed.
    if batch.before < batch.total:
        batch.check()
        batch.run()
    batch.answers.write_in_order(batch.requests(), options.output)
    order = [request.custom_id for request in batch.requests() if request.custom_id in batch.answers.failed]
    failures = {name: batch.answers.failed[name] for name in order}
    return {
        "requests": batch.total,
        "failed": len(failures),
        "asked": batch.total - batch.before,
        "told": lines.told(batch.total, failures),
        "output": str(options.output),
    }


def work_and_end(options: BatchOptions) -> dict[str, Any]:
    """Ask everything; a server started for it goes, however it ends. Raises Refusal, OSError, BatchInterrupt."""
    if not options.own:
        return work(options)
    server, within = OwnServer(options.instance), STOP_WITHIN
    try:
        server.not_at_boot()
        return work(options)
    except BatchInterrupt:
        within = STOP_WITHIN_WHEN_TOLD
        raise
    finally:
        # Told twice, it would leave the server behind.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server.end(within)


def _stop(signum: int, _frame: Any) -> None:
    raise BatchInterrupt(signum)


def number_at_once(text: str) -> int:
    """Read it. Raises ValueError for less than 1: without a worker, the work would wait for ever."""
    number = int(text)
    if not 1 <= number <= MOST_AT_ONCE:
        raise ValueError(text)
    return number


def read_options(arguments: list[str]) -> BatchOptions:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="batch.py", description="Ask a running instance all requests of a file.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("instance")
    parser.add_argument("--at-once", type=number_at_once, required=True)
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--patience", type=float, required=True)
    parser.add_argument("--own", action="store_true")
    given = parser.parse_args(arguments)
    return BatchOptions(given.folder, given.instance, given.at_once, given.timeout, given.patience, given.own)


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    options = read_options(arguments)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        result = work_and_end(options)
    except Refusal as refusal:
        print(f"batch: {refusal}", file=sys.stderr)
        long_work.tell_refusal(refusal)
        return 1
    except (OSError, ValueError) as error:
        named = f"{error.filename or options.folder}: {error.strerror}" if isinstance(error, OSError) else str(error)
        print(f"batch: {named}. Answers are kept; repair that, and run this again", file=sys.stderr)
        return 1
    except BatchInterrupt:
        print("batch: stopped; answers are kept. Run it again, which asks the rest", file=sys.stderr)
        return 130
    print(result["told"])
    long_work.tell_result(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
