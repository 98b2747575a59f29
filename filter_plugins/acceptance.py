"""The page of several nodes' verdicts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.fabric import report


def acceptance_page(verdicts: Sequence[Mapping[str, Any]], made: str) -> str:
    """Return the page of these nodes; made: when, in ISO 8601."""
    page: str = report.report(verdicts, None, made)
    return page


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """Name the filters."""
        return {"acceptance_page": acceptance_page}
