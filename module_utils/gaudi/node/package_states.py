"""Which packages are installed, from the package database of the system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..engine import packages as engine_packages

OS_RELEASE = Path("/etc/os-release")
# States of a package whose installation dpkg has begun and not completed, and of one that is not on the node.
HALF = ("half-installed", "unpacked")
GONE = ("not-installed", "config-files")


def family() -> str:
    """Return the family of the node's system; "" for one that is not known here."""
    release = OS_RELEASE.read_text(encoding="utf-8") if OS_RELEASE.exists() else ""
    found: str = engine_packages.family_of(release)
    return found


def states(module: AnsibleModule, family: str, names: Sequence[str]) -> dict[str, str]:
    """Return the states of some packages by name, as dpkg(1) calls them; one that was never installed is left out."""
    query = engine_packages.query(family, names) if names else []
    # Status 1 if it does not know one of them; the others are still listed.
    listed = module.run_command(query)[1] if query else ""
    found: dict[str, str] = engine_packages.states(listed)
    return found


def missing(module: AnsibleModule, family: str, packages: Sequence[str]) -> list[str]:
    """Return those of some packages that are not installed, from the system's package database."""
    names = [name.partition("=")[0] for name in packages]
    found = states(module, family, names)
    return [package for package, name in zip(packages, names) if found.get(name) != "installed"]
