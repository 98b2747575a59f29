"""Worker processes, and what they take and answer."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gaudi.base.refusal import Refusal

from .refusals import WrongResult
from .shards import SUM, sum_of

PROGRAMS = Path(__file__).absolute().parents[1]  # the folder of fp8_convert.py and fp8_dynamic.py


class ConversionWorker:
    """One worker process. It takes tasks and answers in JSON lines, on its standard input and output."""

    def __init__(self, command: Sequence[str]) -> None:
        # close_fds=False: the worker inherits the lock that only_one holds for it, and nothing else is inheritable.
        # It also inherits that Ctrl-C is blocked, from its first moment on: only the parent handles it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, close_fds=False
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("a worker was started without pipes")
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.unread = b""

    def give(self, task: dict[str, Any]) -> None:
        """Hand over a task."""
        with contextlib.suppress(BrokenPipeError):  # the worker ended; messages reports it
            self.stdin.write(json.dumps(task).encode() + b"\n")

    def messages(self) -> list[dict[str, Any]]:
        """What it answered since the last call. Call it when the output is ready; raises Refusal when the worker ended.

        Read from the descriptor: a buffered reader could hold a second line that no selector announces.
        """
        said = os.read(self.stdout.fileno(), 65536)
        if not said:
            raise Refusal(
                "worker_ended",
                f"a worker ended unexpectedly (status {self.process.wait()}); "
                "run the same command again, finished shards are kept",
            )
        *lines, self.unread = (self.unread + said).split(b"\n")
        return [json.loads(line) for line in lines]


class Crew:
    """Worker processes; each gets the next task when it has finished one.

    A worker whose parent was killed ends at its next answer or question; only_one waits for that.
    """

    def __init__(self, tool: str, jobs: int) -> None:
        # -E, -S: nothing of the caller's environment, and no packages, which start slowly and are not needed.
        # -B: only the parent writes bytecode.
        command = (sys.executable, "-E", "-S", "-B", str(PROGRAMS / f"{tool}.py"), "--worker")
        self.workers = [ConversionWorker(command) for _ in range(jobs)]

    def __enter__(self) -> Crew:
        """The workers, which are running already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Terminate the workers, whatever they are doing."""
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.process.communicate()

    def run(
        self,
        tasks: list[dict[str, Any]],
        advance: Callable[[int], None],
        finished: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """Do all tasks. At the first failure raises Refusal with the worker's own sentence."""
        waiting = list(reversed(tasks))
        left = len(waiting)
        with selectors.DefaultSelector() as selector:
            for worker in self.workers:
                selector.register(worker.stdout, selectors.EVENT_READ, worker)
                if waiting:
                    worker.give(waiting.pop())
            while left:
                for key, _ in selector.select():
                    for message in key.data.messages():
                        if "error" in message:
                            raise Refusal(message["refused_id"], message["error"])
                        if "advance" in message:
                            advance(message["advance"])
                            continue
                        left -= 1
                        if waiting:
                            key.data.give(waiting.pop())
                        finished(message["name"], message["result"])


def serve_tasks(work: Callable[[dict[str, Any]], dict[str, Any]], explain: Callable[[OSError], Refusal]) -> int:
    """Take tasks as JSON lines, answer with progress and results; end with the input, or at the first failure."""
    for line in sys.stdin:
        task = json.loads(line)
        try:
            try:
                result = check_sum(task) if "crc32" in task else work(task)
            except WrongResult as wrong:
                if task["convert"]:
                    raise
                result = {"wrong": str(wrong), "refused_id": wrong.id}
        except (Refusal, OSError) as error:
            refusal = error if isinstance(error, Refusal) else explain(error)
            answer({"error": str(refusal), "refused_id": refusal.id})
            return 1
        answer({"name": task["name"], "result": result})
    return 0


def check_sum(task: dict[str, Any]) -> dict[str, Any]:
    """Compare every byte of a file with its recorded size and checksum."""
    target = Path(task["target"])
    if sum_of(target) != {key: task[key] for key in SUM}:
        raise WrongResult("wrong_checksum", f"{target.name}: its size or checksum is not the recorded one")
    return {}


def answer(message: dict[str, Any]) -> None:
    """One JSON line to the parent."""
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The parent was killed. What is left in the buffer would fail again when the interpreter ends: discard it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
