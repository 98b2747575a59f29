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
class Split:
    """How the memory that is free after loading and profiling is divided, in GiB."""

    usable: float
    graphs: float
    kv_cache: float


def split(free_gib: float, gpu_memory_utilization: float, graph_reserved_mem: float) -> Split:
    """Divide free device memory as hpu_worker does and logs it.

    The utilisation is a share of what is free *after* the weights are loaded; graphs take their share of that, the KV
    cache takes the rest.
    """
    usable = free_gib * gpu_memory_utilization
    graphs = usable * graph_reserved_mem
    return Split(usable, graphs, usable - graphs)


def split_of_card(whole_gib: float, taken_gib: float, gpu_memory_utilization: float) -> Split:
    """Divide a card as release 1.16 does: the utilisation is a share of the whole card, weights and profiling included.

    ``whole_gib`` is what PyTorch sees of an idle card, ``taken_gib`` what loading and profiling take of it.
    """
    usable = whole_gib * gpu_memory_utilization - taken_gib
    return Split(usable, 0.0, usable)


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
class Shared:
    """The KV cache of the plugin: what is left of ``split`` for it, and what stands beside it. GiB of one card."""

    kv_cache: float
    # One block, which is kept empty.
    dummy_block: float
    # States of layers without a KV cache, which the server does not count: they come out of what is kept for graphs.
    states: float


def shared(
    split: Split,
    *,
    block_bytes: int,
    sequences: int,
    attention_layers: int,
    state_layers: int = 0,
    state_bytes: int = 0,
    counted: bool = False,
) -> Shared:
    """Divide a KV cache as determine_available_memory of vllm_gaudi/v1/worker/hpu_worker.py does (0.26.0).

    ``block_bytes`` is a block of all attention layers, ``state_bytes`` one sequence in one of ``state_layers``, both of
    one card. ``counted`` is for Mamba: each block there has a state beside it, so that the KV cache shrinks by their
    ratio. The states of gated delta nets are a fixed number (sequences for each layer, and two more for each group of
    layers), which is not taken off.
    """
    dummy = block_bytes / GIB
    left = split.kv_cache - dummy
    if not state_layers:
        return Shared(left, dummy, 0.0)
    if counted:
        page = block_bytes / attention_layers
        kept = left * page / (page + state_bytes)
        return Shared(kept, dummy, left - kept)
    return Shared(left, dummy, (sequences * state_layers + 2 * attention_layers) * state_bytes / GIB)
