"""The part ``acceptance`` of a node's report: the last verdict on its cards and links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ...base import paths
from .errors import text

VERDICT = Path(paths.ACCEPTANCE)


def read(_module: AnsibleModule) -> dict[str, Any]:
    """Return the text of the verdict, which fabric.verdict.read_verdict parses."""
    return text(VERDICT)
