"""The progress of the work, for those who follow it."""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path

from gaudi.base.units import human_bytes
from gaudi.node import long_work

WRITE_EVERY = 0.5  # seconds
WINDOW = 20.0  # seconds over which the rate is taken: long enough to be calm, short enough to be current


class TransferProgress:
    """Counts bytes of all threads and writes the progress document."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.received = 0
        self.begin("list", 0)

    def begin(self, phase: str, total: int, done: int = 0) -> None:
        """Enter a phase of total bytes, of which done are there already."""
        with self.lock:
            now = time.monotonic()
            self.phase, self.total, self.done, self.waiting = phase, total, done, ""
            self.marks: deque[tuple[float, int]] = deque([(now, done)])
            self._write(now)

    def advance(self, size: int) -> None:
        """Count size more bytes; fewer, when a part has to be fetched again."""
        with self.lock:
            self.done += size
            self.received += max(size, 0)
            self.waiting = ""
            now = time.monotonic()
            if now - self.written >= WRITE_EVERY:
                self.marks.append((now, self.done))
                while len(self.marks) > 2 and now - self.marks[0][0] > WINDOW:
                    self.marks.popleft()
                self._write(now)

    def waits(self, why: str) -> None:
        """Say what is waited for, until more comes. Without a rate: nothing can be told of when it will be done."""
        with self.lock:
            now = time.monotonic()
            self.waiting, self.marks = why, deque([(now, self.done)])
            self._write(now)

    def end(self) -> None:
        """Leave the phase with its last figures written."""
        with self.lock:
            self._write(time.monotonic())

    def document(self, now: float) -> dict[str, object]:
        """The progress document: bytes, bytes per second, seconds."""
        since, before = self.marks[0]
        rate = max(self.done - before, 0) / (now - since) if now > since else 0.0
        return {
            "phase": self.phase,
            "done": self.done,
            "total": self.total,
            "unit": "bytes",
            "rate": round(rate),
            "eta": round((self.total - self.done) / rate, 1) if rate > 0 else None,
            "waiting": self.waiting,
            "message": f"{self.phase}: {human_bytes(self.done)} of {human_bytes(self.total)}",
        }

    def _write(self, now: float) -> None:
        self.written = now
        long_work.tell_progress(self.path, self.document(now))
