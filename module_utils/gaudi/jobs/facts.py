"""What a node reports of its jobs: which keys of their files, and what systemd says of their units."""

from __future__ import annotations

# Directories that the unit hides from the work unless one of its paths is below them (ProtectHome, systemd.exec(5)).
HOMES = ("/home", "/root", "/run/user")
# Keys of a job's state and of its progress that a report has. It has no log and no result, which may be long.
SHOWN = ("state", "started", "message")
PROGRESS = ("phase", "began", "done", "total", "unit", "rate", "eta", "waiting", "message")


def active_states(shown: str) -> dict[str, str]:
    """State by unit from the output of systemctl show --property=Id,ActiveState, one paragraph a unit."""
    states: dict[str, str] = {}
    for paragraph in shown.split("\n\n"):
        fields = dict(line.split("=", 1) for line in paragraph.splitlines() if "=" in line)
        if "Id" in fields:
            states[fields["Id"]] = fields.get("ActiveState", "inactive")
    return states
