"""Say why no module runs as root on a node."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.preflight import access


def no_root(printed: str, shell_has_root: bool) -> str:
    """Return the cause and what to do, in one sentence, from what the node or Ansible printed."""
    return str(access.refusal(printed, shell_has_root=shell_has_root))


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """Name the filters."""
        return {"no_root": no_root}
