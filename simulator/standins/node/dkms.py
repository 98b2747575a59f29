#!/usr/bin/python3
"""Stand in for dkms: it registers modules and compiles nothing.

Known: ``status``, ``add MODULE/VERSION``, ``build`` and ``install MODULE/VERSION -k KERNEL [--force]``, and ``remove
MODULE/VERSION --all``, with the words of dkms 3.0. Module files are text below /lib/modules/KERNEL/updates/dkms.

A module "builds" where a package with the kernel's headers is installed, not on 6.17, and not where
``/etc/gaudi-simulator/does-not-build`` names it, a MODULE/VERSION a line with a cause behind it (LOGS). A build that
fails ends with 10 and leaves make.log, to which each attempt is added. ``install`` after ``remove`` without a build in
between installs files of 0 bytes, as an owner of an HL-225 saw with 1.24.1 (JChen-318/gaudi2-single-card-driver);
``build --force`` cures that, as it did there.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path

STATE = Path("/var/lib/gaudi-simulator/dkms.json")
# Modules that were removed, and not built since.
REMOVED = Path("/var/lib/gaudi-simulator/dkms-removed.json")
PACKAGES = Path("/var/lib/dpkg/info")
TREE = Path("/var/lib/dkms")
MODULES = Path("/lib/modules")
BROKEN = Path("/etc/gaudi-simulator/does-not-build")
# As release 1.24.0 was seen to fail, with -Werror.
DOES_NOT_BUILD_ON = "6.17."
OVERRIDE = "You may override by specifying --force."
ABOUT = "Simulated: there is no such module\n"
NAMES = ("habanalabs_ib", "habanalabs_en", "habanalabs_cn", "habanalabs", "habanalabs_compat")
# What make.log has by cause. The line of -Werror is recorded; the others are constructed from the vendor's script, as
# an owner of eight Gaudi 2 on Debian 12 published it, and from the messages of make and the shell.
LOGS = {
    "layout": "grep: /lib/modules/{kernel}/build//usr/src/linux-headers-{kernel}-common//include/linux/export.h: No "
    "such file or directory\ngenerate_flags.sh: unexpected arguments in struct bus_type::match: ''\n",
    "werror": "drivers/accel/habanalabs/common/device.c:2201:9: error: implicit declaration of function 'simulated'\n"
    "cc1: all warnings being treated as errors\n",
    "compiler": "/bin/sh: 1: gcc: not found\n",
    "headers": "make[1]: *** /lib/modules/{kernel}/build: No such file or directory.  Stop.\n",
    "": "simulated: nobody knows why\n",
}


class DkmsError(Exception):
    """What dkms says on stderr, and its status."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


def read() -> dict[str, list[str]]:
    """Kernels for which a module is installed, by MODULE/VERSION."""
    registered: dict[str, list[str]] = json.loads(STATE.read_text(encoding="utf-8")) if STATE.exists() else {}
    return registered


def removed() -> list[str]:
    """Modules that were removed, and not built since."""
    names: list[str] = json.loads(REMOVED.read_text(encoding="utf-8")) if REMOVED.exists() else []
    return names


def note_removed(names: list[str]) -> None:
    """Write them down."""
    REMOVED.parent.mkdir(parents=True, exist_ok=True)
    REMOVED.write_text(json.dumps(names), encoding="utf-8")


def files_of(module: str) -> list[str]:
    """The files that a driver consists of; habanalabs_compat came with 1.21."""
    release = tuple(int(part) for part in module.partition("/")[2].split("-")[0].split("."))
    return [f"{name}.ko" for name in NAMES if release >= (1, 21, 0) or name != "habanalabs_compat"]


def built(module: str, kernel: str) -> Path:
    """Where the files of a build are kept."""
    return TREE / module / kernel / "x86_64" / "module"


def status(registered: dict[str, list[str]]) -> str:
    """What ``dkms status`` prints."""
    lines = []
    for module, kernels in registered.items():
        others = sorted(path.parent.parent.name for path in (TREE / module).glob("*/x86_64/module"))
        lines += [f"{module}, {kernel}, x86_64: installed" for kernel in kernels]
        lines += [f"{module}, {kernel}, x86_64: built" for kernel in others if kernel not in kernels]
        lines += [] if kernels or others else [f"{module}: added"]
    return "".join(f"{line}\n" for line in lines)


def add(registered: dict[str, list[str]], module: str) -> None:
    """Register a module."""
    if module in registered:
        raise DkmsError(f"Error! DKMS tree already contains: {module.replace('/', '-')}", 3)
    registered[module] = []


def check(registered: dict[str, list[str]], module: str) -> None:
    """Refuse a module that is not registered."""
    if module not in registered:
        raise DkmsError(f"Error! Could not find module source directory.\n{module} is not in the DKMS tree.", 2)


