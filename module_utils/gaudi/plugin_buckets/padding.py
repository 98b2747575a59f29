"""How much of what a server computes is padding, estimated for its buckets.

The measure is ours: batches spread evenly over everything the server can be asked, each put into the shape that the
plugin would take for it. Real requests are not spread evenly, so it compares lists and forecasts nothing.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .from_file import Shape
from .made import WarmupBuckets
from .server import ServerSettings

# Points looked at along each dimension of a phase.
_POINTS = 24


@dataclass(frozen=True)
class Padding:
    """Shares from 0 to 1. prompt: of the positions of a prompt batch, in its query and its context. decode: of the KV
    blocks of a decode batch. unprepared: of the batches looked at, those that no shape holds and that compile later.
    """

    prompt: float
    decode: float
    unprepared: float

    @property
    def mean(self) -> float:
        """Both phases alike, as which of them dominates depends on the requests."""
        return (self.prompt + self.decode) / 2


class PhaseShapes:
    """The shapes of one phase, ready to be looked up as the plugin does: the first in order that is large enough."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._blocks = {
            pair: [blocks for _, _, blocks in group]
            for pair, group in itertools.groupby(sorted(shapes), key=lambda shape: shape[:2])
        }

    def shape_for(self, batch: int, query: int, blocks: int) -> Shape | None:
        """The shape such a batch runs in; None where none is large enough.

        >>> PhaseShapes([(1, 1, 8), (4, 1, 8), (4, 1, 64)]).shape_for(1, 1, 9)
        (4, 1, 64)
        """
        for (prepared, length), found in self._blocks.items():
            if prepared >= batch and length >= query and found[-1] >= blocks:
                return prepared, length, found[bisect_left(found, blocks)]
        return None


def padding_of(server: ServerSettings, buckets: WarmupBuckets) -> Padding:
    """The estimate for prompt and decode buckets; a server with unified attention has none of either."""
    block = server.block_size
    prompt = [(taken, taken[1] + taken[2] * block) for taken in _prompts(server)]
    decode = [(taken, taken[2]) for taken in _decodes(server)]
    prompts = _wasted(prompt, PhaseShapes(buckets.prompt), block)
    decodes = _wasted(decode, PhaseShapes(buckets.decode), 0)
    missing = prompts[1] + decodes[1]
    return Padding(prompts[0], decodes[0], missing / (len(prompt) + len(decode)))


def _wasted(taken: Sequence[tuple[Shape, int]], prepared: PhaseShapes, block: int) -> tuple[float, int]:
    """The share of padding, and how many find no shape. Without a block size, only blocks count."""
    used = paid = missing = 0
    for shape, size in taken:
        found = prepared.shape_for(*shape)
        if found is None:
            missing += 1
            continue
        used += size
        paid += found[0] * (found[1] + found[2] * block) if block else found[2]
    return (1 - used / paid if paid else 0.0), missing


def _points(first: int, last: int) -> list[int]:
    """Whole numbers spread evenly from first to last, both included."""
    steps = max(1, min(_POINTS, last - first))
    return sorted({first + (last - first) * number // steps for number in range(steps + 1)})


def _prompts(server: ServerSettings) -> Iterator[Shape]:
    """Single prompts: a query within the budget, behind a context within what is left of max_model_len."""
    for query in _points(1, min(server.max_num_batched_tokens, server.max_model_len)):
        for blocks in _points(0, (server.max_model_len - query) // server.block_size):
            yield 1, query, blocks


def _decodes(server: ServerSettings) -> Iterator[Shape]:
    """Batches of every size, with the blocks that their sequences can have and the device holds."""
    for batch in _points(1, min(server.max_num_seqs, server.kv_blocks)):
        for blocks in _points(batch, max(batch, min(server.kv_blocks, batch * server.blocks_per_sequence))):
            yield batch, 1, blocks
