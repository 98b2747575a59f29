"""What vLLM with the plugin checks and prints before it answers: releases 1.23 and later.

Forms of lines are those of vllm_gaudi/v1/worker (hpu_worker.py, hpu_model_runner.py), extension/bucketing and tqdm, and
of vllm/config and vllm/envs.py, of the versions in the surface files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import plugin_buckets, processes, recipes, surface, warmup
from .bars import Bar
from .memory import OUT_OF_MEMORY, Memory, blocks_line, cache_lines, hold, memory_lines, sized
from .plugin_buckets import Engine, Ranges, Shape, Work, switch
from .processes import Log, NeverReady, Processes, StartError, WorkerError, WorkerNotMade

# vllm_gaudi/platform.py: what else is asked for is refused in vLLM's words.
QUANTIZATION = ("awq_hpu", "compressed-tensors", "fp8", "gptq_hpu", "inc", "modelopt")
KV_CACHE = ("auto", "fp8_inc")
SEQUENCES, TOKENS = 256, 2048
# Methods of speculation that vLLM has, and the plugin's model runner has not.
NO_DRAFTER = ("mlp_speculator", "draft_model", "suffix", "ngram_gpu", "custom_class")
# Each of them has the worker end after a run that is measured.
PROFILES = ("VLLM_PROFILE_PROMPT", "VLLM_PROFILE_DECODE", "VLLM_PT_PROFILE")
# Models whose layers differ, by model_type: a second warm-up follows. 0.17.1 has none.
UNLIKE = {
    "0.21.0": ("llama4",),
    "0.26.0": ("llama4", "qwen3_moe", "qwen3_5_moe", "qwen3_next", "gemma4"),
}
READY_WITHIN = "VLLM_ENGINE_READY_TIMEOUT_S"
# Shapes by which a worker is behind the first.
FARTHEST = 3


def check_environment(names: surface.Surface, command: surface.Command, environment: Mapping[str, str]) -> list[str]:
    """The warnings about variables that vLLM itself does not know, those of the plugin among them.

    ValueError with --fail-on-environ-validation, as vllm/envs.py ends.
    """
    unknown = sorted(name for name in environment if name.startswith("VLLM_") and name not in names.vllm)
    said = [f"Unknown vLLM environment variable detected: {name}" for name in unknown]
    if said and command.text("--fail-on-environ-validation") == "true":
        raise ValueError(said[0])
    if "hpu" not in environment.get("VLLM_PLUGINS", "hpu").split(","):
        raise StartError(
            "RuntimeError: Failed to infer device type, please set the environment variable "
            "`VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging to help debug the issue."
        )
    return said


def _refused(part: str, words: str) -> StartError:
    """As pydantic says it of a part of the configuration."""
    return StartError(
        f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {part}\n"
        f"  Value error, {words} [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.12/v/value_error"
    )


def engine_of(names: surface.Surface, command: surface.Command, length: int) -> Engine:
    """What the engine is told; StartError where its configuration refuses. The KV cache has no blocks yet."""
    length = command.number("--max-model-len", length)
    sequences = command.number("--max-num-seqs", SEQUENCES)
    whole = command.text("--enable-chunked-prefill") == "false"
    tokens = command.number("--max-num-batched-tokens", max(length, TOKENS) if whole else TOKENS)
    if tokens < length and whole:
        raise _refused(
            "SchedulerConfig",
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({length}). This effectively limits the "
            "maximum sequence length to max_num_batched_tokens and makes vLLM reject longer sequences. Please "
            "increase max_num_batched_tokens or decrease max_model_len.",
        )
    if tokens < sequences:
        raise _refused(
            "SchedulerConfig",
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({sequences}).",
        )
    method = command.text("--quantization")
    methods = (*QUANTIZATION, *(("gpt_oss_mxfp4",) if names.vllm_version == "0.26.0" else ()))
    if method and method not in methods:
        raise _refused("ModelConfig", f"{method} quantization is currently not supported in hpu.")
    cache = command.text("--kv-cache-dtype", "auto")
    if cache not in KV_CACHE:
        raise ValueError(f"kv_cache_dtype {cache} is not supported on HPU: {', '.join(KV_CACHE)}")
    return Engine(names.vllm_version, sequences, length, tokens, command.number("--block-size", warmup.BLOCK), 0)


def devices(command: surface.Command) -> int:
    """The cards that a start acquires: those of one copy of the model, times its copies."""
    return command.number("--tensor-parallel-size", 1) * command.number("--data-parallel-size", 1)


def bucket_lines(work: Work) -> Iterator[str]:
    """What bucketing says before the warm-up."""
    if work.ranges is not None:
        shown = {"exponential": ", limit", "padding-aware": ", pad_max, pad_percent"}.get(work.strategy, "")
        for phase, ranges in zip(("Prompt", "Decode"), work.ranges, strict=True):
            yield f"{phase} bucket config (min, step, max_warmup{shown}) {_ranges(work.strategy, phase, ranges)}"
    for phase, found in (("prompt", work.prompt), ("decode", work.decode)):
        yield f"Generated {len(found)} {phase} buckets [bs, query, num_blocks]: {found}"


def _ranges(strategy: str, phase: str, ranges: Ranges) -> str:
    last = "block" if (phase, strategy) == ("Decode", "exponential") else "blocks"
    names = ("bs", "query", last) if phase == "Prompt" else ("bs", last)
    return ", ".join(f"{name}:{values}" for name, values in zip(names, ranges.shown, strict=True))


class WarmUp:
    """The work of all workers of a start. They run abreast, but not quite, and each prints everything.

    In recorded starts of eight workers some bars are a shape or two behind others, and a worker draws its last bars
    after another one has finished.
    """

    def __init__(
        self, running: Processes, environment: Mapping[str, str], faults: Mapping[str, Any], pause: float, log: Log
    ) -> None:
        self.speakers, self.faults, self.pause, self.log, self.done = running.workers, faults, pause, log, 0
        self.chatty = switch(environment, "VLLM_DEVELOPER_MODE")
        self.recipes = recipes.Cache(environment)

    def say(self, message: str, source: str = "hpu_model_runner.py") -> None:
        """One line of each worker."""
        for speaker in self.speakers:
            self.log(f"{speaker}{message}", source, "INFO")

    def run(self, work: Callable[[Worker], Iterator[None]]) -> None:
        """Have all workers do their work, which yields after each shape; the first of them is ahead."""
        end = object()
        running = [(place, work(Worker(self, speaker, not place))) for place, speaker in enumerate(self.speakers)]
        turn = 0
        failing = self.faults.get("worker_fails", {})
        while running:
            if turn and failing and failing["worker"] < len(self.speakers):
                raise WorkerError(failing["words"], self.speakers[failing["worker"]])
            running = [
                (place, worker)
                for place, worker in running
                if turn < min(place, FARTHEST) or next(worker, end) is not end
            ]
            turn += 1

    def compile(self, graph: str) -> None:
        """Compile a graph, or read its recipe; WorkerError with the fault that the node description has."""
        self.done += 1
        while self.done == self.faults.get("hang_at_warmup"):
            signal.pause()
        if self.done == self.faults.get("out_of_memory_at_warmup"):
            raise WorkerError(OUT_OF_MEMORY)
        self.recipes.warm(graph, self.pause)


@dataclass(frozen=True)
class Worker:
    """One worker of a warm-up. leads: whether it compiles; the others do in the same moment."""

    all: WarmUp
    speaker: str
    leads: bool

    def say(self, message: str) -> None:
        """One line."""
        self.all.log(f"{self.speaker}{message}", "hpu_model_runner.py", "INFO")

    def shapes(self, name: str, found: list[Shape], memory: Memory) -> Iterator[None]:
        """All shapes of a phase, the largest first."""
        bar = Bar(self.speaker, name, len(found))
        for number, (batch, query, blocks) in enumerate(reversed(found), start=1):
            if self.all.chatty:
                free = sized(memory.free - memory.usable + memory.graphs * (1 - number / len(found)))
                line = f"batch_size:{batch} query_len:{query} num_blocks:{blocks} free_mem:{free}"
                print(f"{self.speaker}[Warmup][{name}][{number}/{len(found)}] {line}", flush=True)
            if self.leads:
                self.all.compile(f"{name} {batch} {query} {blocks}")
            bar.next()
            yield
        bar.close()

    def phase(self, name: str, found: list[Shape], memory: Memory) -> Iterator[None]:
        """A phase, and what came of it."""
        yield from self.shapes(name, found, memory)
        self.say(f"Graph/{name} captured:{len(found)} used_mem:{sized(memory.graphs / 2)}")

    def again(self, engine: Engine, work: Work, memory: Memory) -> Iterator[None]:
        """What a model of unlike layers needs besides: some shapes again, outside the mode that only compiles."""
        self.say("Running validation warmup to trigger guard specializations...")
        prompt = [work.prompt[0], work.prompt[-1]][: len(work.prompt)]
        if engine.version == "0.26.0":
            longest = max(query for _, query, _ in work.prompt)
            prompt = [shape for shape in work.prompt if shape[1] == longest]
            self.say(f"Validation warmup: {len(prompt)} prompt buckets (seq_len={longest})")
        yield from self.shapes("Prompt", prompt, memory)
        yield from self.shapes("Decode", work.decode[:1], memory)
        self.say("Validation warmup complete.")


def speculation(command: surface.Command) -> str:
    """The method of speculative decoding; empty without."""
    given = command.text("--speculative-config")
    asked = json.loads(given) if given else {}
    method = asked.get("method") or command.text("--spec-method") or asked.get("model", "")
    return str(method).strip("[]")


def make_workers(command: surface.Command, environment: Mapping[str, str], engine: Engine) -> None:
    """What a worker looks at before it loads anything; WorkerNotMade where it stops."""
    try:
        plugin_buckets.strategy_of(engine, environment)
    except warmup.BucketError as error:
        raise WorkerNotMade(str(error)) from None
    method = speculation(command)
    if method == "medusa":
        raise WorkerNotMade("NotImplementedError: Medusa speculative decoding is not supported on HPU.")
    if method in NO_DRAFTER:
        raise WorkerNotMade(f"ValueError: Unknown speculative decoding method: {method}")


class Waiting:
    """The processes of their own that answer requests: how many, and whether they have given up."""

    def __init__(self, called: str, command: surface.Command, environment: Mapping[str, str]) -> None:
        """Begin to wait with the engines.

        The one process that does all of it waits for its engines first, without an end; the variable counts only after
        that.
        """
        self.gave_up = False
        self._seconds = int(environment.get(READY_WITHIN, "600"))
        copies = command.number("--data-parallel-size", 1)
        self._servers = command.number("--api-server-count", copies) if called == "serve" else 1
        if self._servers > 1:
            signal.signal(signal.SIGALRM, lambda *_: self._give_up())
            signal.setitimer(signal.ITIMER_REAL, self._seconds or 1e-6)

    def _give_up(self) -> None:
        """Each of them ends with its own words, wherever the engines are; these do not notice."""
        self.gave_up = True
        error = NeverReady(
            "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight "
            f"loading for large models. Waited {self._seconds}s (configured by {READY_WITHIN}). To increase the "
            f"timeout, set the environment variable: {READY_WITHIN}=<seconds>"
        )
        words = [line for number in range(self._servers) for line in processes.server_died(number, error)]
        # Not by print, which this may interrupt.
        os.write(sys.stderr.fileno(), ("\n".join(words) + "\n").encode())

    def check(self) -> None:
        """Raise NeverReady where they have given up: the main process sees it once the engines are ready."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self.gave_up:
            raise NeverReady("the processes that answer requests have ended")


