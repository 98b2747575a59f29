"""Files that keep apt on the release's driver: its source, its priority, and exclusion from unattended upgrades."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from .facts import ReleasePackages

# Above 500, which any repository has, so that nothing newer is taken; below 1000, so that apt never moves a package
# back by itself (apt_preferences(5)).
PRIORITY = 990
# With a priority of 1000 or more apt also installs an older version.
PRIORITY_OF_REPLACING = 1001
_KERNEL_PACKAGES = re.compile(r"linux-(image|headers|modules|modules-extra|generic|virtual|lowlatency)\b")
KERNEL_PATTERNS = ("linux-image*", "linux-headers*", "linux-modules*", "linux-generic*")
"""What dpkg-query is asked for; kernel_packages() keeps those that bring a kernel."""


def kernel_packages(installed: Mapping[str, str]) -> dict[str, str]:
    """Return those of some packages that contain a kernel or its headers, with their versions."""
    return {name: version for name, version in sorted(installed.items()) if _KERNEL_PACKAGES.match(name)}


def preferences(wanted: ReleasePackages, kernels: Mapping[str, str], *, replace: bool) -> str:
    """Return a file for /etc/apt/preferences.d.

    kernels: packages to keep at their version, by name. replace: allow a downgrade to this driver.
    """
    stanzas = [_stanza(" ".join(wanted.packages), wanted.version, PRIORITY_OF_REPLACING if replace else PRIORITY)]
    stanzas += [_stanza(name, version, PRIORITY) for name, version in kernels.items()]
    return "\n".join(["# Written by the role gaudi_driver: the driver of the release, and nothing newer.", *stanzas])


def _stanza(names: str, version: str, priority: int) -> str:
    return f"Package: {names}\nPin: version {version}\nPin-Priority: {priority}\n"


def unattended(wanted: ReleasePackages, kernels: Iterable[str]) -> str:
    """Return a file for /etc/apt/apt.conf.d. The package names in it are regular expressions."""
    names = [*wanted.packages, *kernels]
    lines = [f'  "^{name}$";' for name in names]
    return "\n".join(
        [
            "// Written by the role gaudi_driver: what is not upgraded while nobody looks.",
            "Unattended-Upgrade::Package-Blacklist {",
            *lines,
            "};",
            "",
        ]
    )
