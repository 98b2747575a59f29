"""The part ``next_boot`` of a node's report: the kernels of now and of the next boot, and their drivers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..driver import next_boot


def read(module: AnsibleModule) -> dict[str, Any]:
    """Return driver.next_boot.NextBoot. It asks DKMS, which may not answer: so it is a part of its own."""
    return asdict(next_boot.read(module))
