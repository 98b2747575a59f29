"""Read and make the pins of a model, which lie beside its entry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.preflight import pins
from ansible.module_utils.gaudi.weights import pin_file, source_plan


def with_pins(entry: Mapping[str, Any], pins: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an entry of the catalogue with the pins of its file."""
    try:
        return pin_file.with_pins(entry, pins)
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def with_commits(entry: Mapping[str, Any], commits: object) -> dict[str, Any]:
    """Return an entry of the catalogue with the commits that the site accepts (model_weights_commits)."""
    try:
        return pin_file.with_commits(entry, pin_file.commits(commits))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def unpinned(item: Mapping[str, Any], kinds: Collection[str], required: bool) -> list[str]:
    """Return a sentence for each repository of a fetch (directory, repositories) without a commit.

    ``kinds``: the hubs that are asked. ``required``: whether checksums are required; then the sentences are refusals.
    """
    moving = pins.repository_sentences([item], kinds)
    return pins.refused([*moving, *pins.checksum_sentences([item], kinds)]) if required else moving


def with_code(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry; if code of its weights is to run, only with the repositories that such code may come from."""
    return source_plan.for_code(entry) if entry.get("trust_remote_code") else entry


def unpinned_code(entry: Mapping[str, Any]) -> str:
    """Return why code of an entry's weights may not be fetched; "" if it may, or if there is none."""
    if not entry.get("trust_remote_code"):
        return ""
    return pins.code_refusal(str(entry["name"]), entry["repositories"], str(entry["name"]))


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {
            "code_refusals": pins.code_refusals,
            "pin_block": pin_file.block,
            "pin_listing": pin_file.listing,
            "unpinned": unpinned,
            "unpinned_code": unpinned_code,
            "with_code": with_code,
            "with_commits": with_commits,
            "with_pins": with_pins,
        }
