"""How a server with the plugin divides the memory of its cards, and holds the KV cache against what is asked.

After hpu_worker.determine_available_memory of the plugin and vllm/v1/core/kv_cache_utils.py, of the versions in the
surface files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import surface
from .plugin_buckets import Engine
from .processes import EngineError, WorkerError

OUT_OF_MEMORY = "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::939524096 (896)MB"
_ADVICE = (
    "when initializing the engine. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ "
    "for more details."
)


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
    # Whether the number of blocks was asked for.
    overridden: bool
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
    override = "--num-gpu-blocks-override"
    blocks, asked = command.number(override, max(0, int(cache // dummy))), override in command.values
    return Memory(weights, free, usable, usable * reserved, dummy, cache, blocks, asked, utilization, reserved)


def hold(engine: Engine, memory: Memory) -> None:
    """Hold the KV cache against one request of full length; EngineError, in vLLM's words, where it is too small.

    0.17.1 looks at the memory, whatever the number of blocks is set to. 0.22.0 and 0.26.0 look at that number; 0.21.0
    is taken for one of these.
    """
    there = memory.cache if engine.old else memory.blocks * memory.dummy
    if there <= 0:
        raise EngineError(
            f"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` {_ADVICE}"
        )
    if memory.blocks < 1:
        raise EngineError("ZeroDivisionError: integer modulo by zero")
    needed = engine.of_a_sequence * memory.dummy
    if needed > there:
        fits = int(there // memory.dummy) * engine.block
        length = f"Based on the available memory, the estimated maximum model length is {fits}. " if fits else ""
        raise EngineError(
            f"ValueError: To serve at least one request with the {'models' if engine.old else 'model'}'s max seq len "
            f"({engine.length}), ({_gib(needed)} GiB KV cache is needed, which is larger than the available KV cache "
            f"memory ({_gib(there)} GiB). {length}Try increasing `gpu_memory_utilization` or decreasing "
            f"`max_model_len` {_ADVICE}"
        )


def _gib(size: float) -> float:
    return round(size / 1024**3, 2)


def config_of(model: Path) -> dict[str, Any]:
    """The model's config.json; empty without one."""
    file = model / "config.json"
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return config


def _block_bytes(model: Path, cards: int, block: int) -> int:
    """Bytes of a block of keys and values in bfloat16; of a model without a configuration, a mebibyte."""
    config = config_of(model)
    heads, layers = config.get("num_attention_heads"), config.get("num_hidden_layers")
    if not heads or not layers:
        return 1 << 20
    head = config.get("head_dim") or config["hidden_size"] // heads
    shared = max(1, config.get("num_key_value_heads", heads) // cards)
    return int(layers * 2 * shared * head * 2 * block)


def memory_lines(memory: Memory) -> Iterator[tuple[str, str]]:
    """What a worker says about its card's memory, each line with the file that says it."""
    yield f"Loading model weights took {memory.weights / 1024**3:.4f} GB", "hpu_model_runner.py"
    kept = f"{sized(memory.dummy)} reserved for KV cache dummy block {sized(memory.cache)} reserved for usable KV cache"
    yield (
        f"Free device memory: {sized(memory.free)}, {sized(memory.usable)} usable "
        f"(gpu_memory_utilization={memory.utilization:g}), {sized(memory.graphs)} reserved for HPUGraphs "
        f"(VLLM_GRAPH_RESERVED_MEM={memory.reserved:g}), {kept}",
        "hpu_worker.py",
    )


def cache_lines(engine: Engine, memory: Memory) -> Iterator[str]:
    """What the engine says about the KV cache, once for all its workers."""
    own = max(0, int(memory.cache // memory.dummy))
    if memory.overridden:
        yield f"Overriding num_gpu_blocks={own} with num_gpu_blocks_override={memory.blocks}"
    tokens = memory.blocks * engine.block
    yield f"GPU KV cache size: {tokens:,} tokens"
    at_once = memory.blocks / engine.of_a_sequence
    yield f"Maximum concurrency for {engine.length:,} tokens per request: {at_once:.2f}x"


def blocks_line(engine: Engine, memory: Memory) -> str:
    """What a worker says of the blocks that it has made; WorkerError where the card has no room for them."""
    if (memory.blocks + 1) * memory.dummy > memory.free:
        raise WorkerError(OUT_OF_MEMORY)
    across = "" if engine.old else " (max across layers)"
    return (
        f"Usable num_blocks: {memory.blocks}, actual allocated num_blocks{across}: {memory.blocks + 1} "
        f"(_PAD_BLOCK_ID={memory.blocks}, _PAD_SLOT_ID={memory.blocks * engine.block})"
    )
