"""The route to a server that apt's own configuration describes: its proxy, and the certificates that it trusts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

_LINE = re.compile(r'^(?P<name>\S+) "(?P<value>.*)";$')
_DIRECT = "DIRECT"


@dataclass(frozen=True)
class Route:
    """``proxy``: its address; "" for a direct connection; None if apt has no setting, so that the environment counts.

    ``detector``: a program that prints the proxy of an address, if no setting for the host comes first. ``ca``: a file
    of certificates; "" for those of the system.
    """

    proxy: str | None = None
    detector: str = ""
    ca: str = ""


@dataclass(frozen=True)
class AptProxy:
    """A proxy in effect, and what sets it.

    ``named``: how a message names the setting, which is an option of the site, or a key of apt's with its file.
    ``ours``: whether it is an option of the site.
    """

    address: str
    named: str
    ours: bool = False

    @property
    def where(self) -> str:
        """Return the host and port, without an account."""
        return self.address.rpartition("://")[2].rpartition("@")[2].partition("/")[0]

    def denied(self) -> str:
        """Return what an answer 407 of it means, and what to do."""
        if "@" not in self.address:
            return f"The proxy {self.where} wants an account (407), and {self.named} has none."
        return f"The proxy {self.where} rejects its account (407). Check the account in {self.named}."


def proxy_setting(settings: Mapping[str, str], url: str) -> tuple[str, str]:
    """Return the key and the value of the proxy for an address, in the order of route(); ("", "") without one."""
    split = urlsplit(url)
    host = (split.hostname or "").lower()
    kinds = ("https", "http") if split.scheme.lower() == "https" else ("http",)
    keys = [f"Acquire::{kind}::Proxy::{host}" for kind in kinds]
    keys += [f"Acquire::{kind}::{name}" for kind in kinds for name in ("Proxy-Auto-Detect", "ProxyAutoDetect")]
    keys += [f"Acquire::{kind}::Proxy" for kind in kinds]
    return next(((key, value) for key in keys if (value := settings.get(key.lower()))), ("", ""))


def parse(dumped: str) -> dict[str, str]:
    """Return the settings that ``apt-config dump`` prints, names in lower case; of a list, the last entry."""
    found = {}
    for line in dumped.splitlines():
        if match := _LINE.match(line.strip()):
            found[match["name"].lower()] = match["value"]
    return found


def without_parents(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings without empty ones above others, as apt prints them above the proxy of one host."""
    parents = {name.rpartition("::")[0] for name in settings}
    return {name: value for name, value in settings.items() if value or name not in parents}


def route(settings: Mapping[str, str], url: str) -> Route:
    """Return how apt reaches an address: the setting for its host, a detector, then the general one (apt.conf(5)).

    Options of https that are not set have the values of http (apt-transport-https(1)).
    """
    split = urlsplit(url)
    scheme, host = split.scheme.lower(), (split.hostname or "").lower()
    kinds = ("https", "http") if scheme == "https" else ("http",)
    special = _first(settings, [f"acquire::{kind}::proxy::{host}" for kind in kinds])
    detector = _first(
        settings,
        [f"acquire::{kind}::{name}" for kind in kinds for name in ("proxy-auto-detect", "proxyautodetect")],
    )
    general = _first(settings, [f"acquire::{kind}::proxy" for kind in kinds])
    ca = _first(
        settings, [f"acquire::https::{host}::cainfo", f"acquire::https::cainfo::{host}", "acquire::https::cainfo"]
    )
    return Route(
        proxy=_proxy(special or general),
        detector="" if special else detector,
        ca=ca if scheme == "https" else "",
    )


def detected(printed: str) -> str | None:
    """Return the proxy that a detector printed; None if it printed nothing."""
    first = printed.strip().splitlines()[0].strip() if printed.strip() else ""
    return _proxy(first)


def _proxy(value: str) -> str | None:
    if not value:
        return None
    return "" if value.upper() == _DIRECT else value


def _first(settings: Mapping[str, str], names: list[str]) -> str:
    return next((settings[name] for name in names if settings.get(name)), "")
