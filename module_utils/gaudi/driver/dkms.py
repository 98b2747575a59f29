"""Parse ``dkms status``: for which kernels the driver's modules are built and installed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

# The name under which habanalabs-dkms registers its modules.
MODULE = "habanalabs"
# State of modules that are in a kernel's tree, where modprobe finds them.
INSTALLED = "installed"
# State of modules that DKMS calls installed while their files are empty; not a word of DKMS's own.
EMPTY = "empty"

# dkms 3: habanalabs/1.24.0-1007, 6.8.0-110-generic, x86_64: installed. dkms 2 has ", " in the place of the slash.
_LINE = re.compile(
    r"(?P<module>[A-Za-z0-9_-]+)(?:/|, )(?P<version>[^,:\s]+)"
    r"(?:, (?P<kernel>[^,:\s]+), (?P<architecture>[A-Za-z0-9_]+))?: (?P<state>[a-z]+)\b"
)


@dataclass(frozen=True)
class DkmsBuild:
    """One line of ``dkms status``; ``kernel`` is empty for a module that was added but not built."""

    version: str
    kernel: str
    state: str


def parse(status: str) -> tuple[DkmsBuild, ...]:
    """Parse the driver's lines of ``dkms status``, of dkms 2 and 3; all other lines are ignored."""
    found = []
    for line in status.splitlines():
        match = _LINE.match(line.strip())
        if match and match["module"] == MODULE:
            found.append(DkmsBuild(match["version"], match["kernel"] or "", match["state"]))
    return tuple(found)


def with_files(status: Iterable[DkmsBuild], empty: Mapping[str, Collection[str]]) -> tuple[DkmsBuild, ...]:
    """Return the status as the modules' files have it. ``empty``: by kernel, files of 0 bytes.

    ``dkms install`` after ``dkms remove`` copied files that were never built, and called them installed; make.log
    was that of an earlier build (JChen-318/gaudi2-single-card-driver, 1.24.1).
    """
    return tuple(
        replace(built, state=EMPTY) if built.state == INSTALLED and empty.get(built.kernel) else built
        for built in status
    )


def lost_at_reboot(status: Sequence[DkmsBuild], running: str, coming: str, place: str = "") -> str:
    """Say why the node would have no driver after a reboot; "" if it would, or if DKMS did not build the current one.

    running, coming: the running kernel, and the one that boots next. place: what chooses it once grub.cfg is written
    again, if that is another one than now.
    """
    if not _made_for(status, running) or installed(status, coming):
        return ""
    when = f"which {place} chooses once grub.cfg is written again" if place else "which boots next"
    lacks = (
        "has habanalabs modules of 0 bytes, though dkms status calls them installed"
        if _made_for(status, coming)
        else "has no habanalabs module"
    )
    return (
        f"Kernel {coming}, {when}, {lacks}: a reboot would leave the node without its "
        "driver. playbooks/driver.yml builds it for that kernel."
    )


def _made_for(status: Iterable[DkmsBuild], kernel: str) -> bool:
    """Whether DKMS calls modules installed for a kernel, with whatever files."""
    return any(built.kernel == kernel and built.state in (INSTALLED, EMPTY) for built in status)


def installed(status: Iterable[DkmsBuild], kernel: str) -> list[str]:
    """Return the versions installed for a kernel; at most one, unless somebody forced a second."""
    return [built.version for built in status if (built.kernel, built.state) == (kernel, INSTALLED)]


def registered(status: Iterable[DkmsBuild], version: str) -> bool:
    """Whether DKMS knows of a version, in whatever state."""
    return any(built.version == version for built in status)


def left_over(status: Iterable[DkmsBuild], version: str) -> bool:
    """Whether a version is registered but installed for no kernel, as an interrupted install leaves it.

    DKMS then refuses to add it again ("DKMS tree already contains").
    """
    states = [built.state for built in status if built.version == version]
    return bool(states) and INSTALLED not in states
