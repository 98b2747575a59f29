"""Check values of a site that end up in other programs' files: units, drop-ins, apt's lists, download requests.

No form allows a line break, quote, backslash or dollar sign, so that a value stays one word in every file.
A value that may hold a password is never quoted in a sentence.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

from .checks import matching
from .refusal import Refusal

# An instance's name becomes part of the names of a unit, a container and a directory.
INSTANCE = re.compile(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?")
# Under this name cards are reserved while their numbers are checked, so that no instance is given them.
BORROWER = "compute-check"

_LOGIN = r"[A-Za-z0-9._~!*+,;=%&()-]+(:[A-Za-z0-9._~!*+,;=%&():-]*)?@"
_HOST = r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?"
_ADDRESS = re.compile(rf"https?://({_LOGIN})?{_HOST}(/[A-Za-z0-9._~/%+=,:@?&-]*)?")
# yum knows variables: $releasever, $basearch.
_INDEX = re.compile(rf"(https?://({_LOGIN})?{_HOST}|file://)(/[A-Za-z0-9._~/%+=,:@$-]*)?")
_PROXY = re.compile(rf"((https?|socks5h?)://)?({_LOGIN})?{_HOST}/?")
# Of the whole site: every program that fetches something can use it. All but the letters that no program needs encoded
# are written as %40; apt, pip and Go decode them alike.
_ENCODED = r"(?:[A-Za-z0-9._~!*+,;=&()-]|%[0-9A-Fa-f]{2})"
_SITE_PROXY = re.compile(rf"http://({_ENCODED}+(:{_ENCODED}*)?@)?{_HOST}/?")
_NO_PROXY = re.compile(r"[A-Za-z0-9.*:/\[\]_, -]*")
_PROGRAM = re.compile(r"(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:+=~_/-]*")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}|[0-9A-Fa-f:.]{2,45}")
_REACHED = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_SECRET = re.compile(r"[^\x00-\x1f\x7f]{1,512}")
# The account of an address within a text.
_ACCOUNT = re.compile(r"(?<=://)[^/\s@'\"]+@")
# The standard library does not call these reserved: "this network" (RFC 1122), protocol assignments (RFC 6890), and
# networks of IPv6 that hold addresses of IPv4: Teredo (RFC 4380), 6to4 (RFC 3056).
_SPECIAL = tuple(map(ipaddress.ip_network, ("0.0.0.0/8", "192.0.0.0/24", "2001::/32", "2002::/16")))
_FINGERPRINT = re.compile(r"[0-9A-F]{40}([0-9A-F]{24})?")


def _hidden(value: object, what: str, pattern: re.Pattern[str], form: str) -> str:
    """Match a text that may hold a password; the refusal does not quote it."""
    if not isinstance(value, str) or len(value) > 2048 or not pattern.fullmatch(value):
        raise Refusal("wrong_form", f"{what} must be {form}, and is not. Its value is not shown: it may hold a secret.")
    return str(value)


def address(value: object, what: str) -> str:
    """An address of HTTP, with or without an account in it."""
    return _hidden(value, what, _ADDRESS, "an address such as https://mirror.example/path, without blanks and quotes")


def index(value: object, what: str) -> str:
    """The address of a package index; file:// names a folder of the node."""
    return _hidden(value, what, _INDEX, "an address such as https://mirror.example/debian, without blanks and quotes")


def secret(value: object, what: str) -> str:
    """A password or the name of an account."""
    return _hidden(value, what, _SECRET, "a text of one line")


def proxy(value: object, what: str) -> str:
    """The address of a proxy."""
    form = "an address such as http://proxy.example:3128, other characters of a password as %40"
    return _hidden(value, what, _PROXY, form)


def engine_proxy(value: object, what: str) -> str:
    """The address of a proxy for the engine, which refuses a % that begins no encoded character."""
    said = proxy(value, what)
    if re.search(r"%(?![0-9A-Fa-f]{2})", said):
        raise Refusal(
            "wrong_form",
            f"{what} has a % that begins no encoded character such as %40. Write % itself as %25. Its value is not "
            "shown: it may hold a secret.",
        )
    return said


def hub_proxy(value: object, what: str) -> str:
    """The address of a proxy to a hub: the downloader's libraries need a scheme, and none of them speaks SOCKS."""
    said = proxy(value, what)
    if not said.startswith(("http://", "https://")):
        return _hidden(None, what, _PROXY, "an address that begins with http:// or https://, as SOCKS cannot be used")
    return said


def site_proxy(value: object, what: str) -> str:
    """The address of a proxy that everything outside the site is reached through."""
    form = (
        "an address such as http://proxy.example:3128 (no SOCKS, no https://, no path), with characters of an account "
        "such as @ : / # % $ and blanks written as %40 %3A %2F %23 %25 %24 %20"
    )
    said = _hidden(value, what, _SITE_PROXY, form)
    port = re.search(r":([0-9]+)/?$", said.rpartition("@")[2])
    hidden = "".join(login(said))
    if (port and not 0 < int(port[1]) < 1 << 16) or any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in hidden):
        return _hidden(None, what, _SITE_PROXY, form)
    return said


