"""The shapes that a server with the plugin warms up, and where its bucketing stops.

Rules of vllm_gaudi/extension/bucketing of v0.17.1, v0.21.0 and v0.26.0, in the order in which that code works. Not
there: unified attention, slices of long prompts, Mamba chunks, merged prefill, and the rows of speculative decoding.
"""

from __future__ import annotations

import itertools
import math
import re
from ast import literal_eval
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .warmup import BucketError

Shape = tuple[int, int, int]
ON = ("true", "t", "1", "yes", "y", "on")
# From this length on the largest context of a prompt follows from its query.
LONG = 8192
_STRATEGIES = {"exp": "exponential", "lin": "linear", "pad": "padding-aware"}
_RANGE = re.compile(r"range\(\s*(\d+)\s*,\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_DEAD_LOGGER = "AttributeError: 'functools._lru_cache_wrapper' object has no attribute 'warning'"
_MINIMUM = (
    "AssertionError: Min. batch size cannot be greater than max. batch size. "
    "If you want to skip warmup, set VLLM_SKIP_WARMUP=true"
)


def switch(environment: Mapping[str, str], name: str, otherwise: bool = False) -> bool:
    """A switch as the plugin reads it."""
    return environment[name].lower() in ON if name in environment else otherwise


@dataclass(frozen=True)
class Engine:
    """What bucketing is told: sequences, tokens, tokens of a block, and the blocks of the KV cache."""

    version: str
    sequences: int
    length: int
    tokens: int
    block: int
    kv_blocks: int

    @property
    def old(self) -> bool:
        """Whether it is the plugin of 1.23, which has two strategies and no names for them."""
        return self.version == "0.17.1"

    @property
    def of_a_sequence(self) -> int:
        """Blocks of a sequence of the greatest length."""
        return math.ceil(self.length / self.block)


@dataclass(frozen=True)
class Ranges:
    """One dimension after another as the strategy has them, and the values that they come to."""

    shown: list[list[int]]
    values: list[list[int]]


@dataclass(frozen=True)
class Work:
    """All shapes of a start, each list sorted, with the ranges that they come from (none for a bucket file)."""

    strategy: str
    prompt: list[Shape]
    decode: list[Shape]
    ranges: tuple[Ranges, Ranges] | None = None


def strategy_of(engine: Engine, environment: Mapping[str, str]) -> str:
    """What makes the shapes; BucketError where the plugin's configuration stops."""
    if environment.get("VLLM_BUCKETING_FROM_FILE"):
        return "file"
    named = "exp" if engine.old else environment.get("VLLM_BUCKETING_STRATEGY", "exp")
    if named not in _STRATEGIES:
        allowed = ", ".join(_STRATEGIES)
        raise BucketError(f"RuntimeError: bucketing_strategy: {named} is not in allowed options: [{allowed}]!")
    if "VLLM_EXPONENTIAL_BUCKETING" in environment:
        return "exponential" if switch(environment, "VLLM_EXPONENTIAL_BUCKETING") else "linear"
    return _STRATEGIES[named]


def shapes(engine: Engine, environment: Mapping[str, str]) -> Work:
    """All shapes of a start; BucketError, in the plugin's words, where it ends."""
    strategy = strategy_of(engine, environment)
    contiguous = switch(environment, "VLLM_CONTIGUOUS_PA", not switch(environment, "VLLM_PREFIX_CACHING", True))
    ranges = None
    if strategy == "file":
        read = _from_file(Path(environment["VLLM_BUCKETING_FROM_FILE"]))
        prompts: Iterable[Shape] = [shape for shape in read if shape[1] != 1]
        decodes: Iterable[Shape] = [shape for shape in read if shape[1] == 1]
    else:
        reader = _Reader(environment, strategy, padded=not engine.old)
        ranges = (_prompt_ranges(engine, reader), _decode_ranges(engine, reader, contiguous))
        prompts = _prompts(engine, environment, *ranges[0].values)
        batches, blocks = ranges[1].values
        if contiguous and blocks[-1] < engine.kv_blocks:
            blocks = [*blocks, engine.kv_blocks]
        decodes = ((batch, 1, count) for batch in batches for count in blocks)
    prompt = sorted({shape for shape in prompts if _occurs(engine, *shape)})
    decode = sorted(set(decodes) if contiguous else set(_met(engine, decodes)))
    for phase, found in (("prompt", prompt), ("decode", decode)):
        if not found:
            raise BucketError(f"RuntimeError: Generated 0 {phase} buckets. Please check the bucketing configuration.")
    return Work(strategy, prompt, decode, ranges)


def _from_file(path: Path) -> list[Shape]:
    """Every line of a bucket file; one that cannot be read ends the server, whose logger is not there."""

    def written_out(match: re.Match[str]) -> str:
        return str(list(range(int(match[1]), int(match[2]), int(match[3] or 1))))

    found: list[Shape] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            batch, query, blocks = literal_eval(_RANGE.sub(written_out, stripped))
            sides = [_whole(side) for side in (batch, query, blocks)]
        except (SyntaxError, TypeError, ValueError):
            raise BucketError(_DEAD_LOGGER) from None
        found += [(one, two, three) for one, two, three in itertools.product(*sides)]
    return found


def _whole(side: Any) -> list[int]:
    return [int(one) for one in (side if isinstance(side, list) else [side])]


def _occurs(engine: Engine, batch: int, query: int, blocks: int) -> bool:
    if batch * query > engine.tokens:
        return False
    if engine.old:
        return query + blocks * engine.block <= engine.length
    return blocks <= math.ceil((engine.length - 1) / engine.block) and query <= engine.length


def _met(engine: Engine, decodes: Iterable[Shape]) -> Iterable[Shape]:
    return (
        (batch, query, min(blocks, batch * engine.of_a_sequence)) for batch, query, blocks in decodes if batch <= blocks
    )


def _prompts(
    engine: Engine, environment: Mapping[str, str], batches: list[int], queries: list[int], contexts: list[int]
) -> Iterable[Shape]:
    most = environment.get("VLLM_PROMPT_CTX_BUCKET_MAX")
    for batch, context in itertools.product(batches, contexts):
        blocks = context
        for query in queries:
            if engine.length >= LONG and context == contexts[-1]:
                left = (engine.length - query) // engine.block
                if left >= 0 and (most is None or left < int(most)):
                    blocks = left
            yield batch, query, blocks


class _Reader:
    """The variables of the buckets as a strategy reads them: the exponential one takes almost none."""

    def __init__(self, environment: Mapping[str, str], strategy: str, *, padded: bool) -> None:
        self.environment, self.strategy, self.padded = environment, strategy, padded

    def number(self, name: str, default: int) -> int:
        """One number; BucketError when it is none."""
        text = self.environment.get(f"VLLM_{name}")
        if text is None and name.startswith("PROMPT_QUERY"):
            text = self.environment.get(f"VLLM_{name.replace('QUERY', 'SEQ')}")
        try:
            return default if text is None else int(text)
        except ValueError:
            raise BucketError(f"ValueError: invalid literal for int() with base 10: {text!r}") from None

    def walk(self, name: str, low: int, step: int, high: int, pad_max: int) -> list[int]:
        """What a linear or padding-aware dimension is told, in the order that the log shows."""
        named = {"MIN": low, "STEP": step, "MAX": high}
        if self.strategy == "padding-aware":
            named |= {"PAD_MAX": pad_max, "PAD_PERCENT": 25}
        return [self.number(f"{name}_BUCKET_{part}", default) for part, default in named.items()]


def _steps(value: float) -> int:
    return math.ceil(math.log2(value)) + 1


def _exponential(low: int, step: int, high: int, count: int) -> list[int]:
    if count <= 1:
        return [high]
    first = step if low in (0, 1) else low
    found = {low} if low in (0, 1) else set[int]()
    for number in range(count):
        wanted = first * (high / first) ** ((1.0 / (count - 1)) * number)
        found.add(min(math.ceil(wanted / step) * step, high))
    return sorted(found)


def _linear(low: int, step: int, high: int) -> list[int]:
    if low > high:
        raise BucketError(_MINIMUM)
    if high == 0:
        return [0]
    first = low or step
    ramp, size = ([] if low else [0]), first
    while size < step and size <= high:
        ramp.append(size)
        size *= 2
    return [*ramp, *(size for size in range(step, high + 1, step) if size >= first)]


def _padding_aware(low: int, step: int, high: int, pad_max: int, percent: int) -> list[int]:
    if low > high:
        raise BucketError(_MINIMUM)
    if step < 1 or not 0 <= percent <= 50:
        raise BucketError("AssertionError")
    most = pad_max or high
    kept, size = [low], low
    while size <= high:
        if size <= step:
            size = max(1, kept[-1] * 2)
            kept += [size] if size <= high else []
            continue
        padding = size + step - kept[-1] - 1
        if size != kept[-1] and (padding / (size + step) > percent / 100.0 or padding > most or size % most == 0):
            kept.append(size)
        size += step
    return kept if kept[-1] == high else [*kept, high]


def _all(strategy: str, shown: list[list[int]]) -> Ranges:
    if strategy == "exponential":
        return Ranges(shown, [_exponential(*one) for one in shown])
    if strategy == "linear":
        return Ranges(shown, [_linear(*one) for one in shown])
    return Ranges(shown, [_padding_aware(*one) for one in shown])


def _quarter(value: int) -> int:
    return math.ceil(value / 4)


def _prompt_ranges(engine: Engine, reader: _Reader) -> Ranges:
    """Batches, queries and contexts of prompts."""
    prefills, block, tokens = reader.number("PROMPT_BS_BUCKET_MAX", 1), engine.block, engine.tokens
    if reader.strategy == "exponential":
        shortest = 1 if reader.number("PROMPT_QUERY_BUCKET_MIN", block) == 1 else block
        context = max(1, (engine.length - (tokens if engine.length >= LONG else shortest)) // block)
        shown = [
            [1, 2, prefills, _steps(prefills)],
            [shortest, block, tokens, _steps(tokens) - 1],
            [0, 1, context, 2 if context == 1 else _steps(context)],
        ]
        return _all(reader.strategy, shown)
    linear = reader.strategy == "linear"
    queries = reader.walk("PROMPT_QUERY", block, block, tokens, _quarter(tokens))
    left = engine.length - queries[0]
    context = left // block if linear else math.ceil(left / block)
    shown = [
        reader.walk("PROMPT_BS", 1, 1, prefills, _quarter(prefills)),
        queries,
        reader.walk("PROMPT_CTX", 0, 1 if linear else 2, context, math.ceil(tokens / block)),
    ]
    return _all(reader.strategy, shown)


def _decode_ranges(engine: Engine, reader: _Reader, contiguous: bool) -> Ranges:
    """Batches and blocks of decoding."""
    seqs, pool, block = engine.sequences, engine.kv_blocks, engine.block
    if reader.strategy == "exponential":
        most = engine.of_a_sequence * seqs
        if engine.old:
            most = pool if contiguous else 3 * pool
        elif contiguous:
            most = min(pool, most)
        count = _steps(most)
        if engine.version == "0.26.0" and not contiguous and most > 3 * pool:
            count += _steps(most / (3 * pool))
        return _all(reader.strategy, [[1, 2, seqs, _steps(seqs)], [1, seqs, most, count]])
    linear = reader.strategy == "linear"
    positions = engine.length * seqs
    most = pool if contiguous else max(positions // block if linear else math.ceil(positions / block), block)
    blocks = reader.walk("DECODE_BLOCK", 1 if linear else block, block, most, _quarter(most))
    clamped = blocks[2] > pool and (contiguous or (linear and engine.old))
    if clamped:
        blocks[2] = pool
    above = blocks[2] if linear and not engine.old else pool
    if blocks[0] > above and (clamped or not (linear and engine.old)):
        blocks[0] = max(1, above - blocks[1])
    return _all(reader.strategy, [reader.walk("DECODE_BS", 1, 32 if linear else 2, seqs, _quarter(seqs)), blocks])
