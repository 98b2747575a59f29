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
from pathlib import Path
from typing import Any

from . import plugin_buckets, surface, warmup
from .plugin_buckets import Engine, Ranges, Shape, Work, switch

Log = Callable[[str, str], None]

# vllm_gaudi/platform.py: what else is asked for is refused in vLLM's words.
QUANTIZATION = ("awq_hpu", "compressed-tensors", "fp8", "gptq_hpu", "inc", "modelopt")
KV_CACHE = ("auto", "fp8_inc")
SEQUENCES, TOKENS = 256, 2048
BAR = 10  # characters


@dataclass(frozen=True)
class Memory:
    """How a card's memory is divided, in bytes, and the blocks of the KV cache that come of it."""

    weights: float
    free: float
    usable: float
    graphs: float
    dummy: float
    cache: float
    blocks: int
    # Shares as they were asked for.
    utilization: float
    reserved: float


def sized(value: float) -> str:
    """Bytes as the plugin's profiler writes them (format_bytes)."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) <= 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def check_environment(names: surface.Surface, command: surface.Command, environment: Mapping[str, str]) -> list[str]:
    """The warnings about variables that vLLM itself does not know, those of the plugin among them.

    ValueError with --fail-on-environ-validation, as vllm/envs.py ends.
    """
    unknown = sorted(name for name in environment if name.startswith("VLLM_") and name not in names.vllm)
    said = [f"Unknown vLLM environment variable detected: {name}" for name in unknown]
    if said and command.text("--fail-on-environ-validation") == "true":
        raise ValueError(said[0])
    return said


def engine_of(names: surface.Surface, command: surface.Command, length: int) -> Engine:
    """What the engine is told; ValueError where its configuration refuses. The KV cache has no blocks yet."""
    length = command.number("--max-model-len", length)
    sequences = command.number("--max-num-seqs", SEQUENCES)
    whole = command.text("--enable-chunked-prefill") == "false"
    tokens = command.number("--max-num-batched-tokens", max(length, TOKENS) if whole else TOKENS)
    if tokens < length and whole:
        raise ValueError(
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({length}). This effectively limits the "
            "maximum sequence length to max_num_batched_tokens and makes vLLM reject longer sequences. Please "
            "increase max_num_batched_tokens or decrease max_model_len."
        )
    if tokens < sequences:
        raise ValueError(
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({sequences})."
        )
    method = command.text("--quantization")
    methods = (*QUANTIZATION, *(("gpt_oss_mxfp4",) if names.vllm_version == "0.26.0" else ()))
    if method and method not in methods:
        raise ValueError(f"{method} quantization is currently not supported in hpu.")
    cache = command.text("--kv-cache-dtype", "auto")
    if cache not in KV_CACHE:
        raise ValueError(f"kv_cache_dtype {cache} is not supported on HPU: {', '.join(KV_CACHE)}")
    return Engine(names.vllm_version, sequences, length, tokens, command.number("--block-size", warmup.BLOCK), 0)


def devices(command: surface.Command) -> int:
    """The cards that a start acquires: those of one copy of the model, times its copies."""
    return command.number("--tensor-parallel-size", 1) * command.number("--data-parallel-size", 1)


def memory_of(
    command: surface.Command, environment: Mapping[str, str], engine: Engine, card: Mapping[str, Any], model: Path
) -> Memory:
    """Divide the memory of a card as hpu_worker.determine_available_memory does."""
    cards = command.number("--tensor-parallel-size", 1)
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors")) / cards
    utilization = float(command.text("--gpu-memory-utilization", "0.9" if engine.old else "0.92"))
    eager = command.text("--enforce-eager") == "true"
    reserved = 0.0 if eager else float(environment.get("VLLM_GRAPH_RESERVED_MEM", "0.1"))
    free = (card["memory_total"] - card["memory_idle"]) * 1024.0**2 - weights
    usable = free * utilization
    dummy = float(_block_bytes(model, cards, engine.block))
    cache = usable * (1 - reserved) - dummy
    blocks = command.number("--num-gpu-blocks-override", int(cache // dummy))
    if blocks < 1:
        raise ValueError(
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
            "the engine."
        )
    return Memory(weights, free, usable, usable * reserved, dummy, cache, blocks, utilization, reserved)


def _block_bytes(model: Path, cards: int, block: int) -> int:
    """Bytes of a block of keys and values in bfloat16; of a model without a configuration, a mebibyte."""
    file = model / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    heads, layers = config.get("num_attention_heads"), config.get("num_hidden_layers")
    if not heads or not layers:
        return 1 << 20
    head = config.get("head_dim") or config["hidden_size"] // heads
    shared = max(1, config.get("num_key_value_heads", heads) // cards)
    return int(layers * 2 * shared * head * 2 * block)


def memory_lines(engine: Engine, memory: Memory) -> Iterator[tuple[str, str]]:
    """What the worker and the engine say about the memory, each with the file that says it."""
    yield f"Loading model weights took {memory.weights / 1024**3:.4f} GB", "hpu_model_runner.py"
    kept = f"{sized(memory.dummy)} reserved for KV cache dummy block {sized(memory.cache)} reserved for usable KV cache"
    yield (
        f"Free device memory: {sized(memory.free)}, {sized(memory.usable)} usable "
        f"(gpu_memory_utilization={memory.utilization:g}), {sized(memory.graphs)} reserved for HPUGraphs "
        f"(VLLM_GRAPH_RESERVED_MEM={memory.reserved:g}), {kept}",
        "hpu_worker.py",
    )
    tokens = memory.blocks * engine.block
    yield f"GPU KV cache size: {tokens:,} tokens", "kv_cache_utils.py"
    at_once = tokens / engine.length
    yield f"Maximum concurrency for {engine.length:,} tokens per request: {at_once:.2f}x", "kv_cache_utils.py"
    across = "" if engine.old else " (max across layers)"
    yield (
        f"Usable num_blocks: {memory.blocks}, actual allocated num_blocks{across}: {memory.blocks + 1} "
        f"(_PAD_BLOCK_ID={memory.blocks}, _PAD_SLOT_ID={memory.blocks * engine.block})",
        "hpu_model_runner.py",
    )


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


class Bar:
    """tqdm's bar on stderr: each update in the place of the last, after a carriage return."""

    def __init__(self, phase: str, total: int, prefix: str) -> None:
        self.label, self.total, self.begin = f"{prefix}{phase} warmup processing: ", total, time.monotonic()
        self.show(0)

    def show(self, done: int) -> None:
        """Draw it."""
        share, took = done / self.total, time.monotonic() - self.begin
        pace = f"{took / done:.2f}s/item" if done else "?item/s"
        left = _clock(took / done * (self.total - done)) if done else "?"
        filled = "█" * int(BAR * share)
        print(
            f"\r{self.label}{100 * share:3.0f}%|{filled:{BAR}}| {done}/{self.total} [{_clock(took)}<{left}, {pace}]",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        """End its line."""
        print(file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


class WarmUp:
    """The warm-up of all workers of a start: they run abreast and each prints everything."""

    def __init__(self, environment: Mapping[str, str], faults: Mapping[str, Any], workers: int, log: Log) -> None:
        self.chatty = switch(environment, "VLLM_DEVELOPER_MODE")
        self.faults, self.log, self.done = faults, log, 0
        self.prefixes = [f"(Worker_TP{rank} pid={os.getpid() + rank}) " for rank in range(workers)]
        if workers == 1:
            self.prefixes = [""]

    def say(self, message: str, source: str = "hpu_model_runner.py") -> None:
        """One line of each worker."""
        for prefix in self.prefixes:
            self.log(f"{prefix}{message}", source)

    def phase(self, name: str, found: list[Shape], memory: Memory, pause: float) -> None:
        """All shapes of a phase, the largest first; MemoryError with the fault that the node description has."""
        bars = [Bar(name, len(found), prefix) for prefix in self.prefixes]
        for number, (batch, query, blocks) in enumerate(reversed(found), start=1):
            self.done += 1
            if self.done == self.faults.get("hang_at_warmup"):
                signal.pause()
            if self.done == self.faults.get("out_of_memory_at_warmup"):
                raise MemoryError
            if self.chatty:
                free = sized(memory.free - memory.usable + memory.graphs * (1 - number / len(found)))
                line = f"batch_size:{batch} query_len:{query} num_blocks:{blocks} free_mem:{free}"
                for prefix in self.prefixes:
                    print(f"{prefix}[Warmup][{name}][{number}/{len(found)}] {line}", flush=True)
            time.sleep(pause)
            for bar in bars:
                bar.show(number)
        for bar in bars:
            bar.close()
        self.say(f"Graph/{name} captured:{len(found)} used_mem:{sized(memory.graphs / 2)}")


def warm_up(
    command: surface.Command,
    environment: Mapping[str, str],
    engine: Engine,
    memory: Memory,
    faults: Mapping[str, Any],
    quick: float,
    log: Log,
) -> None:
    """Print what a start prints; BucketError where bucketing ends it, MemoryError with the fault of that name.

    quick: how long it takes in all, in seconds, unless the node description asks for a slow one.
    """
    workers = WarmUp(environment, faults, command.number("--tensor-parallel-size", 1), log)
    if switch(environment, "VLLM_UNIFIED_ATTN"):
        raise warmup.BucketError("simulated: the warm-up of unified attention is not there")
    bucketing = switch(environment, "VLLM_ENABLE_BUCKETING", True)
    workers.say(f"Bucketing is {'ON' if bucketing else 'OFF'}.", "common.py")
    plugin_buckets.strategy_of(engine, environment)
    for line, source in memory_lines(engine, memory):
        workers.say(line, source)
    if not bucketing or switch(environment, "VLLM_SKIP_WARMUP"):
        workers.say("Skipping warmup...")
        return
    work = plugin_buckets.shapes(replace(engine, kv_blocks=memory.blocks), environment)
    for line in bucket_lines(work):
        workers.say(line, "common.py")
    begin, total = time.monotonic(), len(work.prompt) + len(work.decode)
    pause = faults.get("slow_warmup", quick / max(total, 100))
    workers.say("Starting sampler warmup...")
    workers.say("Sampler warmup completed successfully")
    workers.phase("Prompt", work.prompt, memory, pause)
    workers.phase("Decode", work.decode, memory, pause)
    took = time.monotonic() - begin
    workers.say(f"Warmup finished in {took:.0f} secs, allocated {sized(memory.graphs)} of device memory")
