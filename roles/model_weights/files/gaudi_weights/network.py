"""Connections of one source: through its proxy, with the certificates that the node trusts, and the cause of a failure.

Proxies and certificates come from the request and from SSL_CERT_FILE. Nothing else of the environment is used.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3
from gaudi.base import certificates
from gaudi.base.refusal import Refusal
from gaudi.weights import answers

from .model import SourceFailure, first_line
from .request import HubSource

# Where systems keep the bundle of their trust store, if Python's own path has none.
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
# Seconds for a whole answer that is no file: a source may send it a byte at a time.
ANSWER_SECONDS = 60.0
# OpenSSL's codes (x509_vfy.h): issuers that are not trusted, times, names.
UNTRUSTED = {2, 18, 19, 20, 21, 24, 27}
TIMES = {9: "is not valid yet", 10: "has expired"}
OTHER_NAME = {62, 64}
# A proxy's answer to CONNECT as http.client and httpcore put it.
TUNNEL = re.compile(r"(?:Tunnel connection failed: |^)(\d{3})\b ?([^'\"()]*)")
# Headers by which a proxy marks an answer of its own.
PROXY_MARKS = ("X-Squid-Error", "Proxy-Status", "Proxy-Authenticate")


def bundle() -> str | None:
    """The file (else the folder) of the certificates that are trusted. Raises Refusal for an unusable SSL_CERT_FILE."""
    chosen = os.environ.get("SSL_CERT_FILE")
    if chosen:
        try:
            ssl.create_default_context(cafile=chosen)
        except (OSError, ssl.SSLError) as error:
            raise Refusal(
                "ca_unusable",
                f"{chosen} holds no usable certificates ({first_line(error)}). It is what SSL_CERT_FILE names, which "
                "gaudi_ca_certificates sets. Put certificates in PEM form there",
            ) from error
        return chosen
    paths = ssl.get_default_verify_paths()
    return paths.cafile or next((path for path in BUNDLES if Path(path).is_file()), paths.capath)


def trust() -> ssl.SSLContext:
    """The settings of TLS with these certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    path = bundle()
    if path and Path(path).is_file():
        context.load_verify_locations(path)
    return context


def proxy_name(proxy: str) -> str:
    """A proxy's address for messages: without its account."""
    parts = urlsplit(proxy)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}"


def secrets_of(source: HubSource) -> list[str]:
    """What no message may show of a source: its token, and its proxy's password in both forms."""
    password = urlsplit(source.proxy or "").password or ""
    return [text for text in (source.token() or "", password, unquote(password)) if text]


class Connections:
    """Connections to hosts, through the source's proxy where the host is not one of its exceptions."""

    def __init__(self, source: HubSource, connections: int) -> None:
        self.source = source
        context = trust()
        self.direct = urllib3.PoolManager(maxsize=connections, ssl_context=context)
        self.proxied = self.direct
        if source.proxy:
            self.proxied = urllib3.ProxyManager(
                source.proxy,
                maxsize=connections,
                ssl_context=context,
                proxy_ssl_context=trust(),
                proxy_headers=account_of(source.proxy),
            )

    def request(self, method: str, url: str, **more: Any) -> urllib3.BaseHTTPResponse:
        """Ask once, without retries. Raises SourceFailure that names the cause."""
        pool = self.proxied if self.source.proxy_for(url) else self.direct
        try:
            return pool.request(method, url, redirect=False, retries=False, **more)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise unreached(error, self.source, url) from error
        except ValueError as error:
            raise SourceFailure(
                f"{self.source.name} names an address or a header that no request can have: use another source"
            ) from error

    @staticmethod
    def body(response: urllib3.BaseHTTPResponse) -> bytes:
        """As much of an answer as may hold a message."""
        try:
            return start_of(response, answers.MOST_READ)
        except (urllib3.exceptions.HTTPError, OSError):
            return b""  # the message is missing then, not the status

    def refusal(self, response: urllib3.BaseHTTPResponse, url: str, elsewhere: bool) -> SourceFailure:
        """What a refusing answer means; elsewhere: whether it came after a redirect to another host."""
        return refused(response.status, response.headers, self.body(response), self.source, url, elsewhere=elsewhere)


