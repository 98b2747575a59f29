"""Read the files of the engine's unit, where systemd has not read them yet (systemd.syntax(7), systemd.service(5))."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_NAMES = ("ExecStart", "Environment", "EnvironmentFile")
# Before a command in ExecStart; "@" names a program whose own name follows as the next word.
_PREFIXES = "@-:+!|"


def properties(texts: Sequence[str]) -> dict[str, str]:
    """Return what a unit's files set, as ``systemctl show`` prints it; {} if none of them sets a command.

    texts: the unit's file, then its drop-ins in the order in which systemd reads them. Of specifiers only ``%%`` is
    resolved. An empty assignment takes back the earlier ones.
    """
    found: dict[str, list[str]] = {name: [] for name in _NAMES}
    for name, value in (assignment for text in texts for assignment in _assignments(text)):
        if name in found:
            found[name] = [*found[name], value.replace("%%", "%")] if value else []
    if not found["ExecStart"]:
        return {}
    files = " ".join(f"{value.lstrip('-')} (ignore_errors=yes)" for value in found["EnvironmentFile"])
    return {
        "ExecStart": f"{{ argv[]={_command(found['ExecStart'][-1])} ; ignore_errors=no ; }}",
        "Environment": " ".join(found["Environment"]),
        "EnvironmentFiles": files,
    }


def _command(value: str) -> str:
    """Return a command without its prefixes; the first word is the name that the process gets."""
    line = value.lstrip(_PREFIXES)
    named = "@" in value[: len(value) - len(line)]
    return line.partition(" ")[2].lstrip() if named else line


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    """Return the assignments in a file's section [Service]."""
    section, pending = "", ""
    for line in text.splitlines():
        stripped = line.strip()
        # A comment between two parts of a line belongs to neither.
        if stripped.startswith(("#", ";")):
            continue
        if stripped.endswith("\\"):
            pending += stripped[:-1] + " "
            continue
        whole, pending = (pending + stripped).strip(), ""
        if whole.startswith("["):
            section = whole
        elif section == "[Service]" and "=" in whole:
            name, _, value = whole.partition("=")
            yield name.strip(), value.strip()
