"""What a supervisor runs with, as digests: its program, its library, and its unit with drop-ins."""

from __future__ import annotations

import shlex
from pathlib import Path

from ..base.library import digest

PROGRAM = "vllm_supervisor.py"
PACKAGE = "gaudi_supervisor"


def supervisor_digest(folder: Path) -> str:
    """Return a digest of the supervisor's own files; a missing file changes it."""
    files = [folder / PROGRAM, *(folder / PACKAGE).glob("*.py")]
    return digest({str(file.relative_to(folder)): _text(file) for file in files})


def library_digest(package: Path) -> str:
    """Return a digest of the library's files, independent of the name of its directory."""
    return digest({str(file.relative_to(package)): _text(file) for file in package.rglob("*.py")})


def unit_digest(shown: str) -> str:
    """Return a digest of a unit's file and drop-ins, listed by ``systemctl show --property=FragmentPath,DropInPaths``.

    An administrator's drop-ins count too. "" if systemd names no file.
    """
    properties = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    files = shlex.split(f"{properties.get('FragmentPath', '')} {properties.get('DropInPaths', '')}")
    return digest({file: _text(Path(file)) for file in files}) if files else ""


def runs_as(shown: str, arguments: list[str]) -> bool:
    """Whether a process with these arguments is what systemd would start now.

    shown: ``systemctl show`` of ExecStart and NeedDaemonReload. The arguments differ if an earlier supervisor handed
    over to this process, or if systemd has not reloaded a changed unit.
    """
    properties = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    if properties.get("NeedDaemonReload") == "yes":
        return False
    _, _, command = properties.get("ExecStart", "").partition("argv[]=")
    return command.split(" ; ")[0].split() == arguments


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
