"""Make text from outside safe to print: it must not control a terminal or forge lines of the journal.

All text that comes from a container, a tool, a hub or a file name passes through here before a person sees it;
tests/unit/base/test_printable.py lists the places where text leaves the project.
"""

from __future__ import annotations

import re

# Environment with which commands print English. The C library ignores LANGUAGE where the locale is C (gettext(3)).
UNTRANSLATED = {"LC_ALL": "C"}
# What moves a cursor, colours or renames a window: ECMA-48 control sequences, and operating system commands of xterm.
_SEQUENCE = re.compile(r"\x1b\[[0-9:;<=>?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
# Characters, of up to 4 bytes each: journald cuts a line at 48 KiB (LineMax= of journald.conf(5)), and a site may have
# it cut earlier.
_PIECE = 2048


def printable(text: str) -> str:
    """Return a text as one line: white space becomes blanks, unprintable characters become ``?``.

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
    """Return a line for the journal, with a syslog priority of ours in front of any priority in the text.

    A line that begins with ``<0>`` is an emergency, which every terminal of the node shows. journald reads a priority
    at the beginning of a service's line (sd-daemon(3)), and of each piece of a line that it cuts. So a long line is
    returned as several.
    """
    plain = printable(text)
    pieces = [plain[start : start + _PIECE] for start in range(0, len(plain), _PIECE)] or [""]
    return "\n".join(f"<{priority}>{piece}" for piece in pieces)
