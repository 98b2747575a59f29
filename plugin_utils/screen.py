"""What reaches a terminal: printable text alone, and a passing line that the next line replaces."""

from __future__ import annotations

import functools
import shutil
from typing import Any, TextIO

from ansible.module_utils.gaudi.base.printable import printable, printable_lines

# A line that begins so tells what goes on. On a terminal the next line takes its place.
WAITING = "  … "
_CLEAR = "\r\033[K"


def print_printably(display: Any) -> None:
    """Have Ansible's class Display print nothing but printable lines, whoever calls it.

    Results of tasks are not all that it prints: Ansible itself warns of what a node answers, and -vvv prints it whole.
    All of that, the text of worker processes included, ends in its method ``display``, which colours a text afterwards.
    """
    as_it_came = display.display
    if getattr(as_it_came, "is_printable", False):
        return

    @functools.wraps(as_it_came)
    def printed(self: Any, msg: str, *arguments: Any, **options: Any) -> None:
        as_it_came(self, printable_lines(msg), *arguments, **options)

    vars(printed)["is_printable"] = True
    display.display = printed


class Screen:
    """Stands before the streams of a terminal, and takes a passing line away before anybody writes another one."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._shown = False

    def before(self, stream: TextIO) -> Any:
        """Give a stream that writes through this screen."""
        return _FilteredStream(self, stream)

    def passing(self, text: str) -> None:
        """Show a line until the next one comes; as much of it as the terminal is wide."""
        shown = f"{WAITING}{printable(text)}"[: shutil.get_terminal_size().columns - 1]
        self._terminal.write(f"{_CLEAR}\033[2m{shown}\033[0m")
        self._terminal.flush()
        self._shown = True

    def clear(self) -> None:
        """Take the passing line away."""
        if self._shown:
            self._terminal.write(_CLEAR)
            self._terminal.flush()
            self._shown = False


class _FilteredStream:
    """A stream whose whole lines that tell what goes on are passing ones."""

    def __init__(self, screen: Screen, stream: TextIO) -> None:
        self._screen = screen
        self._stream = stream

    def write(self, text: str) -> int:
        if text.startswith(WAITING) and text.count("\n") == 1 and text.endswith("\n"):
            self._screen.passing(text[len(WAITING) :].rstrip("\n"))
            return len(text)
        self._screen.clear()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
