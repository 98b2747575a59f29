"""Run functions that may never return, such as one that reads a mounted folder whose server is gone."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

Name = TypeVar("Name")
_BLOCK = 1 << 16
# The last byte of a whole result: what is printed by a process that is killed does not have it.
_END = b"\n"


def in_time(reads: Mapping[Name, Callable[[], Any]], seconds: float) -> dict[Name, Any]:
    """Run functions at once, each in a process of its own, and return what each returned, as JSON has it.

    One that did not return in this time, or whose process was killed, is not among the results. Raises RuntimeError for
    one that raised.
    """
    printed: dict[Name, bytearray] = {}
    processes: dict[Name, int] = {}
    ended: dict[Name, Any] = {}
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as pipes:
        try:
            for name, read in reads.items():
                end, begin = os.pipe()
                processes[name] = _start(read, begin)
                os.close(begin)
                printed[name] = bytearray()
                pipes.register(end, selectors.EVENT_READ, name)
            while pipes.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in pipes.select(left):
                    block = os.read(key.fd, _BLOCK)
                    printed[key.data] += block
                    if not block:
                        pipes.unregister(key.fd)
                        os.close(key.fd)
                        # Without a process to wait for where the caller's parent ignores SIGCHLD.
                        with suppress(ChildProcessError):
                            os.waitpid(processes.pop(key.data), 0)
                        if printed[key.data].endswith(_END):
                            ended[key.data] = _result(bytes(printed[key.data]))
        finally:
            for key in [*pipes.get_map().values()]:
                os.close(key.fd)
            for process in processes.values():
                # With the programs that it runs. Nobody waits for its end: the kernel may not let it go before the
                # server of a mounted folder answers.
                with suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)
    return {name: ended[name] for name in reads if name in ended}


def _result(printed: bytes) -> Any:
    result = json.loads(printed)
    if "raised" in result:
        raise RuntimeError(result["raised"])
    return result["returned"]


def _start(read: Callable[[], Any], pipe: int) -> int:
    """Start a process that runs a function and writes what it returned into a pipe; return its id."""
    process = os.fork()
    if process:
        # Also here, so that it has its group before anybody ends it.
        with suppress(OSError):
            os.setpgid(process, process)
        return process
    answer = ""
    try:
        os.setpgid(0, 0)
        # The connection ends once nobody holds its streams; a process that hangs must not.
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        answer = json.dumps({"returned": read()})
    finally:
        # What was raised ends here too: the rest of the program belongs to the other process.
        with os.fdopen(pipe, "w", encoding="ascii") as result:
            result.write((answer or json.dumps({"raised": traceback.format_exc()})) + _END.decode())
        os._exit(0)
