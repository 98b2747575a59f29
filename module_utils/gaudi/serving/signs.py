"""Interpret lines of a server's output: why it ended. How far its start has come: progress.py."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from signal import Signals

from ..base.printable import printable
from ..faults.entry import ERROR
from ..faults.known import FAULTS
from ..faults.words import say
from .progress import LOOKED_AT, PHASES, PREFIX, Progress, without_bars

# Also known from here.
__all__ = ["LOOKED_AT", "PHASES", "Progress"]


@dataclass(frozen=True)
class Reason:
    """Why an instance does not serve: kind for programs, message for people; retry: another attempt may help."""

    kind: str
    message: str
    retry: bool

    def __post_init__(self) -> None:
        """Make the message printable: it may quote what a container, the engine or a tool said."""
        object.__setattr__(self, "message", printable(self.message))


class Failure(Exception):
    """The instance cannot run, or has stopped running; carries the Reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


class EngineGone(Exception):
    """The container engine does not answer."""


def configuration(kind: str, message: str) -> Failure:
    """Return a Failure that no retry can resolve: a person has to change something first."""
    return Failure(Reason(kind, message, retry=False))


def transient(kind: str, message: str) -> Failure:
    """Return a Failure that a retry may resolve."""
    return Failure(Reason(kind, message, retry=True))


# How a worker fills a card: first weights, then a profiling run with the longest batch. gpu_memory_utilization is the
# share of the remaining memory that the KV cache and graph_reserved_mem divide; the rest is for graphs and requests. On
# 1.16 it is a share of the whole card, and graph_reserved_mem is ignored. 1.22 captures every graph, whatever memory
# that takes; 1.18, 1.21 and deepseek-r1 stop before the rest is used up (determine_num_available_blocks and
# warmup_model in vllm/worker of each release's fork).

# Faults that a log line shows, in the order of the list: the first match is the reason. Faults below severity error do
# not end a server.
SYMPTOMS = tuple((each, re.compile(each.signs)) for each in FAULTS if each.signs and each.severity == ERROR)

# A line of uvicorn's access log. It contains text from clients, even without a key, but only after the client's
# address; no message of the server itself begins like this. Format: AccessFormatter in uvicorn/logging.py.
ACCESS = re.compile(r"(?:\([^)]{0,60}\) *)?INFO: +\S{1,60}:\d{1,5} - \"[A-Za-z]{1,20} ")

# vLLM's server ends with status 0 when its engine dies. These lines are a consequence, so they are searched last.
# Texts: core_client.py, multiproc_executor.py, utils.py and exceptions.py in vllm/v1 of 0.32.0 and of earlier releases.
ENGINE_DIED = re.compile(
    r"[Ee]ngine core (?:proc(?:ess)? \S+ )?(?:died|exited) unexpectedly|Worker proc \S+ died unexpectedly"
    r"|EngineDeadError|Engine core initialization failed"
)

ERROR_LINE = re.compile(r"^(?:\S*(?:Error|Exception)\b|docker: |.*\berror: ).*")
ERROR_LEVEL = re.compile(r"^(?:\([^)]*\) *)?(?:ERROR|CRITICAL)\b")
# A source line in a traceback, after the prefix.
CODE = re.compile(r" {4}")
# Messages of the docker client if the engine ends during a command.
ENGINE_LOST = re.compile(
    r"error waiting for container|unexpected EOF|Cannot connect to the Docker daemon|error during connect"
)
# Statuses of docker run itself: 125 the engine refused, 126 and 127 the command could not be run.
DOCKER_REFUSED = (125, 126, 127)


def diagnose(
    lines: list[str],
    status: int,
    was_ready: bool,
    kernel_oom: int,
    progress: Progress,
    command: Sequence[str] = (),
) -> Reason:
    """Return why a container ended, from its last lines and its exit status.

    ``kernel_oom``: increase of the kernel's count of out-of-memory kills. ``progress``: how far the server's start had
    come. ``command``: its argument vector.
    """
    lines = [line for line in lines if not ACCESS.match(line)]
    lines = [text[:LOOKED_AT] for line in lines for text in without_bars(line) or [line]]
    filling = "" if was_ready else progress.filling
    for symptom, pattern in SYMPTOMS:
        if not any(symptom.asked in word for word in (*command, "")) or (symptom.served and not was_ready):
            continue
        found = [PREFIX.sub("", line) for line in lines if pattern.search(line)]
        if found:
            retry = symptom.retry or was_ready
            advice = say(symptom.id, filling if filling in symptom.remedies else "")
            # A traceback may quote the source line that contains the message, before the message itself.
            said = next((line for line in found if not CODE.match(line)), found[0])
            return Reason(symptom.id, f"{quote(said)} {advice}", retry)
    died = next((line for line in lines if ENGINE_DIED.search(line)), None)
    if kernel_oom > 0 and (status != 0 or died):
        return _ended("out-of-host-memory", count=kernel_oom, status=status)
    if status in (128 + Signals.SIGKILL, 128 + Signals.SIGTERM):
        return _ended("container-killed", signal=Signals(status - 128).name)
    if status == 128 + Signals.SIGSEGV:
        return _ended("crashed")
    if died:
        own = next((line for line in reversed(lines[: lines.index(died)]) if is_error(line)), "")
        return _ended("engine-died", own, status=status)
    last = next((line for line in reversed(lines) if is_error(line)), lines[-1] if lines else "")
    return _ended("container-not-started" if status in DOCKER_REFUSED else "server-ended", last, status=status)


def _ended(kind: str, said: str | None = None, **facts: object) -> Reason:
    """Return a Reason that a retry may resolve; ``said``: the server's last message, None if it is not shown."""
    case = "silent" if said == "" else ""
    return Reason(kind, say(kind, case, said=quote(said or ""), **facts), retry=True)


def is_error(line: str) -> bool:
    """Whether a line is an error message, with or without the prefix of the server's logging."""
    return bool(ERROR_LINE.match(PREFIX.sub("", line)) or ERROR_LEVEL.match(line))


def quote(line: str, limit: int = 300) -> str:
    """Quote a line of another program in a sentence."""
    text = line.strip()
    return f'"{text if len(text) <= limit else text[: limit - 1] + "…"}".'
