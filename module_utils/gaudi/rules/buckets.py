"""Buckets: the shapes a release compiles, as its own bucketing generates them from minimum, step, maximum and limit.

Units: batch sizes count sequences, sequence lengths count tokens, decode blocks count KV cache blocks.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.refusal import Refusal

# One dimension of a phase; VLLM_<PHASE>_<DIM>_BUCKET_<PARAM> are its variables.
DIMENSIONS = (("PROMPT", "BS"), ("PROMPT", "SEQ"), ("DECODE", "BS"), ("DECODE", "BLOCK"))


def ceil_to(value: int, base: int) -> int:
    """``value`` rounded up to a multiple of ``base``."""
    return -(-value // base) * base


def ceil_div(value: int, divisor: int) -> int:
    """Division rounded up."""
    return -(-value // divisor)


@dataclass(frozen=True)
class BucketRange:
    """Minimum, step and maximum of one dimension, and the padding limit of releases that know one (0.0 to 0.5)."""

    minimum: int
    step: int
    maximum: int
    limit: float | None = None

    def check(self, name: str) -> None:
        """Refuse what the release's bucketing asserts on only after the weights are loaded; ``name`` is PROMPT_SEQ."""
        if self.minimum > self.maximum:
            raise Refusal(
                "range_backwards",
                f"VLLM_{name}_BUCKET_MIN is {self.minimum}, above VLLM_{name}_BUCKET_MAX {self.maximum}: the bucket "
                f"code would stop the server after loading. Lower the minimum or raise the maximum.",
            )

    def values(self, *, honour_limit: bool = True) -> list[int]:
        """The buckets of this dimension, ascending.

        Without a limit: powers of two from the minimum while below the step, then every multiple of the step up to the
        maximum (vllm-hpu-extension, ``warmup_range``). With one: see ``limited``.
        """
        if self.limit is None or not honour_limit:
            return linear(self.minimum, self.step, self.maximum)
        return limited(self.minimum, self.step, self.maximum, self.limit)


def linear(minimum: int, step: int, maximum: int) -> list[int]:
    """Ramp up by doubling to the step, then walk by the step.

    >>> linear(2, 32, 64)
    [2, 4, 8, 16, 32, 64]
    """
    ramp = []
    value = minimum
    while value < step and value <= maximum:
        ramp.append(value)
        value *= 2
    first = max(step, ceil_to(minimum, step))
    return ramp + list(range(first, maximum + 1, step))


def limited(minimum: int, step: int, maximum: int, limit: float) -> list[int]:
    """Ramp up by doubling beyond the step, then keep a value only where leaving it out would pad more than ``limit``.

    The worst case of leaving a value out is a request one below the value after it: all of it above the last kept
    value is padding. The maximum is always kept, on the grid or not. 0.0 gives the linear list, 0.5 nearly doubles.

    >>> limited(896, 128, 4096, 0.25)
    [896, 1152, 1536, 2048, 2688, 3584, 4096]
    """
    kept = [minimum]
    value = minimum
    while value <= maximum:
        last = kept[-1]
        if value <= step:
            following = last * 2
            if following <= maximum:
                kept.append(following)
        else:
            # The next value to keep is about so far away: a walk of a quarter of a million steps is short then. What is
            # kept is decided by the same comparison as in the source, a few steps earlier to be safe from rounding.
            ahead = int((last / (1 - limit) - value) / step) - 3
            value += max(ahead, 0) * step
            following = value + step
            if value != last and value <= maximum and 1 - last / (following - 1) > limit:
                kept.append(value)
        value = following
    if kept[-1] != maximum:
        kept.append(maximum)
    return kept


def exponential(
    minimum: int, step: int, maximum: int, count: int, *, contiguous: bool = True, long_context: bool = False
) -> list[int]:
    """``count`` buckets (fewer where there is no room) whose distances grow, each on the grid of ``step``.

    A bucket that falls on one that is there already becomes the nearest free one. ``contiguous`` (VLLM_CONTIGUOUS_PA)
    makes the last bucket the maximum, on the grid or not. ``long_context`` is how 1.22 spaces lengths from 8192: half
    of the buckets up to one share of the maximum, the rest evenly above.

    Source: vllm-hpu-extension 8afd25348 and 83df42692 bucketing/exponential.py (warmup_range_with_limit).

    >>> exponential(128, 128, 2048, 10)
    [128, 256, 384, 512, 640, 768, 896, 1152, 1536, 2048]
    """
    if count == 1:
        return [maximum]
    growing = count // 2 if long_context else count
    end = maximum / count if long_context else float(maximum)
    kept: set[int] = set()
    for number in range(growing):
        wanted = minimum * (end / minimum) ** (1.0 / (growing - 1) * number)
        bucket = maximum if number == count - 1 and contiguous else ceil_to_grid(wanted, step)
        if bucket in kept:
            # The nearest one that is free is the lowest: distances grow, so that all below are taken where two meet.
            free = next((value for value in range(minimum, maximum + 1, step) if value not in kept), None)
            if free is None:
                break
            bucket = free
        kept.add(bucket)
    if long_context:
        even = count - growing
        distance = (maximum - end) / even
        for number in range(1, even + 1):
            kept.add(ceil_to_grid(end + number * distance, step))
    return sorted(kept)


def ceil_to_grid(value: float, step: int) -> int:
    """``value`` rounded up to a multiple of ``step``."""
    return math.ceil(value / step) * step


def doublings(value: int) -> int:
    """How many buckets the exponential strategy gives a dimension of this size: one each time it doubles, and one."""
    return math.ceil(math.log2(value)) + 1


