"""Give playbooks the decisions of the fan-out: what is fetched, by which nodes, who takes from whom, who measures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.fanout import addresses, images, measuring, recipes, rounds, supply


def weights_wanted(hosts: supply.Hosts, among: Iterable[str]) -> list[dict[str, Any]]:
    """Return what any of these hosts lacks, or fail with why they must not fetch it in one run."""
    try:
        return list(supply.weights_wanted(hosts, among))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def weights_fault(hosts: supply.Hosts, name: str, among: Iterable[str]) -> str:
    """Say why a host must not fetch weights with the others, or that it needs an address; empty without a reason."""
    among = list(among)
    refusal = supply.weights_faults(hosts, among).get(name)
    return refusal.message_with_id if refusal else addresses.without_address(hosts, name, among)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {
            "weights_fault": weights_fault,
            "weights_to_bring": supply.weights_to_bring,
            "weights_wanted": weights_wanted,
            "weights_round": rounds.weights_round,
            "weights_storage": rounds.weights_storage,
            "weights_writer": rounds.weights_writer,
            "image_shares": images.image_shares,
            "recipe_shares": recipes.recipe_shares,
            "recipes_in_turn": recipes.recipes_in_turn,
            "nodes_carrying_recipes": recipes.nodes_carrying_recipes,
            "calibration_round": measuring.calibration_round,
        }
