"""One dimension of buckets: the values that each strategy walks through, ascending."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..base.refusal import Refusal
from .server import check_count


@dataclass(frozen=True)
class Spread:
    """A dimension of the exponential strategy: ``count`` values from minimum to maximum, on the grid of ``step``."""

    minimum: int
    step: int
    maximum: int
    count: int

    def values(self) -> list[int]:
        """Values at growing distances; the last is the maximum, off the grid or not.

        A minimum of 0 or 1 is a value of its own, and the others then begin at the step.

        >>> Spread(128, 128, 2048, 11).values()
        [128, 256, 384, 512, 768, 896, 1280, 1664, 2048]
        """
        if self.count <= 1:
            return [self.maximum]
        first = self.step if self.minimum in (0, 1) else self.minimum
        found = {self.minimum} if self.minimum in (0, 1) else set()
        for number in range(self.count):
            # In this order of multiplication: a rounding up follows, which an error in the last place would change.
            wanted = first * (self.maximum / first) ** ((1.0 / (self.count - 1)) * number)
            found.add(min(math.ceil(wanted / self.step) * self.step, self.maximum))
        return sorted(found)


def doublings(value: float) -> int:
    """How many values the exponential strategy gives a dimension of this size.

    >>> [doublings(size) for size in (1, 2, 5, 8)]
    [1, 2, 4, 4]
    """
    return math.ceil(math.log2(value)) + 1


@dataclass(frozen=True)
class Walk:
    """A dimension of the linear and padding-aware strategies; ``name`` is that of its variables, such as PROMPT_CTX.

    pad_max: most padding in units of the dimension, 0 for no limit; pad_percent: most padding in percent.
    """

    name: str
    minimum: int
    step: int
    maximum: int
    pad_max: int = 0
    pad_percent: int = 0

    def check(self) -> None:
        """Refuse what the plugin asserts on, ends at or never ends with, each after the weights are loaded."""
        if self.minimum < 0 or self.step < 1:
            raise Refusal(
                "out_of_range",
                f"VLLM_{self.name}_BUCKET_MIN is {self.minimum} and VLLM_{self.name}_BUCKET_STEP {self.step}; they "
                f"must be at least 0 and 1. Raise the one that is less.",
            )
        if self.minimum > self.maximum:
            raise Refusal(
                "range_backwards",
                f"VLLM_{self.name}_BUCKET_MIN is {self.minimum}, above VLLM_{self.name}_BUCKET_MAX {self.maximum}: the "
                f"server would stop after loading. Lower the minimum or raise the maximum.",
            )
        if not 0 <= self.pad_percent <= 50:
            raise Refusal(
                "out_of_range",
                f"VLLM_{self.name}_BUCKET_PAD_PERCENT is {self.pad_percent}; the plugin takes 0 to 50. Change it.",
            )
        check_count((self.maximum - self.minimum) // self.step, f"VLLM_{self.name}_BUCKET_*")

    def linear(self) -> list[int]:
        """Doubling from the minimum while below the step, then every multiple of the step.

        A maximum between two multiples is not reached. After a minimum of 0 the values begin at the step.

        >>> Walk("DECODE_BS", 2, 32, 100).linear()
        [2, 4, 8, 16, 32, 64, 96]
        """
        self.check()
        if self.maximum == 0:
            return [0]
        first = self.minimum or self.step
        found = [] if self.minimum else [0]
        value = first
        while value < self.step and value <= self.maximum:
            found.append(value)
            value *= 2
        return found + [multiple for multiple in range(self.step, self.maximum + 1, self.step) if multiple >= first]

    def padding_aware(self) -> list[int]:
        """Doubling until the step is passed, then those multiples of a step without which padding were too much.

        Too much is a larger share than pad_percent of the value after it, or more than pad_max; multiples of pad_max
        are kept always, and so is the maximum.

        >>> Walk("DECODE_BS", 1, 2, 20, 5, 25).padding_aware()
        [1, 2, 4, 5, 6, 8, 10, 13, 15, 17, 20]
        """
        self.check()
        pad_max = self.pad_max or self.maximum
        kept = [self.minimum]
        value = self.minimum
        while value <= self.maximum:
            if value <= self.step:
                following = max(1, kept[-1] * 2)
                if following <= self.maximum:
                    kept.append(following)
            else:
                following = value + self.step
                padding = following - kept[-1] - 1
                needed = padding / following > self.pad_percent / 100.0 or padding > pad_max or value % pad_max == 0
                if needed and value != kept[-1]:
                    kept.append(value)
            value = following
        return kept if kept[-1] == self.maximum else [*kept, self.maximum]