def why_not(module: str, kernel: str) -> str | None:
    """Return why a module does not build for a kernel, as one of LOGS; None where it does."""
    if kernel.startswith(DOES_NOT_BUILD_ON):
        return "werror"
    described = [line.split() for line in BROKEN.read_text(encoding="utf-8").splitlines()] if BROKEN.exists() else []
    return next((words[1] if len(words) > 1 else "" for words in described if words[:1] == [module]), None)


def build(registered: dict[str, list[str]], module: str, kernel: str, *, force: bool = False) -> None:
    """Build a module for a kernel, unless that was done."""
    check(registered, module)
    place = built(module, kernel)
    if place.exists() and not force:
        print(f"Module {module} already built for kernel {kernel} (x86_64), skip. {OVERRIDE}")
        return
    if not (PACKAGES / f"linux-headers-{kernel}.list").exists():
        raise DkmsError(
            f"Error! Your kernel headers for kernel {kernel} cannot be found at /lib/modules/{kernel}/build or "
            f"/lib/modules/{kernel}/source.",
            1,
        )
    print("\nBuilding module:\nCleaning build area...")
    shutil.rmtree(TREE / module / kernel, ignore_errors=True)
    head = f"DKMS make.log for {module.replace('/', '-')} for kernel {kernel} (x86_64)\n"
    cause = why_not(module, kernel)
    if cause is not None:
        log = TREE / module / "build" / "make.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as stream:
            stream.write(head + LOGS[cause].format(kernel=kernel))
        raise DkmsError(
            f"Error! Bad return status for module build on kernel: {kernel} (x86_64)\n"
            f"Consult /var/lib/dkms/{module}/build/make.log for more information.",
            10,
        )
    place.mkdir(parents=True)
    for name in files_of(module):
        (place / name).write_text(ABOUT, encoding="utf-8")
    (place.parent / "log").mkdir()
    (place.parent / "log" / "make.log").write_text(f"{head}{ABOUT}", encoding="utf-8")
    note_removed([name for name in removed() if name != module])
    print("Cleaning build area...")


def install(registered: dict[str, list[str]], module: str, kernel: str, *, force: bool = False) -> None:
    """Install a module for a kernel."""
    check(registered, module)
    if kernel in registered[module] and not force:
        print(f"Module {module} already installed on kernel {kernel} (x86_64), skip. {OVERRIDE}")
        return
    place = built(module, kernel)
    # Taken for built, without a file.
    empty = module in removed() and not place.exists()
    if not empty:
        build(registered, module, kernel)
    for other in registered.values():
        if kernel in other:
            other.remove(kernel)
    clear(kernel)
    target = MODULES / kernel / "updates" / "dkms"
    target.mkdir(parents=True, exist_ok=True)
    for name in files_of(module):
        (target / name).write_text("" if empty else ABOUT, encoding="utf-8")
    registered[module].append(kernel)


def clear(kernel: str) -> None:
    """Take the driver's files from a kernel's modules, and folders that then are empty."""
    target = MODULES / kernel / "updates" / "dkms"
    for path in target.glob("habanalabs*.ko"):
        path.unlink()
    with contextlib.suppress(OSError):
        for folder in (target, target.parent, target.parent.parent):
            folder.rmdir()


def remove(registered: dict[str, list[str]], module: str) -> None:
    """Forget a module."""
    if module not in registered:
        combo = module.replace("/", "-")
        raise DkmsError(f"Error! The module/version combo: {combo} is not located in the DKMS tree.", 3)
    for kernel in registered[module]:
        clear(kernel)
    del registered[module]
    shutil.rmtree(TREE / module, ignore_errors=True)
    with contextlib.suppress(OSError):
        for folder in (TREE / module.partition("/")[0], TREE):
            folder.rmdir()
    note_removed([*(name for name in removed() if name != module), module])


def act(registered: dict[str, list[str]], arguments: list[str]) -> None:
    """Do what a command line says."""
    force = "--force" in arguments
    match [word for word in arguments if word != "--force"]:
        case ["add", module]:
            add(registered, module)
        case ["build", module, "-k", kernel]:
            build(registered, module, kernel, force=force)
        case ["install", module, "-k", kernel]:
            install(registered, module, kernel, force=force)
        case ["remove", module, "--all"]:
            remove(registered, module)
        case _:
            raise DkmsError("This stand-in of dkms knows status, add, build, install and remove.", 1)


def main() -> int:
    """Do what the command line says."""
    registered = read()
    if sys.argv[1:] == ["status"]:
        print(status(registered), end="")
        return 0  # Who only asks leaves nothing behind.
    try:
        act(registered, sys.argv[1:])
    except DkmsError as refused:
        print(refused, file=sys.stderr)
        return refused.status
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_text(json.dumps(registered), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
