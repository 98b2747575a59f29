"""The processes of a server with the plugin: how their lines begin, and what they print when a start fails.

Names and forms are those of vllm/v1/engine, vllm/v1/executor/multiproc_executor.py, vllm/entrypoints/cli/serve.py and
vllm/utils/system_utils.py of vLLM 0.17.1 and 0.26.0. One process of the stand-in speaks for all; its tracebacks are its
own, with the real server's words at their end.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import surface

Log = Callable[[str, str, str], None]
"""A message with what stands before it, the file that says it, and the level."""

SPEAKER = re.compile(r"\((?:Worker|EngineCore|APIServer|ApiServer)\w* pid=\d+\) ")
# Who logs an exception of a worker, and the frames of libraries in it: in recorded starts that failed each worker's
# traceback has 33 to 77 lines (vLLM 0.26.0 with the plugin).
WORKERS = "multiproc_executor.py"
DEPTH = 22
_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")


class StartError(Exception):
    """A start ends with these words, in the process that answers requests, unless a subclass says in which other."""


class EngineError(StartError):
    """It ends in the engine core."""


class WorkerError(StartError):
    """It ends in every worker, as they work; or in one of them, which is named as its lines begin."""

    def __init__(self, words: str, worker: str = "") -> None:
        super().__init__(words)
        self.worker = worker


class WorkerNotMade(StartError):
    """It ends in every worker, before it could work."""


class NeverReady(StartError):
    """Processes of their own, which answer requests, have waited too long for the engines."""


@dataclass(frozen=True)
class Processes:
    """Who speaks in a start, each as its lines begin. Without workers of its own an engine does their work."""

    server: str
    engines: tuple[str, ...]
    own_workers: tuple[str, ...]

    @property
    def workers(self) -> tuple[str, ...]:
        """Who does the workers' work."""
        return self.own_workers or self.engines


def started(command: surface.Command, old: bool, config: Mapping[str, Any]) -> Processes:
    """The processes that a start has; ``old`` is 0.17.1, ``config`` the model's config.json."""
    tensor, copies = command.number("--tensor-parallel-size", 1), command.number("--data-parallel-size", 1)
    engines = [f"EngineCore_DP{copy}" for copy in range(copies)] if copies > 1 or old else ["EngineCore"]
    experts = any(config.get(name) for name in _EXPERTS)
    by_expert = experts and command.text("--enable-expert-parallel") == "true"
    workers = [
        "Worker"
        # Copies of a model without experts know nothing of each other.
        + (f"_DP{copy}" if copies > 1 and experts else "")
        + (f"_TP{rank}" if tensor > 1 else "")
        + (f"_EP{copy * tensor + rank}" if by_expert else "")
        for copy in range(copies)
        for rank in range(tensor)
    ]
    if tensor * copies == 1:
        workers = []
    named = [f"({name} pid={os.getpid() + number}) " for number, name in enumerate(["APIServer", *engines, *workers])]
    return Processes(named[0], tuple(named[1 : len(engines) + 1]), tuple(named[len(engines) + 1 :]))


def traced(error: BaseException, depth: int = 0) -> list[str]:
    """The lines of a traceback, with the real server's words last. depth: frames of libraries besides its own."""
    frames = "".join(traceback.format_tb(error.__traceback__)).splitlines()
    for number in range(depth):
        frames += [f'  File "/simulated/torch/nn/module.py", line {number + 1}, in forward', "    return inner()"]
    return ["Traceback (most recent call last):", *frames, *str(error).splitlines()]


def last_words(processes: Processes, error: StartError, log: Log) -> str:
    """Log what workers and engines say of a failed start; give what the processes that end leave on stderr."""
    if isinstance(error, NeverReady):
        main = StartError(f"RuntimeError: Process ApiServer_0 (PID: {os.getpid()}) died with exit code 1")
        return "\n".join(traced(main))
    printed: list[str] = []
    said = error
    if processes.own_workers and isinstance(error, (WorkerError, WorkerNotMade)):
        made = isinstance(error, WorkerError)
        what = "WorkerProc hit an exception." if made else "WorkerProc failed to start."
        alone = error.worker if isinstance(error, WorkerError) else ""
        _logged((alone,) if alone else processes.own_workers, what, said, WORKERS, log)
        said = _follows(error, _MADE.format(str(error).partition(": ")[2]) if made else _NOT_MADE)
    if isinstance(error, (EngineError, WorkerError, WorkerNotMade)):
        _logged(processes.engines, "EngineCore failed to start.", said, "core.py", log)
        names = [engine[1:].partition(" ")[0] for engine in processes.engines]
        for engine, name in zip(processes.engines, names, strict=True):
            printed += _died(engine, name, said)
        said = _follows(error, f"{_ENGINES_FAILED}{dict.fromkeys(names[:1], 1)}")
    return "\n".join([*printed, *(processes.server + line for line in traced(said))])


def _follows(error: StartError, words: str) -> StartError:
    """What the next process says of it."""
    return StartError(words).with_traceback(error.__traceback__)


_MADE = "RuntimeError: Worker failed with error '{}', please check the stack trace above for the root cause"
_NOT_MADE = (
    "Exception: WorkerProc initialization failed due to an exception in a background process. "
    "See stack trace for root cause."
)
_ENGINES_FAILED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "


def _logged(speakers: Iterable[str], message: str, error: BaseException, source: str, log: Log) -> None:
    """As logger.exception does: each line of the traceback is a line of the log."""
    for speaker in speakers:
        for line in (message, *traced(error, DEPTH if source == WORKERS else 0)):
            log(speaker + line, source, "ERROR")


def server_died(number: int, error: NeverReady) -> list[str]:
    """What is printed of one of the processes that answer requests."""
    name = f"ApiServer_{number}"
    return _died(f"({name} pid={os.getpid()}) ", name, error)


def _died(speaker: str, name: str, error: BaseException) -> list[str]:
    """What multiprocessing prints of a process that an exception has ended."""
    return [speaker + line for line in (f"Process {name}:", *traced(error))]
