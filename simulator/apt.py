"""What a simulated node must know to reach Debian's packages the way this machine does.

The node is Debian 12 or 13 wherever the simulator runs. On a Debian machine its mirrors are the machine's
own; on any machine its transport settings (proxies, retries, clock checks) are. They are read when an
image is built and go into the image, never into the repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator import context, host
from simulator.context import ContextFile

# The systems that nodes have, and the suite of each.
SUITES = {"debian12": "bookworm", "debian13": "trixie"}
SYSTEM = "debian12"
SUITE = SUITES[SYSTEM]
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_DEFAULT_MIRROR = "http://deb.debian.org/debian"
_DEFAULT_SECURITY = "http://deb.debian.org/debian-security"

# How to reach a mirror; everything else in a machine's apt configuration is about that machine.
_TRANSPORT = re.compile(
    r"Acquire::((http|https)::(Proxy(::[^ ]*)?|Timeout|Pipeline-Depth|No-Cache)"
    r'|Check-Valid-Until|Check-Date|Retries|ForceIPv[46]) "[^"]+";'
)
_ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)")
_SIGNED_BY = re.compile(r"signed-by=(\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class Mirrors:
    """Where Debian's packages and its security updates come from."""

    main: str = _DEFAULT_MIRROR
    security: str = _DEFAULT_SECURITY


def parse_sources(text: str) -> list[tuple[str, str]]:
    """Give (URI, suite) of every source of Debian's binary packages in an apt sources file of either format.

    Others call their suites bookworm, too (Docker's, HashiCorp's). Debian's have a component main, and where they
    name a key it is the archive's: the node accepts no other.
    """
    found: list[tuple[str, str]] = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in stanza.splitlines() if line.strip() and line.lstrip()[0] != "#"]
        for line in lines:
            match = _ONE_LINE.fullmatch(line)
            if match and _is_debians(match["components"].split(), _SIGNED_BY.findall(match["options"] or "") or None):
                found.append((match["uri"], match["suite"]))
        fields = {
            name.strip().lower(): value.split()
            for name, separator, value in (line.partition(":") for line in lines)
            if separator
        }
        enabled = "deb" in fields.get("types", []) and fields.get("enabled", ["yes"])[0].lower() != "no"
        if enabled and _is_debians(fields.get("components", []), fields.get("signed-by")):
            found += [(uri, suite) for uri in fields.get("uris", []) for suite in fields.get("suites", [])]
    return found


def _is_debians(components: list[str], keys: list[str] | None) -> bool:
    """Tell whether a source can be Debian's. ``keys`` are files; none when the key is in the sources file itself."""
    return "main" in components and (keys is None or any("debian-archive" in key for key in keys))


def choose_mirrors(sources: Iterable[tuple[str, str]], suite: str = SUITE) -> Mirrors:
    """Take the first http(s) mirror of each suite from the machine's sources, else Debian's own.

    A machine with another of the systems has no source of this suite; a mirror of its own suite has this one as well.
    """
    usable: dict[str, str] = {}
    for uri, of_suite in sources:
        if uri.startswith(("http://", "https://")):
            usable.setdefault(of_suite.rstrip("/"), uri.rstrip("/"))
    suites = [suite, *(other for other in SUITES.values() if other != suite)]
    return Mirrors(
        next((usable[name] for name in suites if name in usable), _DEFAULT_MIRROR),
        next((usable[f"{name}-security"] for name in suites if f"{name}-security" in usable), _DEFAULT_SECURITY),
    )


def sources_list(mirrors: Mirrors, suite: str = SUITE) -> str:
    """Write the node's sources file."""
    stanzas = [
        (mirrors.main, f"{suite} {suite}-updates"),
        (mirrors.security, f"{suite}-security"),
    ]
    return "\n".join(
        f"Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: main\nSigned-By: {KEYRING}\n"
        for uri, suites in stanzas
    )


def transport_options(dump: str, environment: Mapping[str, str]) -> str:
    """Write the node's apt configuration from ``apt-config dump`` and the proxies in the environment.

    apt prefers its own setting to the environment's, so the environment only fills what is missing.
    """
    lines = [line for line in dump.splitlines() if _TRANSPORT.fullmatch(line)]
    for scheme in ("http", "https"):
        option = f"Acquire::{scheme}::Proxy"
        proxy = environment.get(f"{scheme}_proxy")
        if proxy and not any(line.startswith(f'{option} "') for line in lines):
            lines.append(f'{option} "{proxy}";')
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Configuration:
    """This machine's way to Debian's packages."""

    mirrors: Mirrors
    options: str
    suite: str = SUITE

    @property
    def proxy(self) -> str | None:
        """The proxy for http mirrors, for tools that are not apt."""
        match = re.search(r'^Acquire::http::Proxy "([^"]+)";$', self.options, re.MULTILINE)
        return match[1] if match else None

    @property
    def files(self) -> dict[str, ContextFile]:
        """What goes into an image so that apt in it goes this way."""
        return {
            "etc/apt/sources.list.d/debian.sources": context.text(sources_list(self.mirrors, self.suite)),
            "etc/apt/apt.conf.d/80simulator": context.text(self.options),
        }


def read(suite: str = SUITE) -> Configuration:
    """Read this machine's apt configuration, for a node of a suite."""
    sources = [
        entry
        for path in (
            Path("/etc/apt/sources.list"),
            *sorted(Path("/etc/apt/sources.list.d").glob("*.list")),
            *sorted(Path("/etc/apt/sources.list.d").glob("*.sources")),
        )
        if path.exists()
        for entry in parse_sources(path.read_text())
    ]
    options = transport_options(host.run(["apt-config", "dump"]), os.environ)
    return Configuration(choose_mirrors(sources, suite), options, suite)
