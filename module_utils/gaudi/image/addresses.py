"""Where a build gets things from, as the files that git, pip and apt read. They may hold passwords."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence

from ..base import values
from ..base.checks import Reader, mapping

# What stands between the scheme and the path of an address.
_AUTHORITY = re.compile(r"://([^/\s'\"]+)")


def git_config(mirrors: Mapping[str, object], accounts: Sequence[object]) -> str:
    """A configuration of git: which addresses stand in for which, and the accounts on hosts.

    mirrors: the beginning of an address to the one that takes its place. accounts: address, username and password each.
    A header is never shown, where an address with a password in it would be.
    """
    lines = []
    for origin, mirror in mirrors.items():
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
    """A configuration of pip: the first index, further ones; empty where the image's own is to count."""
    addresses = [
        values.address(index, f"serving_image_python_indexes[{number}]") for number, index in enumerate(indexes)
    ]
    if not addresses:
        return ""
    # % begins an interpolation in these files.
    first, *others = (address.replace("%", "%%") for address in addresses)
    plain = [_host(address) for address in addresses if address.startswith("http://")]
    lines = ["[global]", f"index-url = {first}"]
    if others:
        lines += ["extra-index-url =", *(f"    {address}" for address in others)]
    if plain:
        # pip passes over an index without TLS unless it is told not to.
        lines += ["trusted-host =", *(f"    {host}" for host in dict.fromkeys(plain))]
    return "".join(f"{line}\n" for line in lines)


def hosts(text_: str) -> list[str]:
    """The names of hosts in addresses, wherever they stand in a text, each once; no bare numbers."""
    names = {authority.rpartition("@")[2].partition(":")[0] for authority in _AUTHORITY.findall(text_)}
    return sorted(name for name in names if re.search("[A-Za-z]", name))


def unknown_to_builds(names: Sequence[str], hosts_file: str, resolv_conf: str) -> list[str]:
    """Names that the node knows and a build would not.

    BuildKit gives builds no hosts file of the node, and no name server that only answers on the node itself.

    resolv_conf: of systemd-resolved, where that is what answers on the node.
    """
    servers = re.findall(r"^nameserver\s+(\S+)", resolv_conf, re.MULTILINE)
    if servers and all(server.startswith("127.") or server == "::1" for server in servers):
        return list(names)
    lines = [line.partition("#")[0].split() for line in hosts_file.splitlines()]
    own = {name for line in lines for name in line[1:]}
    return [name for name in names if name in own]


def _host(address: str) -> str:
    return address.split("/")[2].rpartition("@")[2]
