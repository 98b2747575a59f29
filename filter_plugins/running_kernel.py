"""Say why the kernel that runs on a node keeps cards from being used, from the result of node_report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base import reported
from ansible.module_utils.gaudi.base.checks import mapping
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.host.reported import Tuning, tuning
from ansible.module_utils.gaudi.preflight import kernel


def _tuning(result: Mapping[str, object]) -> Tuning:
    """Return the part tuning, or fail with why the node cannot report it."""
    try:
        return tuning(reported.part(mapping(result.get("report"), "The node's report"), "tuning"))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def cards_translated(result: Mapping[str, object], release: str, allowed: Collection[str]) -> str:
    """Return why cards must not be used behind an IOMMU that translates; empty if they may."""
    return str(reported.sentence(kernel.cards_translated(_tuning(result), release, allowed)))


def serving_refused(result: Mapping[str, object]) -> str:
    """Return why nothing may be served on the kernel that runs; empty if it may."""
    return str(reported.sentence(kernel.serving_refused(_tuning(result))))


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """Name the filters."""
        return {"cards_translated": cards_translated, "serving_refused": serving_refused}
