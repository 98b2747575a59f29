"""Give playbooks the decisions of the fan-out: which nodes fetch, which take from which peer, which measure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.fanout import addresses, images, measuring, recipes, rounds


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {
            "without_address": addresses.without_address,
            "weights_round": rounds.weights_round,
            "weights_storage": rounds.weights_storage,
            "weights_writer": rounds.weights_writer,
            "image_shares": images.image_shares,
            "recipe_shares": recipes.recipe_shares,
            "recipes_in_turn": recipes.recipes_in_turn,
            "nodes_carrying_recipes": recipes.nodes_carrying_recipes,
            "calibration_round": measuring.calibration_round,
        }
