"""Addresses that a build uses, as configuration files of git, pip and apt; they may contain passwords."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from ..base import values
from ..base.checks import Reader, mapping, shown
from ..base.refusal import Refusal

# An armoured OpenPGP key. apt reads only the first block of a file.
_KEY = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[A-Za-z]+: [^\n]*\n)*\n[A-Za-z0-9+/=\n]+\n"
    r"-----END PGP PUBLIC KEY BLOCK-----"
)
# The part of an address between its scheme and its path.
_AUTHORITY = re.compile(r"://([^/\s'\"]+)")
# An IPv4 or IPv6 address; names contain letters beyond F and no colon.
_NUMBERS = re.compile(r"[0-9.]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
# Beginnings of addresses that git accepts: a scheme, an ssh host, a directory.
_ORIGIN = re.compile(r"[a-z][a-z0-9+-]*://\S*|[^\s:/]+:\S*|/\S*")
# One line of a sources.list: its type, its options, and what follows.
_SOURCE = re.compile(r"(deb(?:-src)?)\s+(?:\[([^\]]*)\]\s*)?([a-z][a-z0-9+-]*:\S+\s+\S.*)")
_SIGNED_BY = re.compile(r"(?:^|\s)signed-by[+-]?=", re.IGNORECASE)

APT_KEY = "/etc/apt/gaudi-serving.asc"
"""Where a step of a build has the key of the site's sources while it fetches (steps.sh). No image has it."""


def git_config(mirrors: Mapping[str, object], accounts: Sequence[object]) -> str:
    """Return git's configuration: replacements of addresses, and accounts on hosts.

    mirrors: replacement by beginning of an address. accounts: address, username and password each. Accounts become
    headers, as git never prints a header, but prints an address with its password.
    """
    lines = []
    for origin, mirror in mapping(mirrors, "serving_image_git_mirrors").items():
        if not _ORIGIN.fullmatch(str(origin)):
            raise Refusal(
                "wrong_mirror",
                f"serving_image_git_mirrors has {shown(origin)}, which is no beginning of an address such as "
                "https://github.com/.",
            )
        address = values.index(mirror, f"serving_image_git_mirrors.{origin}")
        lines += [f"[url {json.dumps(address)}]", f"\tinsteadOf = {json.dumps(origin)}"]
    for position, account in enumerate(accounts):
        where = f"serving_image_git_accounts[{position}]"
        reader = Reader(mapping(account, where), where, ("address", "username", "password"))
        host = values.address(reader.raw("address"), f"{where}.address")
        name = values.secret(reader.raw("username"), f"{where}.username") if reader.has("username") else ""
        pair = f"{name}:{values.secret(reader.raw('password'), f'{where}.password')}"
        header = f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}"
        lines += [f"[http {json.dumps(host)}]", f"\textraHeader = {header}"]
    return "".join(f"{line}\n" for line in lines)


def pip_config(indexes: Sequence[object]) -> str:
    """Return pip's configuration with the first index and further ones; "" to keep the image's own."""
    if not isinstance(indexes, (list, tuple)):
        raise Refusal(
            "indexes_no_list",
            "serving_image_python_indexes must be a list of addresses, and is not: write [ADDRESS], or - ADDRESS a "
            "line. Its value is not shown: it may hold a secret.",
        )
    addresses = [
        values.address(index, f"serving_image_python_indexes[{number}]") for number, index in enumerate(indexes)
    ]
    if not addresses:
        return ""
    first, *others = addresses
    plain = [_host(address) for address in addresses if address.startswith("http://")]
    lines = ["[global]", f"index-url = {first}"]
    if others:
        lines += ["extra-index-url =", *(f"    {address}" for address in others)]
    if plain:
        # pip ignores an index without TLS unless it is a trusted host.
        lines += ["trusted-host =", *(f"    {host}" for host in dict.fromkeys(plain))]
    return "".join(f"{line}\n" for line in lines)


