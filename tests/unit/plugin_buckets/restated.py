"""The rules of buckets said a second time, as conditions on a value or a shape instead of ways to reach it.

Slow, and independent of the module it judges: nothing is imported from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, getcontext

getcontext().prec = 40

# Closer than this to the grid, rounding of floating point numbers decides on which side of it a value falls.
CLOSE = Decimal("1e-9")


def linear(minimum: int, step: int, maximum: int) -> list[int]:
    """Which of all numbers up to the maximum are values."""
    first = step if minimum == 0 else minimum

    def is_value(value: int) -> bool:
        if value == 0:
            return minimum == 0
        if value >= step:
            return value >= first and value % step == 0
        # A doubling of the first: what is left of the quotient is one bit.
        return value % first == 0 and (value // first).bit_count() == 1

    return [value for value in range(maximum + 1) if is_value(value)]


def padding_aware(minimum: int, step: int, maximum: int, pad_max: int, percent: int) -> list[int]:
    """Values one after another: each is what the one before it makes necessary. Whole numbers only."""
    most = pad_max or maximum
    kept = [minimum]
    grid: list[int] = []
    value = minimum
    while value <= step:
        value = value * 2 if value else 1
        grid.append(value)
    kept += [doubled for doubled in grid if doubled <= maximum]
    walked = range((grid or [minimum])[-1], maximum + 1, step)
    for value in walked:
        padding = value + step - kept[-1] - 1
        too_much = 100 * padding > percent * (value + step) or padding > most
        if value > kept[-1] and (too_much or value % most == 0):
            kept.append(value)
    return sorted({*kept, maximum})


def spread(minimum: int, step: int, maximum: int, count: int) -> list[set[int]]:
    """For each of ``count`` values the numbers that it may be: one, or two where rounding decides."""
    first = step if minimum in (0, 1) else minimum
    found: list[set[int]] = [{minimum}] if minimum in (0, 1) and count > 1 else []
    for number in range(count):
        if number == count - 1:
            found.append({maximum})
            continue
        exact = Decimal(first) * (Decimal(maximum) / Decimal(first)) ** (Decimal(number) / Decimal(count - 1))
        steps = exact / step
        nearest = int(steps.to_integral_value())
        above = {nearest, nearest + 1} if abs(steps - nearest) < CLOSE * max(steps, Decimal(1)) else {math.ceil(steps)}
        found.append({min(whole * step, maximum) for whole in above})
    return found


@dataclass(frozen=True)
class ShapeLimits:
    """What shapes are held to."""

    seqs: int
    length: int
    tokens: int
    block: int


def prompt_may_be(old: bool, limits: ShapeLimits, shape: tuple[int, int, int]) -> bool:
    """Whether a prompt shape can occur; ``old`` is 0.17.1."""
    batch, query, blocks = shape
    if batch * query > limits.tokens or query > limits.length:
        return False
    if old:
        return blocks * limits.block <= limits.length - query
    # So many full blocks, or one that is not full, can stand before the last token.
    return (blocks - 1) * limits.block < limits.length - 1 or blocks == 0


def prompts(
    old: bool, limits: ShapeLimits, batches: Iterable[int], queries: list[int], contexts: list[int], ctx_max: int | None
) -> list[list[int]]:
    """All prompt shapes of three lists of values."""
    found = set()
    for batch in batches:
        for place, query in enumerate(queries):
            for context in contexts:
                blocks = context
                if limits.length >= 8192 and context == max(contexts):
                    rests = [(limits.length - shorter) // limits.block for shorter in queries[: place + 1]]
                    allowed = [rest for rest in rests if rest >= 0 and (ctx_max is None or rest < ctx_max)]
                    blocks = allowed[-1] if allowed else context
                if prompt_may_be(old, limits, (batch, query, blocks)):
                    found.add((batch, query, blocks))
    return sorted(map(list, found))


def decodes(limits: ShapeLimits, batches: Iterable[int], pools: Iterable[int], *, contiguous: bool) -> list[list[int]]:
    """All decode shapes of two lists of values."""
    pools = list(pools)
    if contiguous:
        return sorted([batch, 1, blocks] for batch in set(batches) for blocks in set(pools))
    most = (limits.length + limits.block - 1) // limits.block
    reached = {
        (batch, 1, blocks if blocks < batch * most else batch * most)
        for batch in batches
        for blocks in pools
        if not batch > blocks
    }
    return sorted(map(list, reached))
