"""The lock of an image: packages that pip installed from an index, with checksums, so that a later build repeats them.

pip's report: https://pip.pypa.io/en/stable/reference/installation-report/
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .requirements import project

_LINE = re.compile(r"(?:# )?([A-Za-z0-9._-]+)==")


def installed(report: Mapping[str, Any]) -> dict[str, str]:
    """Return a line for each distribution from an index, by normalised name; checkouts are pinned by commit instead.

    A distribution without a SHA-256 from its index gets a comment line.
    """
    found = {}
    for item in report["install"]:
        if item["is_direct"]:
            continue
        name = project(item["metadata"]["name"])
        version, archive = item["metadata"]["version"], item["download_info"]["archive_info"]
        # Before 23.1 pip gave one "hash", algorithm=digits.
        hashes = archive.get("hashes") or dict([archive["hash"].split("=", 1)])
        digits = hashes.get("sha256")
        found[name] = f"{name}=={version} --hash=sha256:{digits}" if digits else f"# {name}=={version}: no SHA-256"
    return found


def added(text: str, lines: Mapping[str, str], gone: Sequence[str] = ()) -> str:
    """Return the lock with lines added; they replace those of other versions, and uninstalled ones are removed."""
    known = {project(found[1]): line for line in text.splitlines() for found in [_LINE.match(line)] if found}
    known.update(lines)
    return "".join(f"{known[name]}\n" for name in sorted(known) if name not in gone)
