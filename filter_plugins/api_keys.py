"""Turn the keys that an inventory has for an instance into what a node gets: names and digests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.serving import keys


def api_keys(given: Any, instance: str) -> list[dict[str, str | None]]:
    """Return name, digest and end of each key; no key leaves the controller.

    >>> api_keys(["correct-horse-battery"], "chat")[0]["name"]
    'inventory-1'
    """
    try:
        given_keys = keys.for_instance(given, str(instance))
    except Refusal as refusal:
        # Its cause would be shown, too.
        raise AnsibleFilterError(refusal.message_with_id) from None
    return [{name: value for name, value in asdict(key).items() if name != "origin"} for key in given_keys]


def api_keys_digests(given: Any, instances: list[str]) -> dict[str, str]:
    """Return what stands for the keys of each instance, so that a node compares them without being told any.

    >>> api_keys_digests([], ["chat"]).keys()
    dict_keys(['chat'])
    """
    try:
        return {str(name): keys.digest_of_inventory(keys.for_instance(given, str(name))) for name in instances}
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def api_keys_exported(value: Any, node: str) -> list[str]:
    """Return the inventory entries that a node reports, once each has the form of one.

    >>> api_keys_exported(["sha256:" + "0" * 64 + " alice"], "node-1")[0][-5:]
    'alice'
    """
    try:
        return keys.exported(value, str(node))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


class FilterModule:
    """What Ansible finds here."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {
            "api_keys": api_keys,
            "api_keys_digests": api_keys_digests,
            "api_keys_exported": api_keys_exported,
        }
