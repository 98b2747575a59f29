"""The long work in a node's report, as the controller reads it."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.documents import misfit
from ..base.printable import printable
from ..base.reported import UNREADABLE, document
from .decisions import described

# Characters of a key, which is the name of a folder. A table is as wide as the longest one, in each line.
_LONGEST_KEY = 255
_FORM = {"jobs": [{"key": str, "active": str, "state": dict, "progress": dict, "now": (int, float)}]}


def jobs_in(part: object) -> list[dict[str, str]]:
    """Return the jobs of a report's part, described. Raises ValueError for one that has an error, or another form."""
    found = document({"jobs": part})["jobs"]
    if isinstance(found, Mapping) and "error" in found:
        raise ValueError(printable(str(found["error"])))
    if misfit(found, _FORM) or any(len(job["key"]) > _LONGEST_KEY for job in found["jobs"]):
        raise ValueError(f"the node {UNREADABLE}")
    return [described(job) for job in found["jobs"]]
