"""Names of the files in which apt keeps what it has read from a repository (/var/lib/apt/lists)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..base.values import without_login
from .sources import AptSource

# apt 2.6, URItoFileName in apt-pkg/contrib/strutl.cc: these, blanks, control characters and what is not ASCII.
_QUOTED = re.compile(r"[\\|{}\[\]<>\"^~_=!@#$%&*\x00-\x20\x7f-\U0010ffff]")


def prefix(source: AptSource) -> str:
    """Return what the names of all files of a source begin with."""
    _, _, address = without_login(source.uri.strip()).partition(":")
    suite = source.suite if source.suite.endswith("/") else f"dists/{source.suite}/"
    return _file_name(f"{address.removeprefix('//').rstrip('/')}/{suite}")


def only_of(names: Iterable[str], sources: Iterable[AptSource], others: Iterable[AptSource]) -> list[str]:
    """Return the names of files that belong to sources, and to none of the other sources of the node."""
    own, theirs = ({prefix(source) for source in group} for group in (sources, others))

    def longest(name: str) -> str:
        return max((start for start in own | theirs if name.startswith(start)), key=len, default="")

    return [name for name in names if longest(name) in own - theirs]


def _file_name(address: str) -> str:
    def quote(match: re.Match[str]) -> str:
        return "".join(f"%{byte:02x}" for byte in match[0].encode())

    return _QUOTED.sub(quote, address).replace("/", "_")
