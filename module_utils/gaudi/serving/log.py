"""What journalctl is asked for the log of an instance, and what it answers."""

from __future__ import annotations

# The last line of journalctl --show-cursor.
_CURSOR = "-- cursor: "


def command(instance: str, lines: int, since: str, after: str) -> list[str]:
    """The arguments of journalctl for the log of an instance.

    A first question asks for the last ``lines``, none older than ``since`` (a time in journalctl's words, empty for
    any). A later one names the cursor of the answer before it (``after``), and asks for all that was written since.
    """
    arguments = [f"--unit=vllm-{instance}.service", "--output=short-iso", "--show-cursor", "--quiet", "--no-pager"]
    if after:
        return [*arguments, f"--after-cursor={after}"]
    return [*arguments, f"--lines={lines}", *([f"--since={since}"] if since else [])]


def lines_and_cursor(printed: str) -> tuple[list[str], str]:
    """The lines that journalctl printed, and the cursor of the last; empty where it found no line."""
    lines = printed.rstrip("\n").split("\n") if printed else []
    cursor = lines.pop()[len(_CURSOR) :] if lines and lines[-1].startswith(_CURSOR) else ""
    return lines, cursor
