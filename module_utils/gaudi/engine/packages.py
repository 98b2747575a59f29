"""Which packages bring a container engine, by the family of the system."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

PACKAGES = {
    "Debian": ["docker.io"],
    # RHEL 9 ships no engine: Docker's own packages are used there.
    "RedHat": ["docker-ce", "docker-ce-cli", "containerd.io"],
}
"""What each family of systems calls the engine."""
BESIDE = ("nftables",)
"""What instances need beside the engine, by the same name everywhere."""

FAMILIES = {"debian": "Debian", "ubuntu": "Debian", "rhel": "RedHat", "fedora": "RedHat", "centos": "RedHat"}
"""Names in os-release and the family they belong to, as Ansible's facts call it."""


def family_of(os_release: str) -> str:
    """The family of a system from the text of its os-release (5); empty for one that nobody knows."""
    values = dict(re.findall(r"^(ID|ID_LIKE)=[\"']?([^\"'\n]*)", os_release, re.MULTILINE))
    names = [values.get("ID", ""), *values.get("ID_LIKE", "").split()]
    return next((FAMILIES[name] for name in names if name in FAMILIES), "")


def client_of(os_release: str) -> str:
    """Return the package with the client of docker.io; "" where docker.io has it itself, as before Debian 13."""
    values = dict(re.findall(r"^(ID|VERSION_ID)=[\"']?([^\"'\n]*)", os_release, re.MULTILINE))
    version = values.get("VERSION_ID", "").partition(".")[0]
    return "docker-cli" if values.get("ID") == "debian" and version.isdigit() and int(version) >= 13 else ""


def engine_packages(
    family: str, apparmor: bool, requested: Sequence[str] = (), others: Collection[str] = (), client: str = ""
) -> list[str]:
    """Return the engine's packages (or those that a site requests), and the packages that instances need besides.

    apparmor: whether the kernel has AppArmor enabled. Then no container starts without its parser, which docker.io only
    recommends. An instance uses nftables to close its processes' own ports to others. others: packages that are left
    out, since others installed the node's engine. client: the package with the client of docker.io (``client_of``),
    which docker.io only recommends.
    """
    engine = requested or [*PACKAGES.get(family, []), *(["apparmor"] if apparmor and family == "Debian" else [])]
    with_client = [client] if client and any(name.partition("=")[0] == "docker.io" for name in engine) else []
    found = [*engine, *[name for name in (*with_client, *BESIDE) if engine and name not in engine]]
    return [name for name in found if name.partition("=")[0] not in others]


def of_fetches(family: str, python: str, kinds: Collection[str], *, alone: bool) -> list[str]:
    """Return the packages that fetching weights needs. python: the downloader's. kinds: of the hubs.

    alone: whether no other node of the run may give the weights.
    """
    found = ["rsync"] if family and not alone else []
    # Debian and Ubuntu keep what makes virtual environments in a package of its own.
    found += ["python3-venv"] if family == "Debian" and python == "/usr/bin/python3" else []
    return [*found, "git"] if family and "git" in kinds else found


# Since 23 the client builds with a plugin of its own; before, BuildKit is in the engine (DOCKER_BUILDKIT=1).
_FIRST_WITH_PLUGIN = 23


def needs_builder(client: str) -> bool:
    """Whether a docker client builds with the buildx plugin; client: a text whose first number is its version."""
    version = re.search(r"\d+", client)
    return version is not None and int(version[0]) >= _FIRST_WITH_PLUGIN


_BUILDERS = {"docker-ce": "docker-buildx-plugin", "moby-engine": "moby-buildx"}


def builder_package(packages: Sequence[str], client: str, plugin: bool) -> str:
    """Return the package with the builder that builds with secrets need; "" if none has to be installed.

    packages: the engine's, which tell Docker CE from a distribution's own. client: what ``docker --version`` prints, ""
    without a client. plugin: whether the client already has its builder.
    """
    if plugin or not needs_builder(client):
        return ""
    named = (package for name in packages for engine, package in _BUILDERS.items() if name.startswith(engine))
    return next(named, "docker-buildx")


def printed_version(printed: str) -> str:
    """Return the version that a program of the engine prints, as ``Docker version 24.0.7, build x``."""
    match = re.search(r"version v?([0-9][^\s,]*)", printed)
    return match[1] if match else ""


def query(family: str, names: Sequence[str]) -> list[str]:
    """Return the command that lists some packages, for states() and versions() to read; [] for an unknown family.

    It ends with a status other than 0 if one of them is not installed.
    """
    if family == "Debian":
        return ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status} ${Version}\\n", *names]
    if family == "RedHat":
        return ["rpm", "--query", "--queryformat=%{NAME} installed %{VERSION}-%{RELEASE}\\n", *names]
    return []


def states(listed: str) -> dict[str, str]:
    """States of packages by name, as dpkg(1) calls them, from lines of ``NAME STATUS VERSION``.

    A package that was never completely installed has no version. A package of several architectures has the state of
    the last one.
    """
    lines = [line.split() for line in listed.splitlines()]
    return {line[0]: line[1] for line in lines if len(line) in (2, 3)}


def versions(listed: str) -> dict[str, str]:
    """Versions of installed packages by name, from lines of ``NAME STATUS VERSION``; other lines are passed over."""
    lines = [line.split() for line in listed.splitlines()]
    return {line[0]: line[2] for line in lines if len(line) == 3 and line[1] == "installed"}
