"""tqdm's bar as the plugin's warm-up has it: one line on stderr, each drawing in the place of the last.

What stands before a worker's lines stands before the first carriage return only. Behind the pace is the place of the
shape whose turn it was, counted from 0.
"""

from __future__ import annotations

import sys
import time

WIDTH = 10  # characters
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# tqdm draws no sooner than that after it has drawn a new count.
_INTERVAL = 0.1  # seconds


class Bar:
    """The bar of a phase of one worker."""

    def __init__(self, speaker: str, phase: str, total: int) -> None:
        self.label, self.total, self.done, self.turn = f"{phase} warmup processing: ", total, 0, ""
        self.begin = self.drawn = time.monotonic()
        print(speaker, end="", file=sys.stderr)
        self._draw()

    def next(self) -> None:
        """A shape is done: first its place is shown, then the new count."""
        self.turn = f", {self.done}/{self.total}"
        self._draw()
        self.done += 1
        if time.monotonic() - self.drawn >= _INTERVAL:
            self._draw()
            self.drawn = time.monotonic()

    def close(self) -> None:
        """The last drawing, and the end of its line."""
        self._draw()
        print(file=sys.stderr, flush=True)

    def _draw(self) -> None:
        took, share = time.monotonic() - self.begin, self.done / self.total
        left, pace = "?", "?item/s"
        if self.done and took:
            left, each = _clock(took / self.done * (self.total - self.done)), took / self.done
            pace = f"{each:5.2f}s/item" if each > 1 else f"{1 / each:5.2f}item/s"
        whole, part = divmod(int(share * WIDTH * 8), 8)
        filled = "█" * whole + (_EIGHTHS[part] if whole < WIDTH else "")
        print(
            f"\r{self.label}{100 * share:3.0f}%|{filled:{WIDTH}}| "
            f"{self.done}/{self.total} [{_clock(took)}<{left}, {pace}{self.turn}]",
            end="",
            file=sys.stderr,
            flush=True,
        )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
