"""The machine the simulator runs on: commands, root, packages, locks."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from simulator.settings import CACHE, SimulatorError

# Daemons and debootstrap live in directories that are not on every user's PATH.
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
_INSTALLED = CACHE / "installed-packages.txt"
_LOCK_SECONDS = 300
# The machine's, not the checkout's: checkouts share the engine, its images and volumes, and the names of scopes.
LOCKS = Path("/var/lock")


def environment(**extra: str) -> dict[str, str]:
    """Give this process's environment with the system's directories on PATH."""
    return {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}", **extra}


def find(program: str) -> str | None:
    """Say where a program is, looking in the system's directories too."""
    return shutil.which(program, path=environment()["PATH"])


def as_root(command: Sequence[str]) -> list[str]:
    """Prefix a command with sudo unless this process is root already."""
    if os.geteuid() == 0:
        return list(command)
    if find("sudo") is None:
        raise SimulatorError(f"{command[0]} needs root. Run this command as root, or install sudo.")
    return ["sudo", "--", *command]


def run(command: Sequence[str], *, log: Path | None = None, **extra: str) -> str:
    """Run a command to its end and give what it printed; on failure raise with its last lines."""
    result = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(LC_ALL="C.UTF-8", **extra),
        text=True,
        errors="replace",
    )
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(result.stdout)
    if result.returncode:
        raise SimulatorError(f"{' '.join(command)} ended with status {result.returncode}:\n{last_lines(result.stdout)}")
    return result.stdout


def last_lines(text: str, count: int = 12) -> str:
    """Give the end of a long output, where commands say what went wrong."""
    return "\n".join(text.strip().splitlines()[-count:])


def systemd_runs() -> bool:
    """Tell whether systemd is this machine's service manager (sd_booted(3))."""
    return Path("/run/systemd/system").is_dir()


def install_packages(programs: dict[str, str], say: Callable[[str], None]) -> None:
    """Install, with apt, the package of every file or program that is missing, and remember which they were.

    ``programs`` maps a program's name, or a file's absolute path, to the package it comes in.
    """
    missing = sorted(
        {
            package
            for wanted, package in programs.items()
            if not (Path(wanted).exists() if wanted.startswith("/") else find(wanted))
        }
    )
    if missing:
        if find("apt-get") is None:
            raise SimulatorError(
                f"The simulator needs {', '.join(missing)}, and this machine has no apt-get to install "
                "it with. The simulator runs on Debian 12 and Ubuntu 24.04."
            )
        say(f"Install {', '.join(missing)}")
        noninteractive = ["env", "DEBIAN_FRONTEND=noninteractive"]
        run(as_root([*noninteractive, "apt-get", "update"]))
        # A fresh machine upgrades itself in the background, and holds dpkg's lock while it does.
        patient = ["-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS}"]
        run(as_root([*noninteractive, "apt-get", *patient, "install", "-y", "--no-install-recommends", *missing]))
        _INSTALLED.parent.mkdir(parents=True, exist_ok=True)
        with _INSTALLED.open("a") as record:
            record.writelines(f"{package}\n" for package in missing)


def installed_packages() -> list[str]:
    """Give the packages the simulator installed on this machine."""
    return _INSTALLED.read_text().split() if _INSTALLED.exists() else []


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Let one process of this machine at a time do this: build an image, start the engine."""
    with _open(name) as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield


@contextmanager
def in_use() -> Iterator[None]:
    """Keep what all checkouts share: meanwhile no clean removes it. Many may use it at once."""
    with _open("in-use") as guard:
        fcntl.flock(guard, fcntl.LOCK_SH)
        yield


@contextmanager
def alone() -> Iterator[bool]:
    """Tell whether nobody uses what all checkouts share; if so, nobody begins to until this ends."""
    with _open("in-use") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def _open(name: str) -> Iterator[int]:
    """Open the file of a lock, which another user may have made."""
    path = LOCKS / f"gaudi-serving-simulator-{name}.lock"
    try:
        # Where everybody may write, the kernel lets nobody "create" a file of another user (fs.protected_regular).
        guard = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        guard = os.open(path, os.O_RDONLY | os.O_CREAT)
        os.fchmod(guard, 0o644)
    try:
        yield guard
    finally:
        os.close(guard)
