"""The ranges that each strategy gives batch sizes, query lengths and context blocks of both phases."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.refusal import Refusal
from .ranges import Spread, Walk, doublings
from .server import ServerSettings
from .variables import BucketSettings
from .versions import EXPONENTIAL, LINEAR, PluginVersion


@dataclass(frozen=True)
class Lists:
    """The values of the three dimensions of one phase, ascending."""

    batches: list[int]
    queries: list[int]
    blocks: list[int]


def prompt_lists(server: ServerSettings, settings: BucketSettings) -> Lists:
    """Values of prompt buckets: sequences, tokens, and blocks that are in the KV cache already."""
    if settings.strategy == EXPONENTIAL:
        return _exponential_prompt(server, settings)
    return _walked_prompt(server, settings)


def decode_lists(version: PluginVersion, server: ServerSettings, settings: BucketSettings) -> Lists:
    """Values of decode buckets: sequences, one token, and blocks of the whole batch."""
    if settings.strategy == EXPONENTIAL:
        batches, blocks = _exponential_decode(version, server, settings)
    else:
        batches, blocks = _walked_decode(version, server, settings)
    # The last block of the pool can be in use however short the sequences are.
    if settings.contiguous_pa and blocks and blocks[-1] < server.kv_blocks:
        blocks = [*blocks, server.kv_blocks]
    return Lists(batches, [1], blocks)


def _prefill_seqs(server: ServerSettings, settings: BucketSettings) -> int:
    return server.max_num_seqs if settings.prefill_seqs is None else settings.prefill_seqs


def _exponential_prompt(server: ServerSettings, settings: BucketSettings) -> Lists:
    tokens, block = server.max_num_batched_tokens, server.block_size
    if tokens < 2:
        raise Refusal(
            "out_of_range", f"max_num_batched_tokens is {tokens}; the exponential strategy needs at least 2. Raise it."
        )
    shortest = 1 if settings.numbers.get("PROMPT_QUERY_MIN") == 1 else block
    seqs = _prefill_seqs(server, settings)
    context = max(1, (server.max_model_len - (tokens if server.is_long else shortest)) // block)
    batches = Spread(1, 2, seqs, doublings(seqs))
    queries = Spread(shortest, block, tokens, doublings(tokens) - 1)
    blocks = Spread(0, 1, context, 2 if context == 1 else doublings(context))
    if settings.merged_prefill:
        batches = Spread(1, 1, 1, 1)
        queries = Spread(shortest, 4 * block, tokens, queries.count)
        blocks = Spread(0, 4, context * seqs, blocks.count)
    ranges = (batches, queries, blocks)
    return Lists(*(spread.values() for spread in ranges))


def _exponential_decode(
    version: PluginVersion, server: ServerSettings, settings: BucketSettings
) -> tuple[list[int], list[int]]:
    seqs, pool = server.max_num_seqs, server.kv_blocks
    if version.decode_blocks_from_pool:
        most = pool if settings.contiguous_pa else 3 * pool
    else:
        most = server.blocks_per_sequence * seqs
        most = min(pool, most) if settings.contiguous_pa else most
    count = doublings(most)
    if version.denser_beyond_pool and not settings.contiguous_pa and most > 3 * pool:
        count += doublings(most / (3 * pool))
    ranges = (Spread(1, 2, seqs, doublings(seqs)), Spread(1, seqs, most, count))
    batches, blocks = (spread.values() for spread in ranges)
    return batches, blocks


def _walk(settings: BucketSettings, name: str, minimum: int, step: int, maximum: int, pad_max: int = 0) -> Walk:
    """A range with the numbers that were set in place of its own; 25 percent is the default of padding."""
    own = {"MIN": minimum, "STEP": step, "MAX": maximum, "PAD_MAX": pad_max, "PAD_PERCENT": 25}
    if settings.strategy == LINEAR:
        own = {"MIN": minimum, "STEP": step, "MAX": maximum}
    said = {parameter: settings.number(name, parameter) for parameter in own}
    return Walk(name, *(own[parameter] if value is None else value for parameter, value in said.items()))


def _values(settings: BucketSettings, walk: Walk) -> list[int]:
    return walk.linear() if settings.strategy == LINEAR else walk.padding_aware()


def _walked_prompt(server: ServerSettings, settings: BucketSettings) -> Lists:
    tokens, block = server.max_num_batched_tokens, server.block_size
    seqs = _prefill_seqs(server, settings)
    linear = settings.strategy == LINEAR
    batches = _walk(settings, "PROMPT_BS", 1, 1, seqs, _quarter(seqs))
    queries = _walk(settings, "PROMPT_QUERY", block, block, tokens, _quarter(tokens))
    left = server.max_model_len - queries.minimum
    context = left // block if linear else -(-left // block)
    reach = -(-tokens // block)
    blocks = _walk(settings, "PROMPT_CTX", 0, 1 if linear else 2, context, reach)
    if settings.merged_prefill:
        batches = Walk("PROMPT_BS", 1, 1, 1, batches.pad_max, batches.pad_percent)
        queries = Walk("PROMPT_QUERY", queries.minimum, 4 * queries.step, tokens, queries.pad_max, queries.pad_percent)
        blocks = _walk(settings, "PROMPT_CTX", 0, 4, context * seqs, reach)
    return Lists(*(_values(settings, walk) for walk in (batches, queries, blocks)))


def _walked_decode(
    version: PluginVersion, server: ServerSettings, settings: BucketSettings
) -> tuple[list[int], list[int]]:
    seqs, pool, block = server.max_num_seqs, server.kv_blocks, server.block_size
    linear = settings.strategy == LINEAR
    positions = server.max_model_len * seqs
    most = max(positions // block if linear else -(-positions // block), block)
    if settings.contiguous_pa:
        most = pool
    batches = _walk(settings, "DECODE_BS", 1, 32 if linear else 2, seqs, _quarter(seqs))
    blocks = _walk(settings, "DECODE_BLOCK", 1 if linear else block, block, most, _quarter(most))
    blocks = _within_pool(version, blocks, pool, linear=linear, contiguous_pa=settings.contiguous_pa)
    return _values(settings, batches), _values(settings, blocks)


def _within_pool(version: PluginVersion, blocks: Walk, pool: int, *, linear: bool, contiguous_pa: bool) -> Walk:
    """The range of decode blocks, changed where the plugin overrules it because of the KV blocks there are."""
    minimum, maximum = blocks.minimum, blocks.maximum
    clamped = maximum > pool and (contiguous_pa or (linear and version.linear_within_pool))
    if clamped:
        maximum = pool
    if not linear:
        above = pool
    elif version.linear_within_pool:
        above = pool if clamped else minimum
    else:
        above = maximum
    if minimum > above:
        minimum = max(1, above - blocks.step)
    return Walk(blocks.name, minimum, blocks.step, maximum, blocks.pad_max, blocks.pad_percent)


def _quarter(value: int) -> int:
    """The default of the most padding: a quarter of the dimension."""
    return -(-value // 4)
