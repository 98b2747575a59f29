"""Name the long work on a folder of weights after the folder."""

from __future__ import annotations

import re
from collections.abc import Callable


def job_key(folder: str) -> str:
    """Return the folder's name in the letters a job's key, and so a unit's name, may have.

    >>> job_key("Qwen3-235B_A22B..FP8.")
    'qwen3-235b-a22b.fp8'
    """
    return re.sub("[.]+", ".", re.sub("[^a-z0-9.-]+", "-", folder.lower())).rstrip(".-")


class FilterModule:
    """What Ansible finds here."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"job_key": job_key}
