"""Read and make the pins of a model, which lie beside its entry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.weights import pin_file


def with_pins(entry: Mapping[str, Any], pins: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an entry of the catalogue with the pins of its file."""
    try:
        return pin_file.with_pins(entry, pins)
    except Refusal as refusal:
        raise AnsibleFilterError(str(refusal)) from None


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """Name the filters."""
        return {"pin_block": pin_file.block, "with_pins": with_pins}
