"""What a measurement for static FP8 runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.calibration import run
from ansible.module_utils.gaudi.serving import closed_ports


def calibration_document(
    plan: Mapping[str, Any],
    prompts: int | str,
    dataset: str,
    extension_directory: str,
    sources: Sequence[Mapping[str, Any]],
    weights_root: str,
    require_pins: bool,
) -> dict[str, Any]:
    """Return the document of calibrate.py for a plan and the options of the role fp8_calibration."""
    options = run.Options(int(prompts), dataset, extension_directory, sources, weights_root, require_pins)
    try:
        return run.describe(plan, options)
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def closing_rules(plan: Mapping[str, Any]) -> str:
    """Return nft's input that closes the ports between the processes of a plan to other machines."""
    return closed_ports.closed(plan["instance"], closed_ports.ClosedPorts(*plan["listen"]["closed_ports"]))


def opening_rules(plan: Mapping[str, Any]) -> str:
    """Return nft's input that removes these rules."""
    return closed_ports.opened(plan["instance"])


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name the filters."""
        return {
            "calibration_document": calibration_document,
            "closing_rules": closing_rules,
            "opening_rules": opening_rules,
        }
