"""How far the work is."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from gaudi.base.units import human_bytes
from gaudi.node import long_work


class ConversionProgress:
    """Reports how far the work is: in a file for a follower, and in words on standard error."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.terminal = sys.stderr.isatty()
        self.phase, self.done, self.total = "", 0, 0
        self.started = self.said = self.written = time.monotonic()

    def begin(self, phase: str, total: int) -> None:
        """Enter a phase of total bytes."""
        self.phase, self.done, self.total = phase, 0, total
        self.started = time.monotonic()
        self.said = self.written = 0.0
        self.advance(0)

    def advance(self, size: int) -> None:
        """Count size more bytes; writes at most twice a second."""
        self.done += size
        now = time.monotonic()
        if self.path is not None and now - self.written >= 0.5:
            self.written = now
            long_work.tell_progress(self.path, self.state(now))
        if now - self.said >= (0.5 if self.terminal else 30.0):
            self.said = now
            self.say(now)

    def state(self, now: float) -> dict[str, Any]:
        """The progress document: bytes, bytes per second, seconds."""
        seconds = now - self.started
        rate = self.done / seconds if seconds > 0 else 0.0
        eta = (self.total - self.done) / rate if rate else None
        return {
            "phase": self.phase,
            "done": self.done,
            "total": self.total,
            "unit": "bytes",
            "rate": round(rate),
            "eta": None if eta is None else round(eta, 1),
            "message": f"{self.phase}: {human_bytes(self.done)} of {human_bytes(self.total)}",
        }

    def say(self, now: float) -> None:
        """One line; on a terminal it overwrites itself."""
        state = self.state(now)
        eta = "" if state["eta"] is None else f", {state['eta']:.0f} s to go"
        line = f"{state['message']}, {human_bytes(state['rate'])}/s{eta}"
        print(
            f"\r\033[K{line}" if self.terminal else line,
            end="" if self.terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        """End the phase: write and print its last figures."""
        now = time.monotonic()
        long_work.tell_progress(self.path, self.state(now))
        self.say(now)
        if self.terminal:
            print(file=sys.stderr)
