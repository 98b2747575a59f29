"""The file of VLLM_BUCKETING_FROM_FILE: one shape, or a family of shapes, on each line.

A line is a tuple of batch size, query length and blocks; each is a number, a list of numbers or range(a, b[, step]).
Query length 1 makes it a decode shape. The plugin means to leave out lines that are not so, but dies at the sentence
about them: it calls a logger as a module where it is a function. So such a file is refused here.
"""

from __future__ import annotations

import itertools
import re
from ast import literal_eval
from io import StringIO
from typing import Any

from ..base.refusal import Refusal
from .server import MOST_GRAPHS, check_count

# Of numbers as long as any shape's: ten thousand of thousands of digits each would take the planner's time and memory.
_RANGE = re.compile(r"range\(\s*(-?\d{1,18})\s*,\s*(-?\d{1,18})\s*(?:,\s*(-?\d{1,18})\s*)?\)")
# The longest range that the plugin takes.
_LONGEST_RANGE = 10_000
# Numbers that all ranges of a file may stand for. Only ranges of one number have more of them than shapes.
_MOST_WRITTEN_OUT = 3 * MOST_GRAPHS
# No shape needs more; a deeper or longer literal could cost the reader its stack.
_LONGEST_LINE = 100_000
_DEEPEST = 20

Shape = tuple[int, int, int]


def shapes(text: str) -> tuple[list[Shape], list[Shape]]:
    """The prompt and the decode shapes of a file, each sorted, none left out yet.

    Raises Refusal at the first line that the plugin would die at, with its number.
    """
    found: list[Shape] = []
    written = 0
    for number, line in enumerate(StringIO(text, newline=None), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            # Beside an empty list a range gives no shape, and in a list of lists nothing that is read.
            written += sum(len(_numbers(match) or ()) for match in _RANGE.finditer(stripped))
            if written > _MOST_WRITTEN_OUT:
                raise Refusal(
                    "bucket_file_line",
                    f"Up to line {number}, the ranges of the bucket file stand for more than {_MOST_WRITTEN_OUT} "
                    "numbers. No warm-up takes so many. Write shorter ranges, or fewer of them.",
                )
            found += _of_line(stripped, number)
            check_count(len(found), "The bucket file")
    prompt = sorted(shape for shape in found if shape[1] != 1)
    decode = sorted(shape for shape in found if shape[1] == 1)
    for phase, of_phase in (("prompt", prompt), ("decode", decode)):
        if not of_phase:
            raise Refusal(
                "bucket_file_without_phase",
                f"The bucket file has no {phase} shape: the server would stop. Add a line such as "
                f"{'(1, 128, 0)' if phase == 'prompt' else '(1, 1, 128)'}.",
            )
    return prompt, decode


def _of_line(line: str, number: int) -> list[Shape]:
    try:
        sides = [side if isinstance(side, list) else [side] for side in _tuple(line)]
        check_count(len(sides[0]) * len(sides[1]) * len(sides[2]), f"Line {number} of the bucket file")
        # Shape by shape, as the plugin does: beside an empty list nothing is read as a number.
        return [(int(batch), int(query), int(blocks)) for batch, query, blocks in itertools.product(*sides)]
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, Refusal):
            raise
        raise Refusal(
            "bucket_file_line",
            f"Line {number} of the bucket file is {line[:60]!r}, and the server would stop at it. Write (batch size, "
            f"query length, blocks), each a whole number, a list of them or range(first, end, step) of at most "
            f"{_LONGEST_RANGE}.",
        ) from None


def _tuple(line: str) -> tuple[Any, ...]:
    """The three parts of a line; ValueError for anything else."""
    depth = deepest = 0
    for letter in line:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    # Signs nest as brackets do.
    if len(line) > _LONGEST_LINE or deepest > _DEEPEST or re.search(r"([-+~]\s*){5}", line):
        raise ValueError(line)
    try:
        said = literal_eval(_RANGE.sub(_written_out, line))
    except (SyntaxError, MemoryError, RecursionError):
        raise ValueError(line) from None
    if not isinstance(said, tuple) or len(said) != 3:
        raise ValueError(line)
    return said


def _written_out(match: re.Match[str]) -> str:
    """A range as the list of its numbers. One that the plugin does not take stays as it is, which is no literal."""
    numbers = _numbers(match)
    return repr(list(numbers)) if numbers is not None else match[0]


def _numbers(match: re.Match[str]) -> range | None:
    """The numbers of a range; None for one with step 0, or too long."""
    first, end, step = int(match[1]), int(match[2]), int(match[3] or 1)
    numbers = range(first, end, step) if step else None
    return numbers if numbers is not None and len(numbers) <= _LONGEST_RANGE else None
