"""What a caller of fp8_convert.py asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..checkpoint import INDEX, SourceCheckpoint, carry, index_for
from ..conversion import Conversion
from .source import examine
from .tables import Factor, table_hash, weight_table

VERSION = "1"


@dataclass(frozen=True)
class BlockConversion(Conversion):
    """Moves a block-quantised checkpoint into the range of Gaudi2."""

    factor: Factor
    vendor_compatible: bool
    assume_unconverted: bool

    tool: ClassVar[str] = "fp8_convert"
    elsewhere: ClassVar[str] = (
        ", choose another target, or use --in-place-space, which gives up each source shard once its twin is verified"
    )

    def examine(self) -> SourceCheckpoint:
        """The source as it is, every tensor decided."""
        return examine(self.source, self.vendor_compatible, self.assume_unconverted, self.factor)

    def options(self) -> dict[str, Any]:
        """The options that change the result; a continued run must ask for the same."""
        return {
            "version": VERSION,
            "factor": self.factor.name,
            "table_sha256": table_hash(weight_table(self.factor)),
            "vendor_compatible": self.vendor_compatible,
        }

    def task_options(self) -> dict[str, Any]:
        """The factor."""
        return {"factor": [self.factor.name, self.factor.numerator, self.factor.denominator]}

    def carry(self, source: SourceCheckpoint, folder: Path) -> dict[str, Any]:
        """Copy tokenizer, configuration and code into folder; rewrite the index, for sizes that changed."""
        return carry(source, folder, {INDEX: lambda: index_for(source, folder)})
