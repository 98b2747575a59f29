"""Count what goes badly while a server serves: shapes without a warm-up, waiting requests, preemptions, cut answers.

Only numbers and the names of phases are kept. Nothing that a client sends gets here: the line about a shape is the
server's own, and has to begin its message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.line_prefix import LOOKED_AT, PREFIX
from .load import Load

MOST_SHAPES = 64
"""Shapes that are kept; further ones are counted together. A plan of the catalogue has a few hundred graphs."""

PROMPT, DECODE, UNIFIED = ("prompt", "decode", "unified")
_KEY = re.compile(r"(prompt|decode|unified) ([0-9]{1,9}) ([0-9]{1,9}) ([0-9]{1,9})")

# Forms of the line, with or without quotes around the phase: (phase, batch, size) and (phase, batch, size, blocks) of
# the forks (_check_config in vllm/worker/habana_model_runner.py of 1.18, in vllm/worker/hpu_model_runner.py of 1.21,
# 1.22 and deepseek_r1), (phase, batch, query, blocks) of the plugin (vllm_gaudi/v1/worker/hpu_model_runner.py of 0.17.1
# to 0.26.0). Unified attention of 0.17.1 has two forms of its own. 1.16 prints no such line. Each worker prints it once
# for each shape.
_MESSAGE = re.compile(r"Configuration: (?P<shape>.{1,120}) was not warmed-up!")
_SHAPE = re.compile(
    r"\('?(?P<phase>prompt|prefill|prefix_prefill|decode|[c-][s-][u-])'?, (?P<numbers>\d{1,9}(?:, \d{1,9}){1,3})\)"
)
_UNIFIED = re.compile(r"\(query, shared_blocks, unique_blocks\) \((?P<numbers>\d{1,9}(?:, \d{1,9}){2})\), \(.{1,20}\)")
_NAMES = {"prompt": PROMPT, "prefill": PROMPT, "prefix_prefill": PROMPT, "decode": DECODE}

FORM = {
    "shapes": {str: int},
    "others": int,
    "checks": int,
    "waited": int,
    "most_waiting": int,
    "preemptions": int,
    "finished": int,
    "cut": int,
}
"""The form of the entry ``counts`` in state.json."""


@dataclass(frozen=True)
class ComputedShape:
    """A shape that a server computed.

    Of a prompt: sequences, tokens, blocks of context, 0 without one. Of decoding: sequences, 1, blocks of the batch. Of
    unified attention: tokens, shared blocks, own blocks.
    """

    phase: str
    batch: int
    query: int
    blocks: int

    @property
    def key(self) -> str:
        """Its name in state.json, such as "prompt 1 3200 0"."""
        return f"{self.phase} {self.batch} {self.query} {self.blocks}"

    def __str__(self) -> str:
        """Return the shape in words."""
        if self.phase == PROMPT:
            context = f" after {self.blocks} blocks of context" if self.blocks else ""
            return f"prompt: batch {self.batch}, {self.query} tokens{context}"
        if self.phase == DECODE:
            return f"decode: batch {self.batch}, {self.blocks} blocks"
        return f"unified attention: {self.batch} tokens, {self.query} shared and {self.blocks} own blocks"


def shape_of(line: str) -> ComputedShape | None:
    """Return the shape that a line of a server's log reports as not warmed up; None for any other line."""
    found = _MESSAGE.match(PREFIX.sub("", line[:LOOKED_AT]))
    if found is None:
        return None
    if unified := _UNIFIED.fullmatch(found["shape"]):
        return ComputedShape(UNIFIED, *map(int, unified["numbers"].split(", ")))
    shape = _SHAPE.fullmatch(found["shape"])
    if shape is None:
        return None
    phase, numbers = _NAMES.get(shape["phase"], UNIFIED), [int(number) for number in shape["numbers"].split(", ")]
    if phase == UNIFIED:
        return ComputedShape(phase, *numbers[:3]) if len(numbers) > 2 else None
    batch, size = numbers[:2]
    if phase == PROMPT:
        return ComputedShape(phase, batch, size, numbers[2] if len(numbers) > 2 else 0)
    # Of decoding, the last number is that of blocks, whatever stands before it.
    return ComputedShape(phase, batch, 1, numbers[-1])


def _of_key(key: str) -> ComputedShape | None:
    """Return the shape by its name in state.json; None for another text, which a damaged file may have."""
    found = _KEY.fullmatch(key)
    return None if found is None else ComputedShape(found[1], int(found[2]), int(found[3]), int(found[4]))


@dataclass
class Counts:
    """What was counted since a server started.

    shapes: lines about each shape, by its name. others: lines about shapes beyond MOST_SHAPES. checks: readings of the
    metrics at which the server had requests. waited: those at which some were waiting. most_waiting: most of them at
    once. preemptions, finished, cut: the server's own counters, see Load.
    """

    shapes: dict[str, int] = field(default_factory=dict)
    others: int = 0
    checks: int = 0
    waited: int = 0
    most_waiting: int = 0
    preemptions: int = 0
    finished: int = 0
    cut: int = 0

    def hear(self, line: str) -> None:
        """Count one line of the server's log."""
        # Nearly all lines end here.
        shape = shape_of(line) if "was not warmed-up" in line else None
        if shape is None:
            return
        if shape.key in self.shapes or len(self.shapes) < MOST_SHAPES:
            self.shapes[shape.key] = self.shapes.get(shape.key, 0) + 1
        else:
            self.others += 1

    def check(self, load: Load) -> None:
        """Count one reading of the server's metrics; an idle server changes nothing."""
        self.checks += load.requests > 0
        self.waited += load.waiting > 0
        self.most_waiting = max(self.most_waiting, load.waiting)
        self.preemptions, self.finished, self.cut = load.preemptions, load.finished, load.cut

    def document(self) -> dict[str, Any]:
        """Return the entry for state.json."""
        return {**vars(self), "shapes": dict(self.shapes)}

    @classmethod
    def from_document(cls, written: Mapping[str, Any]) -> Counts:
        """Return the counts from an entry of FORM; what is no name of a shape is left out."""
        found = cls(**{name: written[name] for name in FORM})
        named = [(key, count) for key, count in found.shapes.items() if _KEY.fullmatch(key)]
        found.shapes = dict(named[:MOST_SHAPES])
        return found

    @property
    def commonest(self) -> ComputedShape | None:
        """The shape that most lines were about; of several the largest. None without one."""
        shapes = [(count, shape) for key, count in self.shapes.items() if (shape := _of_key(key)) is not None]
        if not shapes:
            return None
        return max(shapes, key=lambda each: (each[0], each[1].batch * each[1].query, each[1].blocks))[1]
