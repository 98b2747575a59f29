"""What a caller asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from .block.source import examine
from .block.tables import Factor, table_hash, weight_table
from .checkpoint import Source, read_index, total_size
from .files import PROVENANCE, STATE_FOLDER, copy_file, write_json
from .shards import sum_of
from .workers import Crew

VERSION = "1"


@dataclass(frozen=True)
class Wish:
    """What the caller asked for."""

    source: Path
    target: Path
    jobs: int
    verify: bool
    factor: Factor
    vendor_compatible: bool
    in_place_space: bool
    assume_unconverted: bool
    progress: Path | None
    check: bool = False

    @property
    def staging(self) -> Path:
        """Where the work is until it is whole."""
        return self.target.with_name(self.target.name + ".partial")

    @property
    def record(self) -> Path:
        """Where the provenance of the finished result is."""
        return self.target / STATE_FOLDER / PROVENANCE

    # What differs between this program and fp8_dynamic.

    tool: ClassVar[str] = "fp8_convert"

    def examine(self) -> Source:
        """The source as it is, every tensor decided."""
        return examine(self.source, self.vendor_compatible, self.assume_unconverted, self.factor)

    def request(self) -> dict[str, Any]:
        """The options that change the result; a continued run must ask for the same."""
        return request_of(self)

    def crew(self, jobs: int) -> Crew:
        """Worker processes."""
        return Crew(jobs)

    def carry(self, source: Source, folder: Path) -> dict[str, Any]:
        """Bring the other files of the model; returns size and CRC-32 of each."""
        return carry(self, source, folder)


WishT = TypeVar("WishT", bound=Wish)


def start_over(wish: Wish) -> str:
    """Advice about a journal that is damaged."""
    return f"remove {wish.staging} to start over, and fetch the model again if --in-place-space gave up shards of it"


def request_of(wish: Wish) -> dict[str, Any]:
    """The options that change the result; a continued run must ask for the same."""
    return {
        "version": VERSION,
        "factor": wish.factor.name,
        "table_sha256": table_hash(weight_table(wish.factor)),
        "vendor_compatible": wish.vendor_compatible,
    }


def carry(wish: Wish, source: Source, folder: Path) -> dict[str, Any]:
    """Copy tokenizer, configuration and code into folder; rewrite the index for sizes that changed."""
    index = "model.safetensors.index.json"
    for name in source.carried:
        if name == index:
            content = read_index(wish.source)
            content.setdefault("metadata", {})["total_size"] = total_size(folder, list(source.shards))
            write_json(folder / name, content)
        else:
            copy_file(wish.source / name, folder / name)
    return {name: sum_of(folder / name) for name in source.carried}
