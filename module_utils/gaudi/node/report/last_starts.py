"""The part ``last_starts`` of a node's report: what the last start of each instance logged."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..states import last_starts


def read(_module: AnsibleModule) -> dict[str, Any]:
    """Return the digest of what each last start was sized by, and its KV blocks, by instance."""
    return {name: {"sized_by": start.sized_by, "kv_blocks": start.kv_blocks} for name, start in last_starts().items()}
