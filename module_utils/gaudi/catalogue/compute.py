"""What ``catalog/cards.yml`` says of computing on cards: how much is copied, and how far a product may differ."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.checks import Reader, sequence
from .fabric import CONFIDENCES

LEAST_MIB, MOST_MIB = 1, 65536


@dataclass(frozen=True)
class ComputeBounds:
    """copy_mib: MiB that each card copies. matmul: largest difference of a product, relative to its largest value."""

    copy_mib: int
    matmul: float

    @classmethod
    def from_cards(cls, value: object) -> ComputeBounds:
        """Read the key ``compute`` of ``catalog/cards.yml``. Raises Refusal for a wrong or missing value."""
        where = "catalog/cards.yml"
        top = Reader(value, where, ("cards", "compute"))
        reader = Reader(top.raw("compute"), f"{where}: compute", ("copy_mib", "largest_differences", "sources"))
        bounds = {}
        for entry in sequence(reader.raw("largest_differences"), f"{where}: largest_differences"):
            bound = Reader(entry, f"{where}: largest_differences", ("check", "value", "confidence", "source"))
            bound.choice("confidence", CONFIDENCES)
            bounds[bound.choice("check", ("matmul",))] = float(bound.number("value", 1e-9, 1))
        return cls(reader.integer("copy_mib", LEAST_MIB, MOST_MIB), bounds["matmul"])
