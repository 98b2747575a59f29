"""Shapes out of the values of each dimension: which combinations are warmed up, and which are left out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from .from_file import Shape
from .server import ServerSettings, check_count
from .strategies import Lists
from .variables import BucketSettings, Slices
from .versions import PluginVersion


def prompt_shapes(
    version: PluginVersion, server: ServerSettings, settings: BucketSettings, lists: Lists
) -> list[Shape]:
    """Prompt shapes (sequences, tokens, blocks in the KV cache) of all combinations that can occur, sorted."""
    queries = lists.queries
    chunk = server.mamba_chunk_size
    if chunk and (version.every_chunk_rounds or server.mamba_chunk_named):
        queries = [-(-query // chunk) * chunk for query in queries]
    check_count(len(lists.batches) * len(queries) * len(lists.blocks), "Prompt buckets")
    return kept_prompts(version, server, settings, _prompts(server, settings, lists, queries))


def _prompts(server: ServerSettings, settings: BucketSettings, lists: Lists, queries: Sequence[int]) -> Iterator[Shape]:
    most = settings.numbers.get("PROMPT_CTX_MAX")
    for batch, listed in itertools.product(lists.batches, lists.blocks):
        blocks = listed
        for query in queries:
            if server.is_long and listed == lists.blocks[-1]:
                # What is left of the longest prompt. Where that is not allowed, the one of the query before stays.
                left = (server.max_model_len - query) // server.block_size
                if left >= 0 and (most is None or left < most):
                    blocks = left
            yield batch, query, blocks


def kept_prompts(
    version: PluginVersion, server: ServerSettings, settings: BucketSettings, shapes: Iterable[Shape]
) -> list[Shape]:
    """The prompt shapes that this server can meet, sorted."""
    length, block, tokens = server.max_model_len, server.block_size, server.max_num_batched_tokens
    if settings.merged_prefill:
        seqs = server.max_num_seqs
        found = (shape for shape in shapes if shape[2] <= seqs * ((length - shape[1] // seqs) // block))
    elif version.prompt_fits_whole:
        found = (
            (batch, query, blocks)
            for batch, query, blocks in shapes
            if batch * query <= tokens and query + blocks * block <= length
        )
    else:
        # One token at least is no context.
        most = -(-(length - 1) // block)
        found = (
            (batch, query, blocks)
            for batch, query, blocks in shapes
            if batch * query <= tokens and blocks <= most and query <= length
        )
    return _sorted(found)


def _sorted(shapes: Iterable[Shape]) -> list[Shape]:
    """Each shape once, sorted: most come in order, which a set would lose."""
    return sorted(dict.fromkeys(shapes))


def without_part_slices(shapes: Iterable[Shape], slices: Slices) -> list[Shape]:
    """Prompts without context from the threshold on must fill whole slices."""
    return [
        (batch, query, blocks)
        for batch, query, blocks in shapes
        if blocks or query < slices.threshold or query % slices.size == 0
    ]


def decode_shapes(
    version: PluginVersion, server: ServerSettings, settings: BucketSettings, lists: Lists
) -> list[Shape]:
    """Decode shapes (sequences, 1, blocks of the batch) of all combinations that can occur, sorted."""
    check_count(len(lists.batches) * len(lists.blocks), "Decode buckets")
    pairs = itertools.product(lists.batches, lists.queries, lists.blocks)
    return kept_decodes(version, server, settings, pairs)


def kept_decodes(
    version: PluginVersion, server: ServerSettings, settings: BucketSettings, shapes: Iterable[Shape]
) -> list[Shape]:
    """The decode shapes that this server can meet, with no more blocks than their sequences can have, sorted."""
    occurring = (shape for shape in shapes if settings.contiguous_pa or shape[0] <= shape[2])
    if version.every_chunk_rounds and server.mamba_chunk_size:
        return _sorted(_limited(occurring, server.max_model_len // server.block_size))
    return _sorted(_reaching(server, settings)(occurring))


def _limited(shapes: Iterable[Shape], per_sequence: int) -> Iterator[Shape]:
    return ((batch, query, min(blocks, batch * per_sequence)) for batch, query, blocks in shapes)


def _reaching(server: ServerSettings, settings: BucketSettings) -> Callable[[Iterable[Shape]], Iterator[Shape]]:
    """Contiguous paged attention reads up to the last block in use, wherever that is; else a sequence's own count."""
    if settings.contiguous_pa:
        return iter
    return lambda shapes: _limited(shapes, server.blocks_per_sequence)


def with_speculation(server: ServerSettings, settings: BucketSettings, seeds: Sequence[Shape]) -> list[Shape]:
    """The decode shapes and those with a row for each guessed token: with the same blocks, and with as many times."""
    rows = 1 + server.num_speculative_tokens
    more = [(batch * rows, query, blocks) for batch, query, blocks in seeds if batch * rows <= blocks]
    more += [(batch * rows, query, blocks * rows) for batch, query, blocks in seeds]
    return sorted({*seeds, *_reaching(server, settings)(more)})
