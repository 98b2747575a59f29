"""The buckets a release warms up, and the lines it prints while it does.

Bucket rules follow vllm-hpu-extension: its linear rule (aice/v1.21.0, aice/v1.22.0 at f5f9ecb) and the padding
limit of its pull request 371. Lines follow the model runner of the fork commit in the surface file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Bucket = tuple[int, int]
BLOCK = 128


class BucketError(Exception):
    """The server ends with status 1: the bucket configuration contradicts itself."""


@dataclass(frozen=True)
class Range:
    """One dimension of the buckets: from ``low`` by ``step`` to ``high``; ``limit`` is the padding allowed."""

    low: int
    step: int
    high: int
    limit: float | None = None

    def values(self) -> list[int]:
        """Return the sizes that are warmed up, ascending; BucketError when low is above high."""
        if self.low > self.high:
            raise BucketError(
                "AssertionError: Min. batch size cannot be greater than max. batch size. "
                "If you want to skip warmup, set VLLM_SKIP_WARMUP=true"
            )
        return self._linear() if self.limit is None else self._limited(self.limit)

    def _linear(self) -> list[int]:
        ramp, size = [], self.low
        while size < self.step and size <= self.high:
            ramp.append(size)
            size *= 2
        return [*ramp, *(size for size in range(self.step, self.high + 1, self.step) if size >= self.low)]

    def _limited(self, limit: float) -> list[int]:
        sizes, size = [self.low], self.low
        while size <= self.high:
            if size <= self.step:
                size *= 2
                sizes.append(size)
            else:
                larger = size + self.step
                # Skipping this size would pad a request one short of the next by this share.
                if 1 - sizes[-1] / (larger - 1) > limit and size != sizes[-1]:
                    sizes.append(size)
                size = larger
        sizes = [size for size in sizes if size <= self.high]
        return sizes if sizes[-1] == self.high else [*sizes, self.high]

    def __str__(self) -> str:
        """Return the form of the release's log lines."""
        shown = [self.low, self.step, self.high] if self.limit is None else [self.low, self.step, self.high, self.limit]
        return str(shown)


@dataclass(frozen=True)
class Limits:
    """The server's own limits, in tokens, sequences and blocks."""

    model_length: int
    batched_tokens: int
    sequences: int
    prefill_sequences: int

    @property
    def blocks(self) -> int:
        """Blocks that all sequences fill at full length: taken for the size of the KV cache."""
        return max(BLOCK, self.sequences * math.ceil(self.model_length / BLOCK))


@dataclass(frozen=True)
class Buckets:
    """All buckets of a start: (batch size, query length) and (batch size, blocks)."""

    configuration: list[str]
    prompt: list[Bucket]
    decode: list[Bucket]


def read(
    environment: Mapping[str, str], dimension: str, low: int, step: int, high: int, limits: bool
) -> tuple[Range, list[str]]:
    """Read one dimension from the environment, with the line the server prints for each value.

    BucketError when a value is no number.
    """
    parts: dict[str, float] = {"MIN": low, "STEP": step, "MAX": high}
    lines, given = [], {}
    for part, default in parts.items():
        name = f"VLLM_{dimension}_BUCKET_{part}"
        try:
            given[part] = int(environment.get(name, default))
        except ValueError:
            raise BucketError(f"ValueError: invalid literal for int() with base 10: {environment[name]!r}") from None
        lines.append(f"{name}={given[part]} (default:{default})")
    name = f"VLLM_{dimension}_BUCKET_LIMIT"
    limit = None
    if limits and name in environment:
        try:
            limit = float(environment[name])
        except ValueError:
            raise BucketError(f"ValueError: could not convert string to float: {environment[name]!r}") from None
        lines.append(f"{name}={limit} (default:None)")
    return Range(given["MIN"], given["STEP"], given["MAX"], limit), lines


def buckets(environment: Mapping[str, str], limits: Limits, padding_limits: bool) -> Buckets:
    """Return what a start with these limits and variables warms up; BucketError when it cannot."""
    prompt_bs, lines_a = read(environment, "PROMPT_BS", 1, 32, limits.prefill_sequences, padding_limits)
    prompt_seq, lines_b = read(environment, "PROMPT_SEQ", BLOCK, BLOCK, limits.model_length, padding_limits)
    decode_bs, lines_c = read(environment, "DECODE_BS", 1, 32, limits.sequences, padding_limits)
    decode_block, lines_d = read(environment, "DECODE_BLOCK", BLOCK, BLOCK, limits.blocks, padding_limits)
    prompt = [(bs, seq) for bs in prompt_bs.values() for seq in prompt_seq.values()]
    within = [bucket for bucket in prompt if bucket[0] * bucket[1] <= limits.batched_tokens]
    decode = [(bs, blocks) for bs in decode_bs.values() for blocks in decode_block.values() if bs <= blocks]
    return Buckets(
        [
            *lines_a,
            *lines_b,
            f"Prompt bucket config (min, step, max_warmup) bs:{prompt_bs}, seq:{prompt_seq}",
            *lines_c,
            *lines_d,
            f"Decode bucket config (min, step, max_warmup) bs:{decode_bs}, blocks:{decode_block}",
        ],
        # Nothing within the budget: the server ignores the budget.
        sorted(within or prompt, key=lambda b: (b[0] * b[1], b[1], b[0])),
        sorted(decode, key=lambda b: (b[0] * b[1], b[1], b[0])),
    )


def lines(form: str, work: Buckets, free: float) -> Iterator[str]:
    """Yield the warm-up lines in a release's form; ``free`` is the device memory left, in GiB."""
    total = len(work.prompt) + len(work.decode)
    memory = [free - 8.0 * done / max(total, 1) for done in range(2 * total + 1)]
    if form == "1.22":
        done = 0
        for phase, chosen in (("Graph/prompt", work.prompt), ("Graph/decode", work.decode)):
            for number, (batch, size) in enumerate(reversed(chosen), start=1):
                query, blocks = (size, 0) if chosen is work.prompt else (1, size)
                yield (
                    f"[Warmup][{phase}][{number}/{len(chosen)}] batch_size:{batch} query_len:{query} "
                    f"num_blocks:{blocks} free_mem:{memory[done]:.4g} GiB"
                )
                done += 1
        return
    for phase, chosen in (("Prompt", work.prompt), ("Decode", work.decode)):
        for number, (batch, size) in enumerate(reversed(chosen), start=1):
            yield _old_line(phase, number, len(chosen), batch, size, free)
    done = 0
    for phase, chosen in (("Graph/Prompt", work.prompt), ("Graph/Decode", work.decode)):
        for number, (batch, size) in enumerate(chosen, start=1):
            yield _old_line(phase, number, len(chosen), batch, size, memory[done])
            done += 1


def _old_line(phase: str, number: int, total: int, batch: int, size: int, free: float) -> str:
    dimension = "seq_len" if "Prompt" in phase else "num_blocks"
    return f"[Warmup][{phase}][{number}/{total}] batch_size:{batch} {dimension}:{size} free_mem:{free:.4g} GiB"
