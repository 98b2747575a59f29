"""What this process has read of its program, of the library and of its unit, as digests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import gaudi
from gaudi.node.programs import library_digest, runs_as, supervisor_digest, unit_digest

from .engine import run_command


def _on_disk() -> dict[str, str]:
    return {
        "library": library_digest(Path(gaudi.__file__).resolve().parent),
        "program": supervisor_digest(Path(__file__).resolve().parents[1]),
    }


_BEFORE = _on_disk()


def digests() -> dict[str, str]:
    """Both by name; to be called once everything is imported.

    Empty where the files were replaced while they were read: no digest stands for half of each set, and a run that
    compares has the supervisor read them again. The files may have changed since, and changed back.
    """
    now = _on_disk()
    return {part: digest if now[part] == digest else "" for part, digest in _BEFORE.items()}


def _shown_unit(instance: str) -> str:
    """What systemd says of the unit; nothing without systemd."""
    properties = "FragmentPath,DropInPaths,NeedDaemonReload,ExecStart"
    try:
        return run_command(["systemctl", "show", f"vllm-{instance}.service", f"--property={properties}"]).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""


def unit_on_disk(instance: str) -> str:
    """The digest of the unit and of its drop-ins as they are now; empty without systemd."""
    return unit_digest(_shown_unit(instance))


def unit(instance: str) -> str:
    """The digest of the unit that this process was started with; empty where nobody can tell."""
    shown = _shown_unit(instance)
    arguments = Path("/proc/self/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return unit_digest(shown) if runs_as(shown, arguments) else ""
