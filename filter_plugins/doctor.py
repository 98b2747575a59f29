"""Put together what is wrong with a node, from everything that looked at it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.doctor import bundle, findings, judged
from ansible.module_utils.gaudi.doctor.findings import Finding


def doctor_findings(
    node: Mapping[str, Any], preflight: Mapping[str, Any], tuning: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return all findings of a node, from what node_faults_info, gaudi_preflight and host_tuning_info answered."""
    try:
        return [each.as_dict() for each in judged.of_node(node, preflight, tuning)]
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def doctor_report(found: Sequence[Mapping[str, Any]], node: str) -> list[str]:
    """Return the findings of a node as lines for people."""
    return list(findings.report(node, [Finding(**each) for each in found]))


def doctor_bundle(found: Sequence[Mapping[str, Any]], node: str, text: str) -> str:
    """Return a support bundle: the findings with secrets masked, then ``text``, in which they are masked already."""
    return str(bundle.of_node(doctor_report(found, node), text))


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {"doctor_bundle": doctor_bundle, "doctor_findings": doctor_findings, "doctor_report": doctor_report}
