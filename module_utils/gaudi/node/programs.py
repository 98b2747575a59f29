"""What a supervisor runs with, as digests: its program, its library, and its unit with drop-ins."""

from __future__ import annotations

import shlex
from pathlib import Path

from ..base.library import digest

PROGRAM = "vllm_supervisor.py"
PACKAGE = "gaudi_supervisor"


def supervisor_digest(folder: Path) -> str:
    """Stand for the supervisor's own files below a folder; a file that is missing is another program."""
    files = [folder / PROGRAM, *(folder / PACKAGE).glob("*.py")]
    return digest({str(file.relative_to(folder)): _text(file) for file in files})


def library_digest(package: Path) -> str:
    """Stand for the files of the library below its package: what they hold, not how their directory is called."""
    return digest({str(file.relative_to(package)): _text(file) for file in package.rglob("*.py")})


def unit_digest(shown: str) -> str:
    """Stand for a unit's file and its drop-ins, as ``systemctl show --property=FragmentPath,DropInPaths`` names them.

    A drop-in of the administrator counts as well. Empty where systemd names no file.
    """
    properties = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    files = shlex.split(f"{properties.get('FragmentPath', '')} {properties.get('DropInPaths', '')}")
    return digest({file: _text(Path(file)) for file in files}) if files else ""


def runs_as(shown: str, arguments: list[str]) -> bool:
    """Tell whether a process with these arguments is what systemd would start now.

    shown: what ``systemctl show`` prints of ExecStart and NeedDaemonReload. A predecessor that became this process, or
    a unit that systemd has not read since it was written, leaves other arguments.
    """
    properties = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    if properties.get("NeedDaemonReload") == "yes":
        return False
    _, _, command = properties.get("ExecStart", "").partition("argv[]=")
    return command.split(" ; ")[0].split() == arguments


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
