"""Which instances come back with the driver from before, and which stay stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.serving.openness import left_stopped


def restored_plans(before: Mapping[str, Mapping[str, Any]], desired: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the plans to restore, and for each instance that stays stopped a sentence.

    before: plans from before the change, by instance. desired: the plans of this run.
    """
    left = left_stopped(before, desired)
    return {"plans": [plan for name, plan in before.items() if name not in left], "left": left}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """Name the filters."""
        return {"restored_plans": restored_plans}
