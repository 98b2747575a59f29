"""What a caller of fp8_dynamic.py asks for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..checkpoint import Source, read_headers, read_index, total_size
from ..conversion import Wish as BlockWish
from ..files import copy_file, read_json, write_json
from ..shards import sum_of
from ..workers import Crew as BlockCrew
from .shard import MARKER
from .source import examine
from .tables import table_hash
from .tensors import ignored_layers, quantization_config

PROGRAM = Path(__file__).absolute().parents[2] / "fp8_dynamic.py"
VERSION = "1"


@dataclass(frozen=True)
class Wish(BlockWish):
    """What the caller asked for; keep names layers that stay as they are."""

    keep: tuple[str, ...] = ()

    tool: ClassVar[str] = "fp8_dynamic"

    def examine(self) -> Source:
        """The source as it is, every tensor decided."""
        return examine(self.source, self.keep)

    def request(self) -> dict[str, Any]:
        """The options that change the result; a continued run must ask for the same."""
        return request_of(self)

    def crew(self, jobs: int) -> BlockCrew:
        """Worker processes."""
        return Crew(jobs)

    def carry(self, source: Source, folder: Path) -> dict[str, Any]:
        """Bring the other files of the model; returns size and CRC-32 of each."""
        return carry(self, source, folder)


class Crew(BlockCrew):
    """Workers of this program."""

    command = (sys.executable, "-E", "-S", "-B", str(PROGRAM), "--worker")


def request_of(wish: Wish) -> dict[str, Any]:
    """The options that change the result; a continued run must ask for the same."""
    return {"version": VERSION, "scheme": MARKER, "table_sha256": table_hash(), "keep": list(wish.keep)}


def carry(wish: Wish, source: Source, folder: Path) -> dict[str, Any]:
    """Copy tokenizer and code into folder; rewrite config.json and the index, which have to know of the scales."""
    headers = read_headers(wish.source, list(source.shards))
    everything = [tensor for header in headers.values() for tensor in header.tensors]
    actions = {name: action for found in source.actions.values() for name, action in found.items()}
    for name in source.carried:
        if name == "model.safetensors.index.json":
            index = read_index(wish.source)
            index.setdefault("metadata", {})["total_size"] = total_size(folder, list(source.shards))
            index["weight_map"] = {
                tensor.name: shard
                for shard, header in read_headers(folder, list(source.shards)).items()
                for tensor in header.tensors
            }
            write_json(folder / name, index)
        elif name == "config.json":
            document = read_json(wish.source / name)
            document["quantization_config"] = quantization_config(ignored_layers(everything, actions))
            write_json(folder / name, document)
        else:
            copy_file(wish.source / name, folder / name)
    return {name: sum_of(folder / name) for name in source.carried}