def prompt_graphs(sizes: Sequence[int], lengths: Sequence[int], max_num_batched_tokens: int | None) -> int:
    """How many prompt shapes are warmed up: those within the token budget, or all when not even the smallest is."""
    if max_num_batched_tokens is None:
        return len(sizes) * len(lengths)
    within = sum(bisect_right(lengths, max_num_batched_tokens // size) for size in sizes)
    return within or len(sizes) * len(lengths)


def decode_graphs(sizes: Sequence[int], blocks: Sequence[int]) -> int:
    """How many decode shapes are warmed up: a batch needs at least one block a sequence, so bs > blocks is left out."""
    return sum(len(blocks) - bisect_left(blocks, size) for size in sizes)


def captured(
    batches: Sequence[int], lengths: Sequence[int], max_num_seqs: int, longest: int, block_size: int
) -> tuple[list[int], list[int]]:
    """The decode shapes that a server without buckets captures: batches, and lengths in blocks of ``block_size``.

    ``longest`` is in tokens: max_seq_len_to_capture, or max_model_len where that is less. Lengths of equally many
    blocks are captured once.

    Source: vllm-fork 14f489ea6 vllm/worker/habana_model_runner.py (capture_model).

    >>> captured([1, 2, 4], [1, 64, 128, 256], max_num_seqs=3, longest=300, block_size=128)
    ([1, 2], [1, 2])
    """
    blocks = {ceil_div(length, block_size) for length in lengths if length <= longest}
    return [batch for batch in batches if batch <= max_num_seqs], sorted(blocks)


def bucket_for(value: int, buckets: Sequence[int]) -> int | None:
    """The smallest bucket that holds ``value``; None when it is larger than the last and compiles at run time."""
    place = bisect_left(buckets, value)
    return buckets[place] if place < len(buckets) else None


def shape_for(batch: int, length: int, sizes: Sequence[int], lengths: Sequence[int]) -> tuple[int | None, int | None]:
    """The shape a batch runs in.

    >>> shape_for(3, 412, [1, 2, 4], [128, 256, 384, 512])
    (4, 512)
    """
    return bucket_for(batch, sizes), bucket_for(length, lengths)


def from_environment(environment: Mapping[str, str], *, limits: bool) -> dict[str, BucketRange]:
    """The four ranges out of the variables; ``limits`` says whether the release reads the LIMIT variables.

    Raises Refusal for a value the release's bucketing would stop at.
    """
    ranges = {}
    for phase, dimension in DIMENSIONS:
        name = f"{phase}_{dimension}"
        found = {}
        for key in ("MIN", "STEP", "MAX"):
            variable = f"VLLM_{name}_BUCKET_{key}"
            text = environment.get(variable, "")
            if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= 1 << 31:
                raise Refusal("not_a_whole_number", f"{variable} must be a whole number from 1, not {text[:40]!r}.")
            found[key] = int(text)
        limit = environment.get(f"VLLM_{name}_BUCKET_LIMIT") if limits else None
        ranges[name] = BucketRange(found["MIN"], found["STEP"], found["MAX"], _limit(name, limit))
        ranges[name].check(name)
    return ranges


def _limit(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 0.5:
        raise Refusal("out_of_range", f"VLLM_{name}_BUCKET_LIMIT must be a number from 0.0 to 0.5, not {text[:40]!r}.")
    return value


def document(
    strategy: str, lists: Mapping[str, Sequence[int]], max_num_batched_tokens: int | None, without: str | None = None
) -> dict[str, object]:
    """The ``buckets`` part of a plan: the four lists and how many graphs a warm-up takes.

    ``without`` says what keeps the server from capturing any; the lists are what requests are padded to all the same.
    """
    prompt = prompt_graphs(lists["PROMPT_BS"], lists["PROMPT_SEQ"], max_num_batched_tokens)
    decode = decode_graphs(lists["DECODE_BS"], lists["DECODE_BLOCK"])
    if strategy == "exponential":
        # This strategy leaves out no batch that is larger than its blocks.
        decode = len(lists["DECODE_BS"]) * len(lists["DECODE_BLOCK"])
    if without is not None:
        prompt = decode = 0
    named = {name.lower(): values for name, values in lists.items()}
    return {
        "warmup": "all graphs" if without is None else f"skipped, no graphs ({without})",
        "strategy": strategy,
        **named,
        "prompt_graphs": prompt,
        "decode_graphs": decode,
        "graphs": prompt + decode,
    }


def defaults(commit: str, max_num_seqs: int, block_size: int) -> dict[str, str]:
    """The bucket variables that a server takes where nobody sets them. They end at prompts of 1024 tokens and answers
    of 2048, whatever max_model_len is.

    commit: whose code it is: 84922944d of vllm-fork (vllm/worker/habana_model_runner.py, _setup_buckets), or 25f560a62
    of vllm (vllm/worker/hpu_model_runner.py). The documentation of 1.18 says otherwise (max_model_len).
    """
    step = min(max_num_seqs, 32)
    later = commit == "25f560a62"
    blocks = block_size if later else 128
    numbers = {
        "PROMPT_BS": (1, step, 64 if later else min(max_num_seqs, 64)),
        "PROMPT_SEQ": (block_size, block_size, 1024),
        "DECODE_BS": (1 if later else step, step, max_num_seqs),
        "DECODE_BLOCK": (blocks, blocks, max(blocks, max_num_seqs * 2048 // block_size)),
    }
    return {
        f"VLLM_{name}_BUCKET_{key}": str(value)
        for name, values in numbers.items()
        for key, value in zip(("MIN", "STEP", "MAX"), values)
    }