def start(
    command: surface.Command,
    environment: Mapping[str, str],
    engine: Engine,
    memory: Memory,
    config: Mapping[str, Any],
    faults: Mapping[str, Any],
    quick: float,
    log: Log,
    waiting: Waiting,
) -> list[Shape]:
    """Print what engines and workers print until they are ready; StartError where they end.

    Returns the prompts that are warmed up.

    quick: how long the warm-up takes in all, in seconds, unless the node description asks for a slow one.
    """
    make_workers(command, environment, engine)
    if memory.free <= 0:
        # The weights alone are too large.
        raise WorkerNotMade(OUT_OF_MEMORY)
    running = processes.started(command, engine.old, config)
    for speaker in running.engines:
        log(f"{speaker}Initializing a V1 LLM engine (v{engine.version}) with config: (simulated)", "core.py", "INFO")
    workers = WarmUp(running, environment, faults, 0, log)
    for line in ("Environment:", f"    model_type: {config.get('model_type')}"):
        workers.say(line, "runtime.py")
    bucketing = switch(environment, "VLLM_ENABLE_BUCKETING", True)
    workers.say(f"Bucketing is {'ON' if bucketing else 'OFF'}.")
    for line, source in memory_lines(memory):
        workers.say(line, source)
    hold(engine, memory)
    for speaker in running.engines:
        for line in cache_lines(engine, memory):
            log(speaker + line, "kv_cache_utils.py", "INFO")
    workers.say(blocks_line(engine, memory), "hpu_worker.py")
    prompts: list[Shape] = []
    if bucketing:
        kinds = UNLIKE.get(engine.version, ())
        unlike = config.get("model_type") in kinds
        engine = replace(engine, kv_blocks=memory.blocks)
        prompts = _warm_up(workers, command, environment, engine, memory, unlike, quick, waiting)
    waiting.check()
    return prompts


