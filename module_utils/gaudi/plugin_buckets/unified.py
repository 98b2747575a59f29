"""Shapes of unified attention, which 0.17.1 has: prompts and decodes of one batch computed together."""

from __future__ import annotations

import itertools
import math

from ..base.refusal import Refusal
from .server import ServerSettings

UnifiedShape = tuple[int, int, int, int]

# Values of each dimension, before those that fall together.
_COUNT = 10


def unified_shapes(server: ServerSettings) -> list[UnifiedShape]:
    """Every (query, shared blocks, unique blocks, causal), sorted: tokens, KV blocks, KV blocks, 0 or 1."""
    seqs, pool = server.max_num_seqs, server.kv_blocks
    queries = _values(server.max_num_batched_tokens, seqs)
    shared = _values(min(server.max_model_len // server.block_size, pool), seqs, zero=True)
    unique = _values(pool, seqs, zero=True)
    if 1 in queries and shared[-1]:
        raise Refusal(
            "unified_one_sequence",
            "Unified attention divides by half of a batch of one sequence, which is 0: the server would stop. Set "
            "max_num_seqs to 2 at least, or leave out VLLM_UNIFIED_ATTN.",
        )
    return sorted(
        {(*sizes, 1) for sizes in itertools.product(queries, shared, unique) if _causal(server, *sizes)}
        | {(*sizes, 0) for sizes in itertools.product(queries, shared, unique) if _decoding(server, *sizes)}
    )


def _values(maximum: int, step: int, *, zero: bool = False) -> list[int]:
    """Ten values at growing distances up to the maximum, all but it on the grid of the step."""
    found = {0} if zero else set()
    for number in range(_COUNT - 1):
        found.add(math.ceil(float(maximum) ** ((1.0 / (_COUNT - 1)) * number) / step) * step)
    return sorted(found | {maximum})


def _fits(server: ServerSettings, shared: int, sequences: int) -> bool:
    """Whether so many sequences can share so many blocks and stay within max_model_len."""
    return shared * server.block_size // sequences <= server.max_model_len


def _causal(server: ServerSettings, query: int, shared: int, unique: int) -> bool:
    return _fits(server, shared, min(server.max_num_seqs, query))


def _decoding(server: ServerSettings, query: int, shared: int, unique: int) -> bool:
    """Without causality each token of the query is a sequence of its own."""
    if query > server.max_num_seqs or not (shared or unique):
        return False
    return _fits(server, shared, query // 2) if shared else query <= unique
