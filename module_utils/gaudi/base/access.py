"""How a node's programs reach what is outside the site: proxies, and the certificates that servers there may have.

No account of a proxy is put into an environment or an argument, which other users of a node can read: programs that
take one get it in a file of root's.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from .paths import CONFIGURATION
from .values import is_loopback, login, without_login

FOLDER = f"{CONFIGURATION}/access"
APT_CONF = f"{FOLDER}/apt.conf"
"""Proxies and certificates, as apt reads them where APT_CONFIG names the file; the node's own files win over it."""
BUNDLE = f"{FOLDER}/ca-certificates.crt"
"""The node's own certificates and the site's."""

SOURCE_CONF = "/etc/apt/apt.conf.d/00gaudi-serving-source"
"""The same for every apt of the node, for the host of our source alone. Files that sort behind it win over it."""

REGISTRIES = "/etc/docker/certs.d"

_HOSTS = re.compile(r"https?://(?:[^/@\s\]]*@)?([A-Za-z0-9.-]+)")
_PLAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
LOCAL = ("localhost", "127.0.0.1", "::1")
# Variables with the path of a bundle: OpenSSL and Python, requests, pip, git, curl.
BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE")


def bypassed(host: str, no_proxy: str) -> bool:
    """Whether a host is reached without a proxy.

    no_proxy: names, which stand for the names below them as well, addresses, networks and ``*``, with commas between
    them. The machine itself is always reached without one.
    """
    host = host.strip("[]").lower().rstrip(".")
    if is_loopback(host):
        return True
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        number = None
    for entry in (each.strip().lower() for each in no_proxy.replace(" ", ",").split(",")):
        if entry == "*":
            return True
        name = entry.rpartition(":")[0] if entry.count(":") == 1 else entry
        if number is not None:
            try:
                if number in ipaddress.ip_network(name.strip("[]"), strict=False):
                    return True
            except ValueError:
                continue
        elif (domain := name.lstrip("*.")) and (host == domain or host.endswith(f".{domain}")):
            return True
    return False


def proxy_of(address: str, http_proxy: str, https_proxy: str, no_proxy: str) -> str:
    """Return the proxy that an address is reached through; "" for none."""
    split = urlsplit(address)
    if split.scheme not in ("http", "https") or bypassed(split.hostname or "", no_proxy):
        return ""
    return https_proxy if split.scheme == "https" else http_proxy


def hub_routes(sources: Iterable[Any], http_proxy: str, https_proxy: str, no_proxy: str) -> list[dict[str, str]]:
    """Return how each source of weights is reached: name, address without an account, proxy ("" without one), option.

    A source's own proxy counts before the site's, also an empty one. What is no mapping is left out: it is reported as
    a wrong option.
    """
    found = []
    for source in (each for each in sources if isinstance(each, Mapping)):
        address, name = str(source.get("endpoint", "")), str(source.get("name", ""))
        proxy, option = proxy_of(address, http_proxy, https_proxy, no_proxy), f"gaudi_{urlsplit(address).scheme}_proxy"
        if "proxy" in source:
            proxy, option = str(source["proxy"] or ""), f"proxy of {name} in model_weights_sources"
        found.append({"name": name, "address": without_login(address), "proxy": proxy, "option": option})
    return found


def exceptions(no_proxy: str) -> list[str]:
    """Return the entries of a list of hosts that are reached without a proxy."""
    return [entry for each in no_proxy.replace(" ", ",").split(",") if (entry := each.strip())]


def same_exceptions(one: str, other: str) -> bool:
    """Whether a program of Go has the same exceptions by two lists: it never sends loopback to a proxy (httpproxy)."""
    first, second = ({entry.lower() for entry in exceptions(each)} - {*LOCAL} for each in (one, other))
    return first == second


def without_proxy(no_proxy: str) -> str:
    """Return a list of hosts for programs that do not leave out the machine itself on their own."""
    given = exceptions(no_proxy)
    return ",".join([*(name for name in LOCAL if name not in given), *given])


def apt_hosts(sources: str, no_proxy: str) -> list[str]:
    """Return the hosts that apt reaches without a proxy: those of its sources, and names among the exceptions.

    sources: the text of apt's sources. apt does not understand networks, and with the variable no_proxy it
    still asks an https server as if it were a proxy (seen with 2.6).
    """
    hosts = [*_HOSTS.findall(sources), *(entry.strip() for entry in no_proxy.replace(" ", ",").split(","))]
    plain = {host.lower() for host in hosts if _PLAIN.fullmatch(host)}
    return sorted(host for host in plain if bypassed(host, no_proxy))


def apt_conf(http_proxy: str, https_proxy: str, direct: Iterable[str] = (), *, bundle: str) -> str:
    """Return apt's configuration; "" where it needs none.

    direct: hosts that are reached without a proxy. bundle: path of the certificates, "" without any of the site's.
    """
    proxies = [(scheme, address) for scheme, address in (("http", http_proxy), ("https", https_proxy)) if address]
    lines = [f'Acquire::{scheme}::Proxy "{address}";' for scheme, address in proxies]
    lines += [f'Acquire::{scheme}::Proxy::{host} "DIRECT";' for scheme, _ in proxies for host in direct]
    lines += [f'Acquire::https::CaInfo "{bundle}";'] if bundle else []
    return "".join(f"{line}\n" for line in lines)