def no_proxy(value: object, what: str) -> str:
    """Names and networks that are reached without a proxy."""
    return matching(value, what, _NO_PROXY, "names, addresses and networks with commas between them")


def node(value: object, what: str) -> str:
    """A name or address, as a node reports it."""
    return matching(value, what, _NODE, "a host name or an address")


def reached(value: object, what: str) -> str:
    """The address at which others reach this node; not IPv6, as rsync's daemon cannot be bound to it alone."""
    return matching(value, what, _REACHED, "a host name or an address of IPv4, such as 10.20.0.11")


def routed(value: object, what: str) -> str:
    """The address of a node's default route; ``what`` is the option that replaces it where there is none."""
    if not value:
        raise Refusal(
            "no_default_route",
            "This node has no default route of IPv4, so that other nodes cannot know at which address they take "
            f"weights from it. Set {what} to a name or an address of IPv4 at which they reach it; or set a "
            "gaudi_weights_site of its own, and it fetches weights by itself.",
        )
    return reached(value, what)


def program(value: object, what: str) -> str:
    """The path of a program on the node."""
    return matching(value, what, _PROGRAM, "an absolute path of letters, digits and ._+-, such as /usr/bin/python3")


def word(value: object, what: str) -> str:
    """A word such as the name of a package or of a suite."""
    return matching(value, what, _WORD, "one word of letters, digits and .:+=~_/-")


def fingerprint(value: object, what: str) -> str:
    """The fingerprint of an OpenPGP key, without blanks."""
    said = value.replace(" ", "").upper() if isinstance(value, str) else value
    return matching(said, what, _FINGERPRINT, "40 or 64 hexadecimal digits, as gpg --show-keys prints them")


Reader = Callable[[object, str], str]
# By the name that the filter `checked` takes.
KINDS: Mapping[str, Reader] = {
    "address": address,
    "index": index,
    "no_proxy": no_proxy,
    "program": program,
    "proxy": proxy,
    "routed": routed,
    "site_proxy": site_proxy,
    "word": word,
}


def is_loopback(host: str) -> bool:
    """Whether a host (a name or an address without brackets) is the machine itself; traffic to it does not leave it."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_routable(address: str) -> bool:
    """Whether an address can be another machine's: none of loopback, link-local, multicast or a reserved network.

    Reserved are also the networks of IPv6 that hold addresses of IPv4, such as ::ffff:0:0/96 and 64:ff9b::/96. An
    address with a scope (fe80::1%eth0) is of a link. Raises ValueError for a name.
    """
    read = ipaddress.ip_address(address)
    local = "%" in address or read.is_loopback or read.is_link_local
    special = read.is_unspecified or read.is_multicast or read.is_reserved
    return not (local or special or any(read in network for network in _SPECIAL))


def is_unencrypted(address: str) -> bool:
    """Whether a request to an address leaves this machine without encryption, so that others can read it."""
    split = urlsplit(address)
    return split.scheme not in ("https", "ssh", "file") and not is_loopback(split.hostname or "")


def without_login(address: str) -> str:
    """Return the address without an account, fit for a file that everybody may read."""
    scheme, separator, rest = address.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{separator}{place.rpartition('@')[2]}{slash}{path}"


def without_accounts(text: str) -> str:
    """Return a text without the accounts of its addresses, which apt, dnf, git and pip quote in their messages."""
    return _ACCOUNT.sub("", text)


def login(address: str) -> tuple[str, str]:
    """The name and the password in an address; both empty without an account."""
    split = urlsplit(address)
    return unquote(split.username or ""), unquote(split.password or "")


def apt_login(address: str) -> str:
    """Return the line of /etc/apt/auth.conf.d for an address with an account; "" without one (apt_auth.conf(5)).

    Raises Refusal for a name or a password with blanks, which this file cannot express.
    """
    if urlsplit(address).username is None:
        return ""
    name, password = login(address)
    for said in (name, password):
        if not said or not said.isascii() or any(letter.isspace() or not letter.isprintable() for letter in said):
            raise Refusal(
                "account_not_for_apt",
                "The account in the address of a package index has an empty name or password, or blanks and letters "
                "that apt's auth.conf cannot hold. Give it another password.",
            )
    return f"machine {without_login(address)} login {name} password {password}\n"


def check_source(name: str, endpoint: str, has_token: bool, token_over_http: bool) -> None:
    """Refuse an account in a hub's address, and a token that would cross the network unencrypted.

    ``token_over_http`` is the site's confirmation that nobody can listen. The sentence does not quote the address,
    which may hold a password.
    """
    split = urlsplit(endpoint)
    # A peer is asked by rsync, with the account's name in the address and its password in a file.
    if split.password is not None or ("@" in split.netloc and split.scheme != "rsync"):
        raise Refusal(
            "account_in_address",
            f"The endpoint of source {name} has an account in it, which logs and processes would show. Write the "
            f"address alone, and the account as token (and user).",
        )
    if has_token and is_unencrypted(endpoint) and not token_over_http:
        raise Refusal(
            "token_in_the_clear",
            f"Source {name} has a token and an endpoint without TLS: anybody on the way reads the token. Use https, or "
            f"say token_over_http: true where the way is the site's own.",
        )
