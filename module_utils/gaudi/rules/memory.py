"""Device memory: what weights, graphs and KV cache take of each card, and whether they fit."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30

# What of a card's memory the PyTorch bridge never sees, beside what an idle card already uses: Gaudi2 has 98304 MiB,
# 768 of them used when idle, and vLLM sees 94.62 GiB (the manual's memory log, "14.97 GiB/94.62 GiB used").
BRIDGE_MIB = 645

# What the profiling run took in the same log, for an 8B model.
PROFILE_RUN_MIB = 504


@dataclass(frozen=True)
class MemorySplit:
    """How the memory that is free after loading and profiling is divided, in GiB."""

    usable: float
    graphs: float
    kv_cache: float


def split(free_gib: float, gpu_memory_utilization: float, graph_reserved_mem: float) -> MemorySplit:
    """Divide free device memory as hpu_worker does and logs it.

    The utilisation is a share of what is free *after* the weights are loaded; graphs take their share of that, the KV
    cache takes the rest.
    """
    usable = free_gib * gpu_memory_utilization
    graphs = usable * graph_reserved_mem
    return MemorySplit(usable, graphs, usable - graphs)


def split_of_card(whole_gib: float, taken_gib: float, gpu_memory_utilization: float) -> MemorySplit:
    """Divide a card as release 1.16 does: the utilisation is a share of the whole card, weights and profiling included.

    ``whole_gib`` is what PyTorch sees of an idle card, ``taken_gib`` what loading and profiling take of it.
    """
    usable = whole_gib * gpu_memory_utilization - taken_gib
    return MemorySplit(usable, 0.0, usable)


def blocks(kv_cache_gib: float, bytes_per_token: int, block_size: int) -> int:
    """How many KV cache blocks of ``block_size`` tokens fit; bytes per token and card."""
    return int(kv_cache_gib * GIB / (bytes_per_token * block_size))


def kv_bytes_per_token(
    *,
    layers: int,
    key_value_heads: int,
    head_dim: int,
    element_bytes: int,
    tensor_parallel_size: int,
    kv_lora_rank: int | None = None,
    rope_head_dim: int | None = None,
) -> int:
    """Bytes of KV cache for one token on one card.

    Keys and values of the heads a card holds (at least one), in every layer. With multi-head latent attention one
    compressed vector and one rotary part are kept instead, whole on every card.
    """
    if kv_lora_rank is not None:
        return layers * (kv_lora_rank + (rope_head_dim or 0)) * element_bytes
    heads = -(-key_value_heads // tensor_parallel_size)
    return 2 * layers * heads * head_dim * element_bytes


@dataclass(frozen=True)
class PluginCache:
    """The KV cache of the plugin, and what it leaves room for, in GiB of one card.

    dummy_block: one block, which is kept empty. states: those of layers that have no KV cache.
    """

    kv_cache: float
    dummy_block: float
    states: float


def plugin_cache(
    split: MemorySplit,
    *,
    block_bytes: int,
    sequences: int,
    attention_layers: int,
    state_layers: int = 0,
    state_bytes: int = 0,
    counted: bool = False,
) -> PluginCache:
    """Divide the KV cache of ``split`` as determine_available_memory of vllm_gaudi/v1/worker/hpu_worker.py (0.26.0).

    block_bytes: a block of all attention layers, on one card. state_bytes: the state of one sequence in one of the
    state_layers, on one card.
    counted: Mamba keeps a state beside each block, and the server takes the states off the KV cache. Gated delta nets
    keep a state for each sequence and layer, and two more for each attention layer; the server takes them off nothing,
    so that they come out of what is kept for graphs.
    """
    dummy = block_bytes / GIB
    left = split.kv_cache - dummy
    if not state_layers:
        return PluginCache(left, dummy, 0.0)
    if counted:
        page = block_bytes / attention_layers
        kept = left * page / (page + state_bytes)
        return PluginCache(kept, dummy, left - kept)
    return PluginCache(left, dummy, (sequences * state_layers + 2 * attention_layers) * state_bytes / GIB)
