"""What journalctl is asked for the log of an instance, and what it answers."""

from __future__ import annotations

import json

# The last line of journalctl --show-cursor.
_CURSOR = "-- cursor: "


def command(instance: str, lines: int, since: str, after: str) -> list[str]:
    """The arguments of journalctl for the log of an instance.

    A first question asks for the last ``lines``; of a time (``since``), newest() finds them.
    A later one names the cursor of the answer before it (``after``), and asks for all that was written since.
    """
    arguments = [f"--unit=vllm-{instance}.service", "--output=short-iso", "--show-cursor", "--quiet", "--no-pager"]
    if after:
        return [*arguments, f"--after-cursor={after}"]
    return [*arguments, f"--lines={lines}", *([f"--since={since}"] if since else [])]


def newest(instance: str, lines: int, since: str) -> list[str]:
    """The arguments that find where the last ``lines`` since a time begin, the newest first.

    Older journalctls (252) show the first so many lines after a time, newer ones the last; backwards all agree.
    """
    arguments = [f"--unit=vllm-{instance}.service", "--output=json", "--output-fields=_PID", "--quiet", "--no-pager"]
    return [*arguments, "--reverse", f"--lines={lines}", f"--since={since}"]


def onwards(instance: str, printed: str) -> list[str]:
    """The arguments for the last entry that newest() had printed, and all after it; empty where it printed none."""
    entries = printed.split("\n") if (printed := printed.strip()) else []
    if not entries:
        return []
    return [*command(instance, 0, "", "")[:-1], f"--cursor={json.loads(entries[-1])['__CURSOR']}"]


def lines_and_cursor(printed: str) -> tuple[list[str], str]:
    """The lines that journalctl printed, and the cursor of the last; empty where it found no line."""
    lines = printed.rstrip("\n").split("\n") if printed else []
    cursor = lines.pop()[len(_CURSOR) :] if lines and lines[-1].startswith(_CURSOR) else ""
    return lines, cursor
