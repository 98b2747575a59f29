"""What a caller asks for, and what each program answers in its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from .checkpoint import SourceCheckpoint
from .files import PROVENANCE, STATE_FOLDER
from .workers import Crew


@dataclass(frozen=True)
class Conversion(ABC):
    """From where to where, and how; each program has its own kind."""

    source: Path
    target: Path
    jobs: int
    verify: bool
    in_place_space: bool  # delete each source shard once its converted twin is verified and recorded
    progress: Path | None
    check: bool
    reread: bool

    tool: ClassVar[str]  # name of the program, without .py
    elsewhere: ClassVar[str]  # what else a person can do where there is no room

    @property
    def staging(self) -> Path:
        """Where the work is until it is whole."""
        return self.target.with_name(self.target.name + ".partial")

    @property
    def record(self) -> Path:
        """Where the provenance of the finished result is."""
        return self.target / STATE_FOLDER / PROVENANCE

    @property
    def start_over(self) -> str:
        """Advice about a journal that is damaged."""
        return (
            f"remove {self.staging} to start over, and fetch the model again if --in-place-space gave up shards of it"
        )

    @abstractmethod
    def examine(self) -> SourceCheckpoint:
        """The source as it is, every tensor decided."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The options that change the result; a continued run must ask for the same."""

    @abstractmethod
    def carry(self, source: SourceCheckpoint, folder: Path) -> dict[str, Any]:
        """Bring the other files of the model into folder; returns size and CRC-32 of each."""

    def task_options(self) -> dict[str, Any]:
        """What a worker has to know to convert a shard, besides the shard and its actions."""
        return {}

    def crew(self, tasks: int) -> Crew:
        """Worker processes for so many tasks: as many as were asked for, but none without a task."""
        return Crew(self.tool, max(1, min(self.jobs, tasks)))


ConversionT = TypeVar("ConversionT", bound=Conversion)
