"""What the lines of a server mean: the reason why it ended, and how far it is on its way to ready."""

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
    """Why an instance is not serving, for a person: kind for programs, message for people."""

    kind: str
    message: str
    retry: bool

    def __post_init__(self) -> None:
        """Make the message printable: it may quote what a container, the engine or a tool said."""
        object.__setattr__(self, "message", printable(self.message))


class Failure(Exception):
    """The instance cannot run, or stopped running; carries the Reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


class EngineGone(Exception):
    """The container engine does not answer."""


def configuration(kind: str, message: str) -> Failure:
    """Trying again cannot help: somebody has to change something first."""
    return Failure(Reason(kind, message, retry=False))


def transient(kind: str, message: str) -> Failure:
    """Trying again may help."""
    return Failure(Reason(kind, message, retry=True))


# How a worker fills a card: weights, then a profiling run on a longest batch; gpu_memory_utilization is the share of
# what is still free that the KV cache and graph_reserved_mem divide, the rest is left for graphs and requests. On 1.16
# it is a share of the whole card, and graph_reserved_mem is not read. 1.22 captures every graph, whatever that takes;
# 1.18, 1.21 and deepseek-r1 stop before the rest is used (determine_num_available_blocks and warmup_model in
# vllm/worker of each release's fork).

# Faults that a line of the log shows, in the order of the list: the first that is found is the reason. One that is no
# error ends no server.
SYMPTOMS = tuple((each, re.compile(each.signs)) for each in FAULTS if each.signs and each.severity == ERROR)

# A line of uvicorn's access log, which holds whatever somebody without a key asked for. What a client sends stands
# behind its address; nothing that a server says of itself begins so. Format: AccessFormatter in uvicorn/logging.py.
ACCESS = re.compile(r"(?:\([^)]{0,60}\) *)?INFO: +\S{1,60}:\d{1,5} - \"[A-Za-z]{1,20} ")
# Characters of a line that are looked at; patterns take longer than linear time, and a line may have 64 KiB.
LOOKED_AT = 1000

# vLLM's server ends with status 0 when its engine dies. That is what follows from the cause, so it is looked for last.
# Texts: core_client.py, multiproc_executor.py, utils.py and exceptions.py in vllm/v1 of 0.32.0 and of earlier releases.
ENGINE_DIED = re.compile(
    r"[Ee]ngine core (?:proc(?:ess)? \S+ )?(?:died|exited) unexpectedly|Worker proc \S+ died unexpectedly"
    r"|EngineDeadError|Engine core initialization failed"
)

ERROR_LINE = re.compile(r"^(?:\S*(?:Error|Exception)\b|docker: |.*\berror: ).*")
ERROR_LEVEL = re.compile(r"^(?:\([^)]*\) *)?(?:ERROR|CRITICAL)\b")
# What the docker client says when the engine goes away below it.
ENGINE_LOST = re.compile(
    r"error waiting for container|unexpected EOF|Cannot connect to the Docker daemon|error during connect"
)
# docker run's own statuses: 125 the engine refused, 126 and 127 the command could not be run.
DOCKER_REFUSED = (125, 126, 127)


def diagnose(
    lines: list[str],
    status: int,
    was_ready: bool,
    kernel_oom: int,
    progress: Progress,
    command: Sequence[str] = (),
) -> Reason:
    """Say why a container ended, from its last lines and its exit status.

    ``kernel_oom`` is by how much the kernel's own count of out-of-memory kills rose meanwhile, ``progress`` how far the
    server had come, ``command`` what it was started with.
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
            # A traceback may show the code that says it before what it says.
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
    """An end that may be another one the next time; ``said``: the server's last words, None where nobody asks."""
    case = "silent" if said == "" else ""
    return Reason(kind, say(kind, case, said=quote(said or ""), **facts), retry=True)


def is_error(line: str) -> bool:
    """Tell whether a line names an error, with or without what the server's logging puts before it."""
    return bool(ERROR_LINE.match(PREFIX.sub("", line)) or ERROR_LEVEL.match(line))


def quote(line: str, limit: int = 300) -> str:
    """Put a line of somebody else's into a sentence of ours."""
    text = line.strip()
    return f'"{text if len(text) <= limit else text[: limit - 1] + "…"}".'


