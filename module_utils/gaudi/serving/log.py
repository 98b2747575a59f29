"""Arguments of journalctl for an instance's log, and how to read its output."""

from __future__ import annotations

import json

# The last line of journalctl --show-cursor.
_CURSOR = "-- cursor: "


def command(instance: str, lines: int, since: str, after: str) -> list[str]:
    """Return journalctl's arguments for the log of an instance.

    The first call returns the last ``lines``; with a start time (``since``), newest() finds them first. A later call
    passes the previous cursor (``after``), and returns all that was written since.
    """
    arguments = [f"--unit=vllm-{instance}.service", "--output=short-iso", "--show-cursor", "--quiet", "--no-pager"]
    if after:
        return [*arguments, f"--after-cursor={after}"]
    return [*arguments, f"--lines={lines}", *([f"--since={since}"] if since else [])]


def newest(instance: str, lines: int, since: str) -> list[str]:
    """Return arguments that find the last ``lines`` since a time, newest first.

    With a start time, older versions of journalctl (252) return the first so many lines, newer ones the last; in
    reverse order all agree.
    """
    arguments = [f"--unit=vllm-{instance}.service", "--output=json", "--output-fields=_PID", "--quiet", "--no-pager"]
    return [*arguments, "--reverse", f"--lines={lines}", f"--since={since}"]


def onwards(instance: str, printed: str) -> list[str]:
    """Return arguments for the last entry that newest() printed and all later ones; [] if it printed none."""
    entries = printed.split("\n") if (printed := printed.strip()) else []
    if not entries:
        return []
    return [*command(instance, 0, "", "")[:-1], f"--cursor={json.loads(entries[-1])['__CURSOR']}"]


def lines_and_cursor(printed: str) -> tuple[list[str], str]:
    """Return journalctl's lines, and the cursor of the last one; "" without a line."""
    lines = printed.rstrip("\n").split("\n") if printed else []
    cursor = lines.pop()[len(_CURSOR) :] if lines and lines[-1].startswith(_CURSOR) else ""
    return lines, cursor