def source_proxy(address: str, http_proxy: str, https_proxy: str, no_proxy: str) -> tuple[str, str]:
    """Return apt's setting for the host of a source, and the proxy of the site that it would have; ("", "") for none.

    As in apt_conf(), https takes the proxy of http where it has none.
    """
    split = urlsplit(address)
    host = (split.hostname or "").lower()
    if split.scheme not in ("http", "https") or not _PLAIN.fullmatch(host):
        return "", ""
    kind, proxy = ("https", https_proxy) if split.scheme == "https" and https_proxy else ("http", http_proxy)
    return (f"Acquire::{kind}::Proxy::{host}", proxy) if proxy and not bypassed(host, no_proxy) else ("", "")


def source_conf(address: str, http_proxy: str, https_proxy: str, no_proxy: str, *, bundle: str) -> str:
    """Return apt's configuration for the host of one source; "" where it needs none.

    bundle: as in apt_conf(). A proxy with an account is left out: every user's apt reads the file, and warns where it
    cannot (apt 2.6).
    """
    split = urlsplit(address)
    host = (split.hostname or "").lower()
    if split.scheme not in ("http", "https") or not _PLAIN.fullmatch(host):
        return ""
    key, proxy = source_proxy(address, http_proxy, https_proxy, no_proxy)
    lines = [f'{key} "{proxy}";'] if proxy and "@" not in proxy else []
    lines += [f'Acquire::https::{host}::CaInfo "{bundle}";'] if bundle and split.scheme == "https" else []
    return "".join(f"{line}\n" for line in lines)


def without_account(address: str, http_proxy: str, https_proxy: str, no_proxy: str) -> str:
    """Return what the owner of a node has to do for apt's own calls to reach our source; "" for nothing.

    The arguments are those of source_conf(), which leaves out a proxy with an account.
    """
    key, proxy = source_proxy(address, http_proxy, https_proxy, no_proxy)
    if "@" not in proxy:
        return ""
    where = without_login(proxy)
    return (
        f"The node's own apt may not reach {urlsplit(address).hostname}, where this project has a source "
        f"of packages: apt knows no proxy for it, and the account of {where} is not written where every user reads it. "
        f"If it is to reach it, set {key} to {where} in /etc/apt/apt.conf.d, and write the account into "
        f"/etc/apt/auth.conf.d (mode 0600): machine {where} login NAME password PASSWORD."
    )


def pip_conf(index: str, proxy: str) -> str:
    """Return pip's configuration for an index, as pip reads it where PIP_CONFIG_FILE names the file.

    Its section wins over the section "global" of the node's own files. proxy: "" for none. pip expands no % in a value.
    """
    lines = ["[install]", f"index-url = {index}", *([f"proxy = {proxy}"] if proxy else [])]
    if index.startswith("http://"):
        # pip ignores an index without TLS unless it is a trusted host.
        lines.append(f"trusted-host = {urlsplit(index).hostname}")
    return "".join(f"{line}\n" for line in lines)


def environment(http_proxy: str, https_proxy: str, no_proxy: str, *, certificates: bool) -> dict[str, str]:
    """Return the variables for a program that fetches something: {} where the site sets nothing.

    They name files. The proxies themselves are among them only without an account.
    """
    found: dict[str, str] = {}
    if http_proxy or https_proxy or certificates:
        found["APT_CONFIG"] = APT_CONF
    proxies: Mapping[str, str] = {"http_proxy": http_proxy, "https_proxy": https_proxy}
    found.update({name: address for name, address in proxies.items() if address and "@" not in address})
    if http_proxy or https_proxy:
        found["no_proxy"] = without_proxy(no_proxy)
    return {**found, **bundle_variables(BUNDLE if certificates else "")}


def bundle_variables(bundle: str) -> dict[str, str]:
    """Return the variables that name a bundle of certificates; {} without one."""
    return dict.fromkeys(BUNDLE_VARIABLES, bundle) if bundle else {}


def dnf_access(repository: str, http_proxy: str, https_proxy: str, no_proxy: str, bundle: str) -> dict[str, str]:
    """Return how dnf reaches a repository, by the keys of dnf.conf(5), which yum_repository has as well.

    Accounts are apart from the addresses: dnf quotes an address in its messages, and never a password.
    bundle: path of the certificates, "" without any of the site's.
    """
    proxy = proxy_of(repository, http_proxy, https_proxy, no_proxy)
    name, password = login(repository)
    proxy_name, proxy_password = login(proxy)
    found = {
        "baseurl": without_login(repository),
        "username": name,
        "password": password,
        "proxy": without_login(proxy),
        "proxy_username": proxy_name,
        "proxy_password": proxy_password,
        "sslcacert": bundle if repository.startswith("https://") else "",
    }
    return {key: value for key, value in found.items() if value}


def registry_certificates(registries: Iterable[str], certificates: str) -> list[dict[str, str]]:
    """Return files for the module node_files, so that Docker trusts certificates at registries, or does not any more.

    registries: names as an image's begins with, or addresses. An image without a registry is Docker Hub's, whose
    certificate is no site's. Docker reads every *.crt there (its docs, "Verify repository client with certificates").
    """
    hosts = []
    for registry in registries:
        host = registry.rpartition("://")[2].partition("/")[0].rpartition("@")[2]
        if re.fullmatch(r"[A-Za-z0-9[][A-Za-z0-9._:\]-]*", host) and (
            "." in host or ":" in host or host == "localhost"
        ):
            hosts.append(host)
    content = {"content": certificates} if certificates else {"state": "absent"}
    return [{"path": registry_file(host), **content} for host in dict.fromkeys(hosts)]


def registry_file(host: str) -> str:
    """Return the path of the site's certificates that Docker trusts at a registry."""
    return f"{REGISTRIES}/{host}/gaudi-serving.crt"