WARMUP = re.compile(r"\[Warmup\]\[(?P<phase>[\w/ -]{1,40})\]\[(?P<done>\d+)/(?P<total>\d+)\]")
# The plugin's progress: a bar for prompts and one for decoding, from every worker, on stderr, parted by carriage
# returns. A line a bucket comes beside it where VLLM_DEVELOPER_MODE is on, which nobody needs for this (warmup_graphs
# in vllm_gaudi/v1/worker/hpu_model_runner.py of 0.17.1 to 0.26.0).
BAR = re.compile(
    r"(?P<phase>Prompt|Decode) warmup processing:[^|]{0,20}\|[^|]{0,100}\| *(?P<done>\d{1,9})/(?P<total>\d{1,9})\b"
)
GENERATED = re.compile(r"(?P<total>\d+) (?P<phase>prompt|decode) buckets", re.IGNORECASE)
SHARDS = re.compile(r"checkpoint shards:[^/]{0,100}?\b(?P<done>\d{1,9})/(?P<total>\d{1,9})\b")
# 1.16 leaves "in total" out; it logs no line of MEMORY either, but BLOCKS as every release does.
WEIGHTS = re.compile(r"Loading model weights took (?:in total )?(?P<size>[\d.]+ \S+)(?: of device memory| \(|$)")
MEMORY = re.compile(r"(?P<text>Free device memory: .*reserved for (?:usable )?KV cache)")
BLOCKS = re.compile(r"# \w+ blocks: (?P<count>\d+), # CPU blocks: \d+|Usable num_blocks: (?P<usable>\d+),")
FINISHED = re.compile(r"Warmup finished in (?P<seconds>\d+(?:\.\d+)?) secs")
SKIPPED = re.compile(r"Skipping warmup")
# Kinds of passes of a warm-up that are kept. Releases have four; a line can be made to say anything.
PHASES = 16
# What the logging puts before a message: level, date, time, source line; the same message later is no news.
PREFIX = re.compile(r"^(?:\([^)]*\) ?)?(?:[A-Z]+ [\d-]+ [\d:.,]+ (?:\[[^\]]{1,80}\] ?|\S+\] ?)?)?")
# A line of a program in a traceback, behind that.
CODE = re.compile(r" {4}")


@dataclass
class Progress:
    """What the server's output says about its way to ready."""

    phase: str = "starting"
    shards: tuple[int, int] | None = None
    warm_up: dict[str, tuple[int, int]] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    warm_up_seconds: float | None = None
    memory: dict[str, str] = field(default_factory=dict)
    _heard: deque[str] = field(default_factory=lambda: deque(maxlen=256))

    def hear(self, line: str) -> bool:
        """Take one line in; True if it is a sign of life (the same sentence over and over is not)."""
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
        """One bucket of a kind of pass; what is announced comes in the same kind, as graph/prompt of 1.22."""
        self.phase = "warming-up"
        if len(self.warm_up) >= PHASES and phase not in self.warm_up:
            return
        self.warm_up[phase] = (done, total)
        kind = phase[: phase.find("/") + 1]
        for name, expected in self.expected.items():
            self.warm_up.setdefault(kind + name, (0, expected))

    def _advance(self, phase: str, done: int, total: int) -> None:
        """Workers run abreast, and each has its own bar: the furthest counts. Another total is another bar's."""
        before, of = self.warm_up.get(phase, (0, total))
        self.phase, self.warm_up[phase] = "warming-up", (max(before, done) if of == total else done, total)

    def _understand_memory(self, line: str) -> bool:
        """Whether a line says what the device's memory is used for."""
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
        """What device memory is being filled with: ``weights``, ``profiling``, or ``cache`` (KV cache and graphs).

        A successor knows it as well: it takes ``memory`` and the warm-up over from the state.
        """
        known = "device" in self.memory or "kv_cache_blocks" in self.memory
        if known or self.warm_up or self.phase == "warmed-up" or self.warm_up_seconds is not None:
            return "cache"
        return "profiling" if "weights" in self.memory else "weights"

    def _took(self) -> str:
        if self.warm_up_seconds is None:
            return "skipped"
        # The server says whole seconds.
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
