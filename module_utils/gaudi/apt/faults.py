"""Errors of ``apt-get update`` by repository: which repository has which fault, and what to do about it.

The patterns match apt's messages under LC_ALL=C.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from ..base import certificates
from ..base.refusal import Refusal
from ..base.values import without_accounts, without_login
from .config import AptProxy
from .sources import AptSource, same_repository

# "Err:3 URI SUITE InRelease", with the reason on the next lines.
_ERR = re.compile(r"^Err:\d+ (?P<uri>\S+) (?P<suite>\S+)[^\n]*\n(?P<why>(?:  [^\n]*\n?)+)", re.MULTILINE)
# A message may go on in further lines, which begin with a blank or with anything else than a mark.
_MESSAGE = re.compile(r"^(?P<mark>[WE]): (?P<text>.*?)(?=^[WEN]: |^Err:|\Z)", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r"(?P<uri>(?:https?|file|copy|ftp|mirror\+?\w*|cdrom)://?[^\s'\"]+)(?: (?P<suite>[^\s'\"]+))?")
_INDEX = re.compile(
    r"^(?P<uri>.+?)/dists/(?P<suite>.+?)/(?:InRelease|Release(?:\.gpg)?|[^/]+/(?:binary|source|i18n|dep11|cnf).*)$"
)
_LOCK = re.compile(
    r"Could not get lock (?P<file>/\S+?)\.?(?: It is held by process (?P<who>\d+ \([^)]*\)))?(?=[.\s]|$)"
)
# apt prints values for Signed-By only (debReleaseIndex::SetTrusted and others in apt/deb/debmetaindex.cc).
_CONFLICT = re.compile(
    r"Conflicting values set for option (?P<option>\S+) regarding source (?P<uri>\S+) (?P<suite>[^\s:]+)"
    r"(?::? (?P<one>[^!]*)!=(?P<other>.*))?"
)
# What may stand in a command that a person copies.
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_UNREADABLE = re.compile(r"(?:Malformed|Unable to parse|Type '[^']*' is not known)[^\n]*?(?P<file>/[^\s,]+)")
_KEY = re.compile(r"(?:NO_PUBKEY|EXPKEYSIG|REVKEYSIG|BADSIG) (?P<key>[0-9A-F]{8,40})")
_CONNECT = re.compile(r"(?:Could not connect to|Unable to connect to|connect to) (?P<host>\[|[^\s:']+)", re.IGNORECASE)
_RESOLVE = re.compile(
    r"(?:Could not resolve|Temporary failure resolving|Something wicked happened resolving) '(?P<host>[^':]+)"
)

_IP = re.compile(r"\[IP: (?P<host>\S+) (?P<port>\d+)\]")
_SERVER_ERROR = re.compile(r"\b5\d\d\s+\S")

# Where a request failed in the end, which is not where it was sent if the server redirected it.
_VENDORS = re.compile(r"\bhabanalabs-")
_FAILED = re.compile(r"Failed to fetch (?P<uri>https?://\S+?)[,;]?(?=\s|$)(?P<why>[^\n]*)")

# Fault by message, in this order: causes before their consequences.
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "certificate",
        re.compile(r"[Cc]ertificate verification failed|certificate is NOT trusted|SSL certificate problem"),
    ),
    ("proxy_denied", re.compile(r"407\s+|Proxy Authentication Required|Invalid response from proxy: HTTP/\S+ 407")),
    ("denied", re.compile(r"\b40[13]\s+\S")),
    ("key_expired", re.compile(r"EXPKEYSIG|EXPSIG|REVKEYSIG")),
    ("key_missing", re.compile(r"NO_PUBKEY")),
    (
        "signature",
        re.compile(
            r"BADSIG|invalid signature|signatures? (?:couldn't be verified|were invalid|verification)|"
            r"is not signed|NODATA|no longer signed|Clearsigned file isn't valid"
        ),
    ),
    ("clock_behind", re.compile(r"is not valid yet")),
    ("expired", re.compile(r"Release file for \S+ is expired|\(invalid since")),
    ("changed", re.compile(r"changed its '(?:Origin|Label|Suite|Codename|Version)' value")),
    ("unresolved", _RESOLVE),
    ("timeout", re.compile(r"timed out|Timeout|connection timeout")),
    (
        "no_connection",
        re.compile(
            r"Connection refused|No route to host|Network is unreachable|Could not connect|"
            r"Unable to connect|Invalid response from proxy"
        ),
    ),
    (
        "absent",
        re.compile(r"does(?:n't| not) have a Release file|no longer has a Release file|\b404\s+|File not found"),
    ),
    ("broken", re.compile(r"Hash Sum mismatch|unexpected size|Mirror sync in progress|Failed to fetch|\b5\d\d\s+\S")),
)

# Faults of a host that gives no answer of its own.
_SILENT = ("unresolved", "timeout", "no_connection", "proxy")
# Kind of a fault of a host that a repository's server redirects to, which does not answer.
REDIRECTED = "redirected"

# Errors of Python's own requests. Their words are in the language of the node, and their numbers are not.
# -2 to -5: EAI_NONAME, EAI_AGAIN, EAI_FAIL and EAI_NODATA of <netdb.h>.
_UNKNOWN_NAME = re.compile(r"\[Errno -[2-5]\]|name resolution")
_REFUSED = re.compile(rf"\[Errno ({errno.ECONNREFUSED}|{errno.EHOSTUNREACH}|{errno.ENETUNREACH})\]")
_LATE = re.compile(rf"timed out|\[Errno {errno.ETIMEDOUT}\]")
_DENIED_BY_PROXY = re.compile(r"\b407\b|Proxy Authentication Required")
_TUNNEL = re.compile(r"Tunnel connection failed: \d+")
# What a proxy will answer the next time as well.
_FORBIDDEN = re.compile(r"Tunnel connection failed: (4\d\d[^'\")]*)")

# What to do about these errors if no proxy is known.
_ADVICE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"HTTP Error 40[13]\b"), "The server denies access. Check the account in the address."),
    (
        _UNKNOWN_NAME,
        "This node does not resolve the name. Check its DNS; if the server is behind a proxy, name that in "
        "gaudi_http_proxy and gaudi_https_proxy.",
    ),
    (_REFUSED, "Nothing accepts connections there. Check the address, the proxy, and whether the server is up."),
    (_LATE, "It does not answer in time. Check the address, the proxy and firewalls in between."),
)


def advice(why: str, otherwise: str, address: str, ca_file: str = "", proxy: AptProxy | None = None) -> str:
    """Return what to do about an error of a request that a module made.

    otherwise: for an error that is not known. address: what was asked for. ca_file: as in certificates.advice().
    proxy: the one that was asked.
    """
    if certificates.REJECTED.search(why):
        text: str = certificates.advice(why, _host(address) or "the server", ca_file)
        return text
    if said := of_proxy(why, proxy):
        return said
    return next((text for pattern, text in _ADVICE if pattern.search(why)), otherwise)


def of_proxy(why: str, proxy: AptProxy | None) -> str:
    """Return what to do about an error of the proxy that was asked; "" if it is none. proxy: None if it is not known.

    A request connects to the proxy alone.
    """
    if _DENIED_BY_PROXY.search(why):
        return (
            proxy.denied() if proxy else "The proxy rejects its account. Check gaudi_http_proxy and gaudi_https_proxy."
        )
    if proxy is None:
        return ""
    says = (
        (_TUNNEL, f"The proxy {proxy.where} answered this. It is set by {proxy.named}."),
        (_UNKNOWN_NAME, f"This node does not resolve the name of the proxy {proxy.where}. Check {proxy.named}."),
        (
            _REFUSED,
            f"Nothing accepts connections at the proxy {proxy.where}. Check {proxy.named}, and whether it is up.",
        ),
        (
            _LATE,
            f"The proxy {proxy.where}, or the server behind it, does not answer in time. Check {proxy.named}.",
        ),
    )
    return next((text for pattern, text in says if pattern.search(why)), "")


def unusable(why: str, proxy: AptProxy) -> str:
    """Return why a proxy serves no request, whatever is asked for, and what to do; "" if it may serve others.

    why: the error of a request through it.
    """
    final = any(pattern.search(why) for pattern in (_DENIED_BY_PROXY, _UNKNOWN_NAME, _REFUSED))
    return of_proxy(why, proxy) if final else ""


def blocked(why: str, proxy: AptProxy, host: str) -> str:
    """Return why a proxy does not let a host through, and what to do; "" if it may.

    why: the error of a request to this host through it.
    """
    if found := unusable(why, proxy):
        return found
    answered = _FORBIDDEN.search(why)
    if not answered:
        return ""
    return (
        f"The proxy {proxy.where} does not connect to {host} ({answered[1].strip()}). It is set by {proxy.named}. Have "
        "the host allowed on the proxy, or name it in gaudi_no_proxy if it is reached without one."
    )


@dataclass(frozen=True)
class AptFault:
    """A fault of one repository.

    ``kind``: a name of _KINDS, REDIRECTED, "conflict", "lock", "unreadable", or "other". ``uri``, ``suite``: as apt
    prints them, without an account; "" for a fault of no repository. ``message``: apt's, on one line. ``detail``: the
    key, the host that did not answer, the file or the process.
    """

    kind: str
    uri: str
    suite: str
    message: str
    detail: str = ""

    @property
    def repository(self) -> str:
        """Return the address and suite."""
        return f"{self.uri} {self.suite}".strip()

    @property
    def said(self) -> str:
        """Return the message with a full stop, so that a sentence can follow it."""
        return self.message if self.message.endswith((".", "!", "?")) else f"{self.message}."


def _redirects(printed: str, repository: str = "") -> dict[str, tuple[str, str]]:
    """Return hosts that do not answer, and what apt says of each, by the address of the repository that leads there.

    apt names each request twice, where it was sent ("Err:6 https://vault...") and where it failed ("Failed to fetch
    https://..."). apt 2.7 was seen to have the server's choice in the second place; apt 2.6 has it in both for a
    package, and in the first for an index, where the reason names it too. repository: the driver's, "" if it is not
    known; it is the origin of packages of the vendor that another host was asked for.
    """
    asked = {_host(match["uri"]): match for match in _ERR.finditer(printed)}
    vendors = {_host(match["uri"]) for match in _ERR.finditer(printed) if _VENDORS.search(match.group())}
    failed = [(match["uri"].rstrip(".,'"), match["why"]) for match in _FAILED.finditer(printed)]
    hosts, own = {_host(uri) for uri, _ in failed}, _host(repository)
    # A repository that fails at its own host is not the one that redirects.
    origins = {host: match["uri"] for host, match in asked.items() if host not in hosts}
    first = origins.get(own) or next(iter(origins.values()), "")
    found: dict[str, tuple[str, str]] = {}
    for uri, why in failed:
        host, named = _host(uri), _names(why)
        origin, elsewhere = "", host
        if named in asked and named != host:
            origin, elsewhere = _base(uri), named
        elif host not in asked and host != own:
            origin = first or repository
        elif host != own and host in vendors:
            origin = repository
        said = why if why.strip() or _host(origin) not in asked else asked[_host(origin)]["why"]
        if origin and elsewhere and _fault("", "", said).kind in _SILENT:
            found.setdefault(without_login(origin).rstrip("/"), (elsewhere, said))
    return found


def _names(why: str) -> str:
    """Return the host that a reason names, "" for none."""
    match = _CONNECT.search(why) or _RESOLVE.search(why)
    return str(match["host"]) if match else ""


def _base(uri: str) -> str:
    """Return the address of the repository that an index belongs to."""
    index = _INDEX.match(uri)
    return str(index["uri"]) if index else uri


def parse(printed: str) -> list[AptFault]:
    """Return the faults that apt-get update printed, the first reason for each repository."""
    printed = without_accounts(printed)
    found: list[AptFault] = []
    for match in _ERR.finditer(printed):
        found.append(_fault(match["uri"], match["suite"], match["why"]))
    for match in _MESSAGE.finditer(printed):
        text = " ".join(match["text"].split())
        if lock := _LOCK.search(text):
            found.append(AptFault("lock", "", "", text, lock["who"] or lock["file"]))
        elif conflict := _CONFLICT.search(text):
            uri = without_login(conflict["uri"]).rstrip("/")
            found.append(
                AptFault(
                    "conflict",
                    uri,
                    conflict["suite"],
                    text,
                    _conflicting(conflict),
                )
            )
        elif unreadable := _UNREADABLE.search(text):
            found.append(AptFault("unreadable", "", "", text, unreadable["file"]))
        elif address := _ADDRESS.search(text):
            uri, suite = address["uri"].rstrip("'.,:;"), address["suite"] or ""
            if text.startswith("Failed to fetch"):
                suite = ""
            if index := _INDEX.match(uri):
                uri, suite = index["uri"], index["suite"]
            fault = _fault(uri, suite, text)
            if fault.kind != "other" or match["mark"] == "E":
                found.append(fault)
    redirects = _redirects(printed)
    elsewhere = {host for host, _ in redirects.values()}
    return _once(
        replace(fault, kind=REDIRECTED, detail=redirects[fault.uri][0]) if fault.uri in redirects else fault
        for fault in found
        if _host(fault.uri) not in elsewhere
    )


def _conflicting(found: re.Match[str]) -> str:
    """Return the option in which two sources differ, and its values where apt prints them."""
    values = [(found[name] or "").strip() for name in ("one", "other")]
    return found["option"] + (f" ({' and '.join(value or 'none' for value in values)})" if any(values) else "")


def _fault(uri: str, suite: str, why: str) -> AptFault:
    message = " ".join(why.split())
    kind = next((kind for kind, pattern in _KINDS if pattern.search(message)), "other")
    host = _host(uri)
    detail = ""
    if match := _KEY.search(message):
        detail = match["key"]
    elif match := (_RESOLVE.search(message) if kind == "unresolved" else _CONNECT.search(message)):
        detail = match["host"]
        # apt names the proxy's host where it goes through one.
        if kind in ("unresolved", "no_connection", "timeout") and detail not in (host, "["):
            kind = "proxy"
    return AptFault(kind, without_login(uri).rstrip("/"), suite.strip("/") or suite, message, detail)


def _host(uri: str) -> str:
    try:
        return urlsplit(uri).hostname or ""
    except ValueError:
        # Brackets without an address in them.
        return ""


def _once(faults: Iterable[AptFault]) -> list[AptFault]:
    """Keep of each repository the most telling fault; those of no repository once each."""
    order = [kind for kind, _ in _KINDS]
    best: dict[tuple[str, str, str], AptFault] = {}
    for fault in faults:
        key = (fault.uri, fault.suite, "" if fault.uri else fault.message)
        known = best.get(key)
        if known is None or _rank(fault, order) < _rank(known, order):
            best[key] = fault
    return list(best.values())


def _rank(fault: AptFault, order: Sequence[str]) -> int:
    if fault.kind in ("conflict", "proxy", REDIRECTED):
        return -1
    return order.index(fault.kind) if fault.kind in order else len(order)


def is_ours(fault: AptFault, repository: str, suite: str) -> bool:
    """Whether a fault is the one of a repository and suite."""
    if not repository or not fault.uri or not same_repository(fault.uri, repository):
        return False
    named, wanted = fault.suite.strip("/"), suite.strip("/")
    return not named or not wanted or named == wanted or named.startswith(f"{wanted}/")


def _answered(fault: AptFault, proxy: AptProxy | None) -> str:
    """Return which proxy an answer of a repository came from, and what to do; "" if it came from none."""
    if proxy is None:
        return ""
    if fault.kind == "proxy_denied":
        return proxy.denied()
    match = _IP.search(fault.message)
    if match and _SERVER_ERROR.search(fault.message) and proxy.where.endswith(f":{match['port']}"):
        return f"The proxy {proxy.where} answered this, for itself or for the server. It is set by {proxy.named}."
    return ""


def other(fault: AptFault, sources: Sequence[AptSource], proxy: AptProxy | None = None) -> str:
    """Return a warning about a repository that is not this project's. proxy: through which apt reaches it."""
    files = _files(fault, sources)
    where = f", of {' and '.join(files)}" if files else ""
    if not fault.uri:
        return f"apt-get update: {fault.message}"
    answered = _answered(fault, proxy)
    return (
        f"apt could not read the repository {fault.repository}{where}: {fault.said} "
        f"{answered + ' ' if answered else ''}This run does not need it and leaves it alone."
    )


def _files(fault: AptFault, sources: Sequence[AptSource]) -> list[str]:
    found = [
        source.file
        for source in sources
        if same_repository(source.uri, fault.uri) and (not fault.suite or source.suite.strip("/") == fault.suite)
    ]
    return list(dict.fromkeys(found or [source.file for source in sources if same_repository(source.uri, fault.uri)]))


def unreadable(fault: AptFault, sources: Sequence[AptSource]) -> Refusal:
    """Return the refusal for sources that apt cannot read, so that no repository is read."""
    if fault.kind == "conflict":
        host = _host(fault.uri)
        shown = f" (grep -r {host} /etc/apt shows them)" if _HOST.fullmatch(host) else ""
        files = " and ".join(_files(fault, sources)) or f"two sources{shown}"
        # Ansible would mask the address, as it is that of an option without log.
        return Refusal(
            "sources_in_conflict",
            f"apt reads no repository on this node, as {files} differ in an option of the same repository and its "
            f"suite {fault.suite}: {fault.detail}.",
            "Keep one of them, or give both the same value, then run again.",
        )
    return Refusal(
        "sources_not_readable",
        f"apt reads no repository on this node, as it cannot read {fault.detail} ({fault.message}).",
        "Correct that file, then run again.",
    )


def _by_proxy(fault: AptFault, files: Sequence[str], proxy: AptProxy | None) -> Refusal | None:
    """Return the refusal for an answer of a proxy; None where the answer is not known to be one."""
    answered = _answered(fault, proxy)
    if not answered:
        return None
    where = f"the repository {fault.repository}" + (f" ({', '.join(files)})" if files else "")
    return Refusal("repository_behind_proxy", f"apt could not read {where}: {fault.said}", answered)


def denied(printed: str, denials: Mapping[str, str]) -> Refusal | None:
    """Return the denial of a proxy while packages are fetched; None if the proxy of a repository is not known.

    denials: what an answer 407 means, by the address of a repository that is reached through a proxy.
    """
    for fault in parse(printed):
        if fault.kind == "proxy_denied":
            under = (text for uri, text in denials.items() if f"{fault.uri}/".startswith(f"{uri.rstrip('/')}/"))
            denial = next(under, "")
            if denial:
                return Refusal("repository_behind_proxy", f"apt could not fetch {fault.uri}: {fault.said}", denial)
            if not fault.suite:
                # The file of a package.
                return refusal(fault)
    return None


def redirected(printed: str, repository: str = "") -> Refusal | None:
    """Return the refusal where a host that the driver's repository redirects to does not answer; None otherwise.

    repository: its address, "" if it is not known.
    """
    for origin, (host, why) in _redirects(without_accounts(printed), repository).items():
        return _redirected(origin, host, why, "gaudi_driver")
    return None


def _redirected(origin: str, host: str, why: str, options: str) -> Refusal:
    said = " ".join(why.split())
    return Refusal(
        "repository_redirects",
        f"The repository at {origin} redirects to {host}, which does not answer ({said}).",
        f"A proxy, a route or a rule of a firewall for {_host(origin)} alone is not enough, as files come from {host}. "
        "Name a proxy for all hosts (gaudi_http_proxy and gaudi_https_proxy), allow this host as well, or use a mirror "
        f"({options}_repository).",
    )


def refusal(fault: AptFault, options: str = "gaudi_driver", files: Sequence[str] = (), ca_file: str = "") -> Refusal:
    """Return why the site's repository cannot be used.

    options: prefix of the options that describe it. files: where it is configured. ca_file: as in
    certificates.advice().
    """
    where = f"the repository {fault.repository}" + (f" ({', '.join(files)})" if files else "")
    key = f" (key {fault.detail})" if fault.detail else ""
    names = f"{options}_repository"
    if fault.kind in ("key_missing", "signature"):
        return Refusal(
            "repository_not_trusted",
            f"A package repository is not signed by the key that this site names for it{key}: {where}.",
            f"Nothing was installed from it. Compare {options}_key and {options}_key_fingerprint with what the vendor "
            "publishes.",
        )
    if fault.kind == "key_expired":
        return Refusal(
            "repository_key_expired",
            f"The key that signs {where} has expired or was revoked{key}.",
            f"Fetch the vendor's current key and name it in {options}_key and {options}_key_fingerprint; compare the "
            "node's clock as well.",
        )
    if fault.kind == "certificate":
        return Refusal(
            "repository_certificate",
            f"apt does not trust the server of {where}: {fault.said}",
            certificates.advice(fault.message, _host(fault.uri) or "the server", ca_file),
        )
    if fault.kind == "proxy":
        return Refusal(
            "repository_behind_proxy",
            f"{fault.detail}, through which {where} is reached (a proxy, or a server that it redirects to), does not "
            f"answer: {fault.said}",
            "Check gaudi_http_proxy, gaudi_https_proxy and Acquire::http::Proxy of apt.",
        )
    if fault.kind == "proxy_denied":
        return Refusal(
            "repository_behind_proxy",
            f"The proxy in front of {where} rejects its account (407): {fault.said}",
            "Check gaudi_http_proxy, gaudi_https_proxy and Acquire::http::Proxy of apt.",
        )
    if fault.kind == "denied":
        return Refusal(
            "repository_denies",
            f"The server of {where} denies access: {fault.said}",
            f"Check the account in {names}.",
        )
    if fault.kind in ("clock_behind", "expired"):
        return Refusal(
            "repository_out_of_date",
            f"By the node's clock the Release file of {where} is not valid "
            f"{'yet' if fault.kind == 'clock_behind' else 'any more'}: {fault.said}",
            "Compare the clock (timedatectl), and synchronise the mirror.",
        )
    if fault.kind == "changed":
        return Refusal(
            "repository_changed",
            f"apt wants a confirmation for {where}: {fault.said}",
            "If the change is the vendor's, run apt-get update --allow-releaseinfo-change on the node.",
        )
    return _without_answer(fault, options)


def _without_answer(fault: AptFault, options: str) -> Refusal:
    """Return the refusal for a repository that is not there, or whose server gives no answer."""
    names = f"{options}_repository"
    if fault.kind == REDIRECTED:
        return _redirected(fault.uri, fault.detail, fault.message, options)
    if fault.kind == "absent":
        return Refusal(
            "no_such_suite",
            f"There is no package repository at {fault.repository}.",
            f"Look at {names} and {options}_suite.",
        )
    cause, remedy = {
        "unresolved": (f"the node does not resolve the name {fault.detail}.", f"Check the node's DNS and {names}."),
        "timeout": ("it does not answer in time.", f"Check {names}, the node's proxy and firewalls in between."),
        "no_connection": ("nothing accepts connections there.", f"Check {names}, and whether the server is up."),
    }.get(fault.kind, (fault.said, f"Check {names}, the node's proxy, and whether the server is up."))
    return Refusal("repository_down", f"A package repository does not answer ({fault.repository}): {cause}", remedy)


def of_any(fault: AptFault, *, known: bool) -> Refusal:
    """Return the fault of a repository that is not the driver's, or may not be.

    known: the driver's repository is known to be another one.
    """
    if known:
        return Refusal(
            "other_repository_fails",
            f"apt could not read the repository {fault.repository}, which is not the driver's: {fault.said}",
            "Repair it on the node, or remove its source.",
        )
    if fault.kind in ("key_missing", "key_expired", "signature"):
        key = f" (key {fault.detail})" if fault.detail else ""
        return Refusal(
            "repository_not_trusted",
            f"The repository {fault.repository} is not signed by a key that apt trusts for it{key}.",
            "If it is gaudi_driver_repository, compare gaudi_driver_key and gaudi_driver_key_fingerprint; else repair "
            "its key or remove its source.",
        )
    return Refusal(
        "repository_down",
        f"apt could not read the repository {fault.repository}: {fault.said}",
        "If it is gaudi_driver_repository, check its address and the node's proxy; else repair it or remove its "
        "source.",
    )


def judge(
    faults: Sequence[AptFault],
    sources: Sequence[AptSource],
    repository: str,
    suite: str,
    options: str,
    ca_file: str = "",
    proxies: Mapping[str, AptProxy | None] | None = None,
) -> list[str]:
    """Return warnings about the repositories of others.

    Raises Refusal if apt reads nothing, or not the one of ours, or if the site's proxy denies access.
    ca_file: as in certificates.advice(), for ours. proxies: through which apt reaches a repository, by its address.
    """
    through = proxies or {}
    for fault in faults:
        if fault.kind in ("conflict", "unreadable"):
            raise unreadable(fault, sources)
    for fault in faults:
        proxy = through.get(fault.uri)
        # It denies access to every other repository as well.
        site_denied = fault.kind == "proxy_denied" and proxy is not None and proxy.ours
        if site_denied or is_ours(fault, repository, suite):
            files = _files(fault, sources)
            raise _by_proxy(fault, files, proxy) or refusal(fault, options, files, ca_file)
    return [other(fault, sources, through.get(fault.uri)) for fault in faults]


def with_version(policy: str, field: str) -> set[str]:
    """Return the packages that ``apt-cache policy`` shows a version for in a field, Installed or Candidate."""
    found, name = set(), ""
    for line in policy.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            name = line[:-1]
        elif line.startswith(f"  {field}: ") and "(none)" not in line:
            found.add(name)
    return found


def not_offered(names: Sequence[str], others: Sequence[str]) -> Refusal:
    """Return the refusal for packages that no repository offers, with the faults that may be the reason."""
    because = (
        f" These repositories could not be read, and one of them may have them: {' '.join(others)}" if others else ""
    )
    return Refusal(
        "packages_not_offered",
        f"No package repository of this node offers {', '.join(names)}.{because}",
        "Repair or add the repository that has them, then run again.",
    )
