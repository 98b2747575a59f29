"""Text from outside, made so that a terminal and a journal show it and do nothing else.

Whatever a container, a tool, a hub or a file's name says passes through here before it reaches a person:
tests/unit/base/test_printable.py lists the exits.
"""

from __future__ import annotations

import re

# What moves a cursor, colours or renames a window: ECMA-48 control sequences, and operating system commands of xterm.
_SEQUENCE = re.compile(r"\x1b\[[0-9:;<=>?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


def printable(text: str) -> str:
    """Return a text as one line: blanks of any kind become blanks, what cannot be printed becomes ``?``.

    >>> printable("\x1b[31mred\x1b[0m\\r\\nnext\x07")
    'red  next?'
    """
    plain = _SEQUENCE.sub("", text)
    if plain.isprintable():
        return plain
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in plain)


def printable_lines(text: str) -> str:
    """Return a text of several lines with each of them printable."""
    return "\n".join(map(printable, text.split("\n")))


def journal_line(text: str, priority: int = 6) -> str:
    """Return a line for the journal with a syslog priority of ours, so that none in the text counts.

    A line that begins with ``<0>`` is an emergency, which every terminal of the node shows. journald
    reads a priority at the beginning of a service's line, and only there (sd-daemon(3)).
    """
    return f"<{priority}>{printable(text)}"