def start_of(response: urllib3.BaseHTTPResponse, most: int, seconds: float = ANSWER_SECONDS) -> bytes:
    """The first ``most`` bytes of an answer; fewer if it ends before, or is not there after so many seconds."""
    until, came = time.monotonic() + seconds, b""
    while len(came) < most and time.monotonic() < until and (block := response.read1(most - len(came))):
        came += block
    return came


def account_of(proxy: str) -> dict[str, str]:
    """The header that carries the account of a proxy's address, in which special characters are percent-encoded."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"proxy-authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those it was made of, as the libraries nest them."""
    todo, known = [error], set()
    while todo:
        at = todo.pop(0)
        if id(at) in known:
            continue
        known.add(id(at))
        yield at
        inner = [
            *at.args,
            *(getattr(at, name, None) for name in ("reason", "original_error", "__cause__", "__context__")),
        ]
        todo += [one for one in inner if isinstance(one, BaseException)]


def unreached(error: BaseException, source: HubSource, url: str) -> SourceFailure:
    """Why no answer came from an address: a certificate, the proxy, or the connection itself."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    proxy = source.proxy_for(url)
    nested = list(chain(error))
    of_proxy = proxy is not None and any(type(one).__name__ == "ProxyError" for one in nested)
    for one in nested:
        if isinstance(one, ssl.SSLCertVerificationError):
            return distrusted(
                one, source, proxy_name(proxy) if proxy and of_proxy else host, None if of_proxy else proxy
            )
    if proxy:
        refused = next((found for one in nested if (found := tunnel_answer(one))), None)
        if refused:
            return proxy_refusal(*refused, source, url)
        if of_proxy or connecting(nested):
            return SourceFailure(
                f"{source.name}: its proxy {proxy_name(proxy)} cannot be reached ({innermost(nested)}), so {host} was "
                "not asked. Check the proxy's address and whether it runs",
                passing=True,
            )
    through = f" through the proxy {proxy_name(proxy)}" if proxy else ""
    return SourceFailure(f"{source.name}: {host} cannot be reached{through}: {innermost(nested)}", passing=True)


def connecting(nested: list[BaseException]) -> bool:
    """Whether it was the connection that failed, not an answer that broke off or did not come."""
    if any(isinstance(one, ssl.SSLError) for one in nested):
        return False
    names = {type(one).__name__ for one in nested}
    return bool(
        names & {"ConnectError", "ConnectTimeout", "NewConnectionError", "NameResolutionError", "ConnectTimeoutError"}
    )


def tunnel_answer(error: BaseException) -> tuple[int, str] | None:
    """Status and reason of a proxy that did not connect to a host."""
    if type(error).__name__ != "ProxyError" and not str(error).startswith("Tunnel connection failed"):
        return None
    found = TUNNEL.search(str(error))
    return (int(found[1]), found[2].strip()) if found else None


def innermost(nested: list[BaseException]) -> str:
    """The sentence of the system's own error, else of the first one."""
    system = next((one for one in nested if isinstance(one, OSError) and one.strerror), None)
    return str(system.strerror) if system is not None and isinstance(system, OSError) else first_line(nested[0])  # type: ignore[arg-type]


