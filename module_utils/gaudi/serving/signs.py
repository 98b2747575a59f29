"""Interpret lines of a server's output: why it ended, and how far its start has come."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from signal import Signals

from ..base.printable import printable
from ..faults.entry import ERROR
from ..faults.known import FAULTS
from ..faults.words import say


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
# Characters of a line that are searched: patterns take more than linear time, and a line may have 64 KiB.
LOOKED_AT = 1000

# vLLM's server ends with status 0 when its engine dies. These lines are a consequence, so they are searched last.
# Texts: core_client.py, multiproc_executor.py, utils.py and exceptions.py in vllm/v1 of 0.32.0 and of earlier releases.
ENGINE_DIED = re.compile(
    r"[Ee]ngine core (?:proc(?:ess)? \S+ )?(?:died|exited) unexpectedly|Worker proc \S+ died unexpectedly"
    r"|EngineDeadError|Engine core initialization failed"
)

ERROR_LINE = re.compile(r"^(?:\S*(?:Error|Exception)\b|docker: |.*\berror: ).*")
ERROR_LEVEL = re.compile(r"^(?:\([^)]*\) *)?(?:ERROR|CRITICAL)\b")
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
    lines = [line[:LOOKED_AT] for line in lines if not ACCESS.match(line)]
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


WARMUP = re.compile(r"\[Warmup\]\[(?P<phase>[\w/ -]{1,40})\]\[(?P<done>\d+)/(?P<total>\d+)\]")
# The plugin's progress: one bar for prompts and one for decoding, from every worker, on stderr, separated by carriage
# returns. VLLM_DEVELOPER_MODE adds a line for each bucket, which is not needed here (warmup_graphs in
# vllm_gaudi/v1/worker/hpu_model_runner.py of 0.17.1 to 0.26.0).
BAR = re.compile(
    r"(?P<phase>Prompt|Decode) warmup processing:[^|]{0,20}\|[^|]{0,100}\| *(?P<done>\d{1,9})/(?P<total>\d{1,9})\b"
)
GENERATED = re.compile(r"(?P<total>\d+) (?P<phase>prompt|decode) buckets", re.IGNORECASE)
SHARDS = re.compile(r"checkpoint shards:[^/]{0,100}?\b(?P<done>\d{1,9})/(?P<total>\d{1,9})\b")
# 1.16 omits "in total"; it also has no line that matches MEMORY, but a BLOCKS line like every release.
WEIGHTS = re.compile(r"Loading model weights took (?:in total )?(?P<size>[\d.]+ \S+)(?: of device memory| \(|$)")
MEMORY = re.compile(r"(?P<text>Free device memory: .*reserved for (?:usable )?KV cache)")
BLOCKS = re.compile(r"# \w+ blocks: (?P<count>\d+), # CPU blocks: \d+|Usable num_blocks: (?P<usable>\d+),")
FINISHED = re.compile(r"Warmup finished in (?P<seconds>\d+(?:\.\d+)?) secs")
SKIPPED = re.compile(r"Skipping warmup")
# Warm-up phases that are kept. Releases have four; a malicious log could name any number.
PHASES = 16
# The logging prefix: level, date, time, source line. A repeated message is no sign of life, whatever its prefix.
PREFIX = re.compile(r"^(?:\([^)]*\) ?)?(?:[A-Z]+ [\d-]+ [\d:.,]+ (?:\[[^\]]{1,80}\] ?|\S+\] ?)?)?")
# A source line in a traceback, after the prefix.
CODE = re.compile(r" {4}")


@dataclass
class Progress:
    """The progress of a server's start, from its output."""

    phase: str = "starting"
    shards: tuple[int, int] | None = None
    warm_up: dict[str, tuple[int, int]] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    warm_up_seconds: float | None = None
    memory: dict[str, str] = field(default_factory=dict)
    _heard: deque[str] = field(default_factory=lambda: deque(maxlen=256))

    def hear(self, line: str) -> bool:
        """Process one line; return True if it is a sign of life (a repeated sentence is not)."""
        line = line[:LOOKED_AT]
        self._understand(line)
        message = PREFIX.sub("", line)
        if message in self._heard:
            return False
        self._heard.append(message)
        return True

    def _understand(self, line: str) -> None:
        if found := WARMUP.search(line):
            self._pass(found["phase"].lower(), int(found["done"]), int(found["total"]))
        elif found := BAR.search(line):
            self._advance(found["phase"].lower(), int(found["done"]), int(found["total"]))
        elif "Generated " in line:
            for found in GENERATED.finditer(line):
                self.expected[found["phase"].lower()] = int(found["total"])
        elif found := SHARDS.search(line):
            self.phase, self.shards = "loading", (int(found["done"]), int(found["total"]))
        elif self._understand_memory(line):
            return
        elif found := FINISHED.search(line):
            self.phase, self.warm_up_seconds = "warmed-up", float(found["seconds"])
        elif SKIPPED.search(line):
            self.phase, self.warm_up = "warmed-up", {}

    def _pass(self, phase: str, done: int, total: int) -> None:
        """Record one bucket of a warm-up phase; announced totals have the same phases, such as graph/prompt of 1.22."""
        self.phase = "warming-up"
        if len(self.warm_up) >= PHASES and phase not in self.warm_up:
            return
        self.warm_up[phase] = (done, total)
        kind = phase[: phase.find("/") + 1]
        for name, expected in self.expected.items():
            self.warm_up.setdefault(kind + name, (0, expected))

    def _advance(self, phase: str, done: int, total: int) -> None:
        """Update a phase: of the workers' parallel bars the largest count is kept; a new total is a new bar."""
        before, of = self.warm_up.get(phase, (0, total))
        self.phase, self.warm_up[phase] = "warming-up", (max(before, done) if of == total else done, total)

    def _understand_memory(self, line: str) -> bool:
        """Whether a line reports the use of device memory."""
        if found := WEIGHTS.search(line):
            self.phase, self.memory["weights"] = "loading", found["size"]
        elif found := MEMORY.search(line):
            self.memory["device"] = found["text"]
        elif found := BLOCKS.search(line):
            self.memory["kv_cache_blocks"] = found["count"] or found["usable"]
        else:
            return False
        return True

    @property
    def filling(self) -> str:
        """What is filling the device memory: ``weights``, ``profiling``, or ``cache`` (KV cache and graphs).

        After a hand-over the new supervisor restores it from ``memory`` and the warm-up in state.json.
        """
        known = "device" in self.memory or "kv_cache_blocks" in self.memory
        if known or self.warm_up or self.phase == "warmed-up" or self.warm_up_seconds is not None:
            return "cache"
        return "profiling" if "weights" in self.memory else "weights"

    def _took(self) -> str:
        if self.warm_up_seconds is None:
            return "skipped"
        # The server reports whole seconds.
        return f"took {self.warm_up_seconds:g} s" if self.warm_up_seconds else "took less than a second"

    def text(self) -> str:
        """One line for systemctl status."""
        if self.phase == "warming-up":
            return "warm-up: " + ", ".join(f"{phase} {done}/{total}" for phase, (done, total) in self.warm_up.items())
        if self.phase == "warmed-up":
            return f"warm-up {self._took()}; waiting for the endpoint to answer"
        if self.phase == "loading":
            return f"loading weights: {self.shards[0]}/{self.shards[1]} shards" if self.shards else "weights loaded"
        return "starting the server"
