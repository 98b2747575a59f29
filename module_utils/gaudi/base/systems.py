"""Operating systems: which are supported, and what /etc/os-release says."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What the roles can set up: ID and VERSION_ID of /etc/os-release, and the name for people.
SYSTEMS = (
    ("debian", "12", "Debian"),
    ("debian", "13", "Debian"),
    ("ubuntu", "22.04", "Ubuntu"),
    ("ubuntu", "24.04", "Ubuntu"),
    ("rhel", "9", "Red Hat Enterprise Linux"),
)
# ID of a rebuild, its name for people, and the ID of the system that it rebuilds with the same version numbers. Neither
# Oracle Linux, which boots a kernel of its own, nor CentOS Stream, which is ahead of RHEL and has no minor number.
REBUILDS = {"almalinux": ("AlmaLinux", "rhel"), "rocky": ("Rocky Linux", "rhel")}
_OS_LINE = re.compile(r"^([A-Z_]+)=(.*)$")


def parse_os_release(text: str) -> dict[str, str]:
    """Read the lines of /etc/os-release; quotes are taken off, other lines are passed over."""
    values = {}
    for line in text.splitlines():
        match = _OS_LINE.match(line.strip())
        if match:
            values[match.group(1)] = match.group(2).strip().strip("\"'")
    return values


def is_rebuild(os_release: Mapping[str, str]) -> bool:
    """Whether a system is a rebuild of one that the vendor may name, and is not named itself."""
    return os_release.get("ID", "") in REBUILDS


def rebuilt(os_release: Mapping[str, str]) -> str:
    """Return the ID of a system, of a rebuild that of its origin."""
    seen = os_release.get("ID", "")
    return REBUILDS[seen][1] if seen in REBUILDS else seen


def vendor_system(os_release: Mapping[str, str]) -> str:
    """Return a system's name in the catalogue's spelling: ubuntu22.04, rhel9.4; a rebuild has its origin's."""
    return rebuilt(os_release) + os_release.get("VERSION_ID", "")


def system_title(os_release: Mapping[str, str]) -> str:
    """Return a system's name for people; a rebuild's with the system that it counts as."""
    title = os_release.get("PRETTY_NAME", "")
    return f"{title}, which counts as {vendor_system(os_release)}" if is_rebuild(os_release) else title
