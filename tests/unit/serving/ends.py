"""How a server's end is told, from its lines and what is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansible.module_utils.gaudi.faults.causes import explain
from ansible.module_utils.gaudi.faults.facts import Facts
from ansible.module_utils.gaudi.serving.failure import Reason, reason_of
from ansible.module_utils.gaudi.serving.progress import Progress


def diagnose(
    lines: Iterable[str],
    status: int,
    was_ready: bool,
    kernel_oom: int,
    progress: Progress,
    command: Sequence[str] = (),
) -> Reason:
    """The reason that the supervisor gives."""
    filling = "" if was_ready else progress.filling
    facts = Facts(
        status=status, served=was_ready, kernel_oom=kernel_oom, filling=filling, command=tuple(command) or None
    )
    return reason_of(explain(lines, facts))
