"""The directory that a server starts in: Python imports from it before anything else.

It is a directory of the node only where the server profiles, as the profiler writes its traces there. So an earlier
container could have left modules for a later one. Each start gets an empty directory; the earlier one stays beside it.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

from gaudi.faults import words
from gaudi.serving.failure import configuration
from gaudi.serving.plan import Plan, start_directory

from .systemd import say

MODE = 0o750


def prepare(plan: Plan) -> None:
    """Have a container start in an empty directory. Raises Failure if that is not possible."""
    source = start_directory(plan.container)
    if not source:
        return
    folder = Path(source)
    try:
        if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir() or any(folder.iterdir())):
            # No instance has a dot in its name.
            previous = folder.with_name(f"{folder.name}.{datetime.now(timezone.utc):%Y%m%dT%H%M%S.%fZ}")
            folder.rename(previous)
            say(f"What the last container wrote to {folder} is in {previous}.")
        folder.mkdir(mode=MODE, parents=True, exist_ok=True)
        folder.chmod(MODE)
    except OSError as failed:
        said = (
            f"{folder}, in which the server is to start, cannot be prepared as an empty directory ({failed.strerror})."
        )
        raise configuration("mount", f"{said} {words.remedy('mount')}") from failed