def _warm_up(
    workers: WarmUp,
    command: surface.Command,
    environment: Mapping[str, str],
    engine: Engine,
    memory: Memory,
    unlike: bool,
    quick: float,
    waiting: Waiting,
) -> list[Shape]:
    """The shapes, and the graphs of each of them; with --enforce-eager there are none. Returns those of prompts."""
    work = _made(engine, environment)
    for line in bucket_lines(work):
        workers.say(line, "common.py")
    if any(environment.get(name) for name in PROFILES):
        raise WorkerError("AssertionError: Finished profiling")
    if switch(environment, "VLLM_SKIP_WARMUP"):
        workers.say("Skipping warmup...")
        return []
    begin, graphs = time.monotonic(), command.text("--enforce-eager") != "true"
    workers.pause = workers.faults.get("slow_warmup", quick / max(len(work.prompt) + len(work.decode), 100))
    ngram = speculation(command) == "ngram" and engine.version == "0.26.0"

    def captured(worker: Worker) -> Iterator[None]:
        worker.say("Starting sampler warmup...")
        worker.say("Sampler warmup completed successfully")
        yield from worker.phase("Prompt", work.prompt, memory)
        if ngram:
            # Seen so on somebody's host.
            size = engine.sequences
            raise WorkerError(f"IndexError: index {size} is out of bounds for axis 0 with size {size}")
        yield from worker.phase("Decode", work.decode, memory)
        if unlike:
            yield from worker.again(engine, work, memory)

    def whole(worker: Worker) -> Iterator[None]:
        if graphs:
            yield from captured(worker)
        # A moment before the engines would be ready, so that no worker is done.
        waiting.check()
        took = time.monotonic() - begin
        allocated = sized(memory.graphs if graphs else 0.0)
        worker.say(f"Warmup finished in {took:.0f} secs, allocated {allocated} of device memory")

    workers.run(whole)
    return work.prompt


def _made(engine: Engine, environment: Mapping[str, str]) -> Work:
    """The shapes of a start; WorkerError where the worker ends."""
    if engine.old and switch(environment, "VLLM_UNIFIED_ATTN"):
        raise WorkerError("simulated: the warm-up of unified attention is not there")
    try:
        return plugin_buckets.shapes(engine, environment)
    except warmup.BucketError as error:
        raise WorkerError(str(error)).with_traceback(error.__traceback__) from None
    except OSError as error:
        raise WorkerError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__) from None
