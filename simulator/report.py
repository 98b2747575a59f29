"""Calm output: a line for each phase when it is done, and on a terminal one line that says what is going on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from plugin_utils.phases import TITLE_COLUMNS, duration


class Report:
    """Prints to a stream, and the same lines without colour into a log."""

    def __init__(self, stream: TextIO, log: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._log = log
        self._clock = clock
        self._terminal = stream.isatty()

    def line(self, text: str = "", *, style: str = "") -> None:
        """Print one line. ``style`` is an ANSI code such as "1" (bold), used on terminals only."""
        self.passing("")
        shown = f"\033[{style}m{text}\033[0m" if style and text and self._terminal else text
        print(shown, file=self._stream, flush=True)
        print(text, file=self._log, flush=True)

    def done(self, title: str, seconds: float, note: str = "", mark: str = "✓") -> None:
        """Print a finished phase with its time."""
        self.line(f"  {mark} {title:<{TITLE_COLUMNS}} {duration(seconds):>9}  {note}".rstrip())

    def total(self, seconds: float) -> None:
        """Print the time of everything, below the times of the phases."""
        self.line(f"    {'in all':<{TITLE_COLUMNS}} {duration(seconds):>9}")

    def passing(self, text: str) -> None:
        """Show what is going on in a line that the next one replaces; on terminals only."""
        if self._terminal:
            columns = shutil.get_terminal_size().columns - 1
            print(
                f"\r\033[K\033[2m{text[:columns]}\033[0m" if text else "\r\033[K", end="", file=self._stream, flush=True
            )

    @contextmanager
    def phase(self, title: str) -> Iterator[Callable[[str], None]]:
        """Show a phase while it goes on, and its time when it is done.

        What it gives is called at the beginning of each step of the phase that is worth a line of its own.
        """
        self.passing(f"  … {title}")
        started = self._clock()
        steps: list[tuple[str, float]] = []

        def finish() -> None:
            if steps:
                text, begun = steps.pop()
                self.done(text, self._clock() - begun, mark="·")

        def say(text: str) -> None:
            finish()
            steps.append((text, self._clock()))
            self.passing(f"  … {text}")

        yield say
        finish()
        self.done(title, self._clock() - started)
