"""What a caller of fp8_dynamic.py asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..checkpoint import INDEX, SourceCheckpoint, carry, index_for, read_headers
from ..conversion import Conversion
from ..files import read_json
from .shard import MARKER
from .source import examine
from .tables import table_hash
from .tensors import ignored_layers, quantization_config

VERSION = "1"


@dataclass(frozen=True)
class DynamicConversion(Conversion):
    """Turns a bfloat16 checkpoint into FP8 with a scale for every channel; keep names layers that stay as they are."""

    keep: tuple[str, ...]

    tool: ClassVar[str] = "fp8_dynamic"
    elsewhere: ClassVar[str] = " or choose another target"

    def examine(self) -> SourceCheckpoint:
        """The source as it is, every tensor decided."""
        return examine(self.source, self.keep)

    def options(self) -> dict[str, Any]:
        """The options that change the result; a continued run must ask for the same."""
        return {"version": VERSION, "scheme": MARKER, "table_sha256": table_hash(), "keep": list(self.keep)}

    def carry(self, source: SourceCheckpoint, folder: Path) -> dict[str, Any]:
        """Copy tokenizer and code into folder; rewrite config.json and the index, for the scales."""
        rewritten = {INDEX: lambda: index_with_scales(source, folder), "config.json": lambda: config_for(source)}
        return carry(source, folder, rewritten)


def index_with_scales(source: SourceCheckpoint, folder: Path) -> dict[str, Any]:
    """The index of the result in folder."""
    headers = read_headers(folder, list(source.shards))
    homes = {tensor.name: shard for shard, header in headers.items() for tensor in header.tensors}
    return {**index_for(source, folder), "weight_map": homes}


def config_for(source: SourceCheckpoint) -> dict[str, Any]:
    """The source's config.json, with how the server has to read the result."""
    headers = read_headers(source.folder, list(source.shards))
    tensors = [tensor for header in headers.values() for tensor in header.tensors]
    actions = {name: action for found in source.actions.values() for name, action in found.items()}
    quantised = quantization_config(ignored_layers(tensors, actions))
    return {**read_json(source.folder / "config.json"), "quantization_config": quantised}
