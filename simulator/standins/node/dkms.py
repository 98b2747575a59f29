#!/usr/bin/python3
"""Stand in for dkms: it registers modules and compiles nothing.

Known: ``status``, ``add MODULE/VERSION``, ``install MODULE/VERSION -k KERNEL`` and ``remove MODULE/VERSION --all``,
with the words of dkms 3. A module "builds" where a package with the kernel's headers is installed, not on 6.17, and not
where ``/etc/gaudi-simulator/does-not-build`` names it, a MODULE/VERSION a line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

STATE = Path("/var/lib/gaudi-simulator/dkms.json")
PACKAGES = Path("/var/lib/dpkg/info")
BROKEN = Path("/etc/gaudi-simulator/does-not-build")
# As release 1.24.0 was seen to fail.
DOES_NOT_BUILD_ON = "6.17."


class Refused(Exception):
    """What dkms says on stderr, and its status."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


def read() -> dict[str, list[str]]:
    """Kernels for which a module is installed, by MODULE/VERSION."""
    registered: dict[str, list[str]] = json.loads(STATE.read_text(encoding="utf-8")) if STATE.exists() else {}
    return registered


def status(registered: dict[str, list[str]]) -> str:
    """What ``dkms status`` prints."""
    lines = []
    for module, kernels in registered.items():
        lines += [f"{module}, {kernel}, x86_64: installed" for kernel in kernels] or [f"{module}: added"]
    return "".join(f"{line}\n" for line in lines)


def add(registered: dict[str, list[str]], module: str) -> None:
    """Register a module."""
    if module in registered:
        raise Refused(f"Error! DKMS tree already contains: {module.replace('/', '-')}", 3)
    registered[module] = []


def install(registered: dict[str, list[str]], module: str, kernel: str) -> None:
    """Install a module for a kernel."""
    if module not in registered:
        raise Refused(f"Error! Could not find module source directory.\n{module} is not in the DKMS tree.", 2)
    if not (PACKAGES / f"linux-headers-{kernel}.list").exists():
        raise Refused(
            f"Error! Your kernel headers for kernel {kernel} cannot be found at /lib/modules/{kernel}/build or "
            f"/lib/modules/{kernel}/source.",
            1,
        )
    if kernel.startswith(DOES_NOT_BUILD_ON) or (BROKEN.exists() and module in BROKEN.read_text().split()):
        log = f"/var/lib/dkms/{module}/build/make.log"
        raise Refused(
            f"Error! Bad return status for module build on kernel: {kernel} (x86_64)\nConsult {log} for more "
            "information.",
            10,
        )
    for other in registered.values():
        if kernel in other:
            other.remove(kernel)
    registered[module].append(kernel)


def remove(registered: dict[str, list[str]], module: str) -> None:
    """Forget a module."""
    if module not in registered:
        combo = module.replace("/", "-")
        raise Refused(f"Error! The module/version combo: {combo} is not located in the DKMS tree.", 3)
    del registered[module]


def main() -> int:
    """Do what the command line says."""
    registered = read()
    try:
        match sys.argv[1:]:
            case ["status"]:
                print(status(registered), end="")
                return 0  # Who only asks leaves nothing behind.
            case ["add", module]:
                add(registered, module)
            case ["install", module, "-k", kernel]:
                install(registered, module, kernel)
            case ["remove", module, "--all"]:
                remove(registered, module)
            case _:
                raise Refused("This stand-in of dkms knows status, add, install and remove.", 1)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return refused.status
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_text(json.dumps(registered), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
