"""What programs of a node run with: their library, as installed; a supervisor's program and unit, as digests."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..base import library, owned_paths, paths

FOLDER = Path(paths.PROGRAMS)
# Whoever runs a program may read the folder.
MODE = 0o755
LIBRARY = "gaudi"

PROGRAM = "vllm_supervisor.py"
PACKAGE = "gaudi_supervisor"


def supervisor_digest(folder: Path) -> str:
    """Return a digest of the supervisor's own files; a missing file changes it."""
    files = [folder / PROGRAM, *(folder / PACKAGE).glob("*.py")]
    return library.digest({str(file.relative_to(folder)): _text(file) for file in files})


def library_digest(package: Path) -> str:
    """Return a digest of the library's files, independent of the name of its directory."""
    return library.digest({str(file.relative_to(package)): _text(file) for file in package.rglob("*.py")})


def hold_library(
    role: str, wanted: str, files: Mapping[str, str] | None, *, present: bool, check: bool
) -> dict[str, Any]:
    """Install the library for a role, or remove it with the last role whose programs are on the node.

    wanted: the digest of the checkout's files. files: text by relative name, None where they were not sent. Returns
    changed, diff, installed (whether files of the library were, or would be, changed) and needed (whether they have to
    be sent; then nothing is changed).
    """
    package = FOLDER / LIBRARY
    before = library_digest(package) if package.is_dir() else None
    users = owned_paths.owners_of_programs(path.name for path in FOLDER.iterdir()) if FOLDER.is_dir() else set()
    there = [path.name for path in FOLDER.glob(f"{library.PREFIX}*")]
    change = library.decide(role, present, users, wanted, before, there)
    after = None if change.gone else wanted if change.install else before
    mode = FOLDER.stat().st_mode & 0o7777 if FOLDER.is_dir() else MODE
    changed = (before, mode) != (after, MODE) or bool(change.remove)
    needed = change.install and not files
    if changed and not check and not needed:
        _change_library(change, wanted, files)
    diff = {
        "before": _shown(before, users, mode),
        "after": _shown(after, change.users, MODE),
        "before_header": str(FOLDER),
    }
    return {"changed": changed, "diff": diff, "installed": change.install, "needed": needed}


def _change_library(change: library.LibraryChange, wanted: str, files: Mapping[str, str] | None) -> None:
    """Write the new files first, then remove those that no program reads any more."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(MODE)
    if change.install and files:
        _install(wanted, files)
    if change.gone:
        (FOLDER / LIBRARY).unlink(missing_ok=True)
    for name in change.remove:
        shutil.rmtree(FOLDER / name)
    if change.gone and not any(FOLDER.iterdir()):
        FOLDER.rmdir()


def _install(wanted: str, files: Mapping[str, str]) -> None:
    """Write the files beside the current ones, then activate them in one rename."""
    target = FOLDER / f"{library.PREFIX}{wanted}"
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="incomplete-") as scratch:
        whole = Path(scratch, "library")
        for name, text in files.items():
            path = whole / LIBRARY / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
        for path in (whole, *(path for path in whole.rglob("*") if path.is_dir())):
            path.chmod(0o755)
        if target.exists():
            # It has the right name but is not the current one: somebody changed it.
            target.rename(Path(scratch, "changed"))
        whole.rename(target)
        link = Path(scratch, "link")
        link.symlink_to(f"{target.name}/{LIBRARY}")
        link.replace(FOLDER / LIBRARY)


def _shown(digest_there: str | None, users: Collection[str], mode: int) -> str:
    lines = [f"library {digest_there}", f"mode {mode:04o}", *(f"needed by {user}" for user in sorted(users))]
    return "" if digest_there is None else "\n".join(lines) + "\n"


def unit_digest(shown: str) -> str:
    """Return a digest of a unit's file and drop-ins, listed by ``systemctl show --property=FragmentPath,DropInPaths``.

    An administrator's drop-ins count too. "" if systemd names no file.
    """
    properties = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    files = shlex.split(f"{properties.get('FragmentPath', '')} {properties.get('DropInPaths', '')}")
    return library.digest({file: _text(Path(file)) for file in files}) if files else ""


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