def apt_sources(text_: str, key: str = "") -> str:
    """Return a sources.list with one source a line. Raises Refusal for a line in another form.

    key: the site's key. It is trusted for every source without a keyring of its own, and for no other source.
    """
    lines = []
    for number, line in enumerate(text_.splitlines(), 1):
        said = line.partition("#")[0].strip()
        source = _SOURCE.fullmatch(said)
        if said and not source:
            raise Refusal(
                "wrong_source",
                f"serving_image_apt_sources, line {number}, must be a source such as deb "
                "http://mirror.example/ubuntu jammy main, and is not. Its value is not shown: it may hold a secret.",
            )
        if source:
            type_, options, rest = source.groups(default="")
            own = not key or _SIGNED_BY.search(options)
            lines.append(said if own else f"{type_} [{f'{options} signed-by={APT_KEY}'.strip()}] {rest}")
    if key and not lines:
        raise Refusal(
            "key_without_sources",
            "serving_image_apt_key is trusted for the sources of serving_image_apt_sources alone, and that is empty. "
            "Name the sources there that the key signs, or leave the key out.",
        )
    return "".join(f"{line}\n" for line in lines)


def apt_key(text_: str) -> str:
    """Return the text of a file with one block of public keys, for apt; "" for none.

    Raises Refusal for anything else; its text is not shown, as it may be a private key.
    """
    said = "".join(f"{line.strip()}\n" for line in text_.strip().splitlines())
    if said and not _KEY.fullmatch(said.strip()):
        raise Refusal(
            "wrong_apt_key",
            "serving_image_apt_key must be one block of public keys, as gpg --armor --export KEY prints it "
            "(-----BEGIN PGP PUBLIC KEY BLOCK-----), and is not. Its value is not shown: it may hold a secret.",
        )
    return said


def hosts(text_: str) -> list[str]:
    """Return the hosts of all addresses in a text, each once, without brackets."""
    return sorted({host for authority in _AUTHORITY.findall(text_) for host in [_bare(authority)] if host})


def asked(said: Mapping[str, object]) -> dict[str, str]:
    """Return the hosts that a build contacts, each with the options that name it.

    said: values by option, with addresses anywhere in them; the value of an option ``..._proxy`` may lack its scheme.
    """
    found: dict[str, list[str]] = {}
    for option, value in said.items():
        whole = not option.endswith("_proxy") or not value or "://" in str(value)
        for host in hosts(str(value) if whole else f"http://{value}"):
            found.setdefault(host, []).append(option)
    return {host: " and ".join(options) for host, options in sorted(found.items())}


def check_reached(network: str, found: Iterable[tuple[str, str, str]]) -> None:
    """Refuse a build that would contact its own loopback, where nothing listens.

    network: the build's network, "default" for the engine's own, "host" for the node's. found: hosts as the site names
    them, each with its address on the node (or its name again) and the options that name it.
    """
    lost = [each for each in found if values.is_loopback(each[1])]
    if network == "default" and lost:
        host, address, options = lost[0]
        where = f"in {options}" if host == address else f"in {options}; {address} on the node"
        raise Refusal(
            "mirror_on_loopback",
            f"A build is to get things from {host} ({where}), which is the node's own loopback, and builds are in the "
            "engine's network, which has another. Name an address of the node there that others reach, or set "
            "serving_image_build_network: host.",
        )


def unknown_to_builds(names: Sequence[str], hosts_file: str, resolv_conf: str) -> list[str]:
    """Return names that the node resolves and a build would not.

    BuildKit passes builds neither the node's hosts file nor a name server that only answers on the node itself.
    resolv_conf: systemd-resolved's, if that is the node's resolver.
    """
    names = [name for name in names if not _NUMBERS.fullmatch(name)]
    servers = re.findall(r"^nameserver\s+(\S+)", resolv_conf, re.MULTILINE)
    if servers and all(values.is_loopback(server) for server in servers):
        return names
    lines = [line.partition("#")[0].split() for line in hosts_file.splitlines()]
    own = {name for line in lines for name in line[1:]}
    return [name for name in names if name in own]


def _bare(authority: str) -> str:
    """Return a host without account, port and IPv6 brackets."""
    place = authority.rpartition("@")[2]
    return place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]


def _host(address: str) -> str:
    return address.split("/")[2].rpartition("@")[2]