def distrusted(error: ssl.SSLCertVerificationError, source: HubSource, host: str, proxy: str | None) -> SourceFailure:
    """A certificate that does not hold."""
    code, reason = error.verify_code, error.verify_message
    begin = f"{source.name}: the certificate of {host}"
    if code in TIMES:
        now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        return SourceFailure(
            f"{begin} {TIMES[code]} ({reason}). Have it renewed, or correct this node's clock ({now} UTC)"
        )
    if code in OTHER_NAME:
        return SourceFailure(
            f"{begin} is for another name ({reason}). Correct the source's endpoint, or have the certificate name it"
        )
    if code in UNTRUSTED:
        inspected = (
            f" (the proxy {proxy_name(proxy)} may have issued it in the place of the host's own)" if proxy else ""
        )
        todo = certificates.advice(reason, host, os.environ.get("SSL_CERT_FILE", "")).rstrip(".")
        return SourceFailure(f"{begin} is issued by a CA that this node does not trust ({reason}){inspected}. {todo}")
    return SourceFailure(f"{begin} cannot be verified ({reason}). Have it corrected there")


def proxy_refusal(status: int, reason: str, source: HubSource, url: str) -> SourceFailure:
    """A proxy that answers itself in the place of the host."""
    proxy = source.proxy_for(url) or ""
    name, host = proxy_name(proxy), urlsplit(url).netloc.rpartition("@")[2]
    if status == 407 and account_of(proxy):
        return SourceFailure(
            f"{source.name}: the proxy {name} refuses the account that it was sent (407). Correct user and password in "
            "the proxy's address, with special characters percent-encoded"
        )
    if status == 407:
        return SourceFailure(
            f"{source.name}: the proxy {name} wants an account (407), and its address has none. Write it as "
            "http://USER:PASSWORD@HOST:PORT, with special characters percent-encoded"
        )
    return SourceFailure(
        f"{source.name}: the proxy {name} does not connect to {host} ({status} {reason}".rstrip()
        + "). Have it allowed on the proxy, or name the host in gaudi_no_proxy",
        passing=answers.is_passing(status),
    )


FINAL = {
    401: "it wants a token, or does not take this one: give this source another",
    404: "there is no such file at this revision: correct the repository or revision in catalog/models",
    410: "it is gone for good: correct the repository or revision in catalog/models",
}
GATED = "accept the model's licence on the hub with the token's account"


def refused(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    source: HubSource,
    url: str,
    where: str = "",
    elsewhere: bool = False,
) -> SourceFailure:
    """What a refusing answer means for a person and for the next try.

    where: what was asked, for people, the address by default; elsewhere: whether it answered after a redirect to
    another host.
    """
    parts = urlsplit(url)
    where = where or f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    message = answers.message_of(headers, body, secrets_of(source))
    pause = answers.pause_asked(status, headers, time.time())
    by_proxy = source.proxy_for(url) is not None and any(mark in headers for mark in PROXY_MARKS)
    if status == 407 or (by_proxy and parts.scheme == "http"):
        return proxy_refusal(status, message, source, url)
    if answers.is_limited(status, headers):
        return SourceFailure(
            f"{where} answers {status}: too many requests{answers.quoted(message)}",
            passing=True,
            retry_after=pause,
            limited=True,
        )
    # Elsewhere a refusal is of a signed address that has expired; the next try is given a fresh one.
    if elsewhere or answers.is_passing(status):
        return SourceFailure(f"{where} answers {status}{answers.quoted(message)}", passing=True, retry_after=pause)
    if status in (401, 403) and answers.is_gated(headers, message):
        meaning = GATED if source.token_file else f"{GATED}, and give this source a token of it"
    elif status == 403 and answers.is_denied(message):
        meaning = f"this token may not read it: {GATED}, or give this source another token"
    elif status == 403:
        meaning = "it refuses this"
    else:
        meaning = FINAL.get(status, "it refuses this, and asking again would not help")
    # Without TLS an answer does not show whether it is the host's.
    proxy = source.proxy_for(url) if parts.scheme == "http" else None
    by = f" through the proxy {proxy_name(proxy)}, which may have answered itself" if proxy else ""
    return SourceFailure(f"{where} answers {status}{by}: {meaning}{answers.quoted(message)}")
