"""How long weights may be on their way to the cards without a line from the server.

Pure: the caller measures the disk (node/disk_rate.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.units import human_bytes
from . import starts

LARGE = 10 * 10**9
"""Bytes of weights from which the disk is measured: less arrive from any disk while a server may be silent anyway."""
SLOW_DISK = 200 * 10**6
"""Bytes a second of a disk that cannot be measured. Seen were 350 MB/s from SATA and 3.4 GB/s from NVMe, on a public
host with eight Gaudi 2."""
CONVERTED = 100 * 10**6
"""Bytes a second that workers convert at the slowest. MiniMax-M2.7 (230 GB in FP8, 256 experts, four Gaudi 3, 1.24.0)
took 30 to 35 minutes at 99 % CPU without a line, by a public account of its owner; other models print their shards."""
FORM = {"bytes": int, "bytes_a_second?": int}
"""The form of Loading in state.json."""


@dataclass(frozen=True)
class Loading:
    """The weights of a start: their bytes, and the measured bytes a second of their disk; 0 if not measured."""

    bytes: int
    bytes_a_second: int = 0

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Loading:
        """Return what a supervisor wrote into its state; no weights where it did not."""
        known = state.get("loading", {})
        return cls(known.get("bytes", 0), known.get("bytes_a_second", 0))

    def document(self) -> dict[str, int]:
        """Return the entry for state.json."""
        return dict(vars(self))

    @property
    def seconds(self) -> float:
        """Seconds to read and convert the weights, at the slowest."""
        return self.bytes / (self.bytes_a_second or SLOW_DISK) + self.bytes / CONVERTED

    def silence(self, stall: float, shards: tuple[int, int] | None = None) -> float:
        """Return the seconds without a line after which a start that loads is given up.

        stall: that of other phases. shards: how many are loaded, and of how many. A server that prints them is given
        the time of one, but not before the first and after the last: some convert all of them without a line.
        """
        done, total = shards or (0, 0)
        return stall + (self.seconds / total if 0 < done < total else self.seconds)

    def sentence(self, stall: float) -> str:
        """Return a sentence about large weights; "" for others."""
        if self.bytes < LARGE:
            return ""
        disk = f", and their disk gives {human_bytes(self.bytes_a_second)} a second" if self.bytes_a_second else ""
        limit = starts.words(self.silence(stall))
        return (
            f"The weights have {human_bytes(self.bytes)}{disk}: while they load, {limit} without a line are no fault."
        )
