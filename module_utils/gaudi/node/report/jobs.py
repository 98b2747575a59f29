"""The part ``jobs`` of a node's report: its long work, as jobs.decisions.described takes it."""

from __future__ import annotations

from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from .. import long_work
from ..module import systemctl


def read(module: AnsibleModule) -> dict[str, Any]:
    """Return the jobs, sorted by key."""
    return {"jobs": long_work.read_all(partial(systemctl, module))}
