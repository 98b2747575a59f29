"""Modules as Ansible packages them for nodes, kept for the next run.

Ansible packages a module with everything that it imports, once in each run. For a module of this project this takes 0.2
to 1.5 s of processor time (benchmarks/site.md), and a run uses twenty. Ansible keeps the packages in a folder that it
removes at the end of a run: links there lead to those of earlier runs, and new ones are copied out at the end.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import sys
from pathlib import Path

import ansible.constants as constants
from ansible.release import __version__

from plugin_utils.brain import ROOT

# Checkouts, or states of one, whose packages are kept; each takes some 15 MB. Our choice.
_KEPT = 8


def reuse() -> None:
    """Give this run the packages that earlier runs made of the same files, and keep those that it makes."""
    packages, store = Path(constants.DEFAULT_LOCAL_TMP) / "ansiballz_cache", _store()
    if packages.exists() or not os.access(store.parents[1], os.W_OK):
        return
    packages.mkdir(mode=0o700)
    own = _is_own(store.parent) and _is_own(store)
    for file in store.glob("ansible.*") if own else []:
        (packages / file.name).symlink_to(file)
    atexit.register(_keep, os.getpid(), packages, store)


def _store() -> Path:
    """The folder for the packages of the files as they are now."""
    ansible = Path(str(constants.__file__)).parent
    stamps = [sys.version, __version__, str(ansible), str(ROOT)]
    # A distribution repairs Ansible without another version.
    folders = (ROOT / "library", ROOT / "module_utils", ansible / "modules", ansible / "module_utils")
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        found = path.stat()
        stamps.append(f"{path} {found.st_size} {found.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(stamps).encode()).hexdigest()
    return Path(constants.config.get_config_value("ANSIBLE_HOME")) / "gaudi-serving-modules" / digest[:32]


def _is_own(folder: Path) -> bool:
    """Whether only this user can write there: Ansible unpickles these files here, and runs their content on nodes."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _keep(process: int, packages: Path, store: Path) -> None:
    """Copy new packages out. process: the one that called reuse(); those that it forked keep nothing."""
    # A file that was changed during the run may be in a package or not.
    if os.getpid() != process or not packages.is_dir() or _store() != store:
        return
    for folder in (store.parent, store):
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_own(folder):
            return
    # A module of a site's own role, which may be another one in each project, is none of these.
    ours = {f"ansible.legacy.{path.stem}" for path in (ROOT / "library").glob("*.py")}
    for file in packages.glob("ansible.*-none"):
        name = file.name.split("-")[0]
        if not file.is_symlink() and (name in ours or name.startswith("ansible.modules.")):
            part = store / f"part.{process}"
            shutil.copyfile(file, part)
            part.replace(store / file.name)
    os.utime(store)
    for folder in sorted(store.parent.iterdir(), key=lambda each: each.stat().st_mtime)[:-_KEPT]:
        # Another run may remove it as well.
        shutil.rmtree(folder, ignore_errors=True)
