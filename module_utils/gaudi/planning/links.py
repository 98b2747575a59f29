"""What carries the data between an instance's cards: their own links, PCIe and UPI of the host, or host NICs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..cards.placement import ALL_JOINED, CardGroups, PlacementCard
from ..catalogue.entries import CardType
from ..catalogue.fabric import HOST
from ..model.facts import ModelFacts
from ..request.node import Node
from ..request.resolved import ResolvedRequest

# On PCIe cards, FP8 models above this many parameters are served over host NICs (manual v1.22 §3.1.1). On OAM boards
# one node needs none (README of vllm-fork 016b6bd20 scripts/quickstart, hardware requirements).
LARGE_FP8_PARAMETERS = 300 * 10**9


@dataclass(frozen=True)
class CardPath:
    """What a plan says of the data between its cards: whether host NICs carry it, and its warning, "" without one."""

    host_nics: bool
    warning: str = ""


def joined_cards(card_type: CardType | None, cards: Sequence[PlacementCard], node: Node) -> CardGroups:
    """Return which of a node's cards are joined; all are if the catalogue does not know their links."""
    fabric = card_type.fabric if card_type is not None else None
    if fabric is None:
        return ALL_JOINED
    across = node.host_nics or fabric.between_groups == HOST
    return CardGroups(fabric.grouped(card.module_id for card in cards), across)


def cards_together(model: ModelFacts, size: int, copies: int) -> int:
    """Cards that talk to each other: those of one copy, of a model with experts those of all.

    Such copies gather each other's tokens before the experts (dispatch and combine, hpu_communicator.py of the plugin).
    """
    return size * copies if model.shape.num_experts else size


def path_between(
    resolved: ResolvedRequest,
    chosen: Sequence[PlacementCard],
    cards: Sequence[PlacementCard],
    card_type: CardType | None,
    node: Node,
) -> CardPath:
    """Return what carries the data between the chosen cards; ``cards`` are all cards of the node."""
    joined, model = joined_cards(card_type, cards, node), resolved.model
    modules = [card.module_id for card in chosen]
    together = cards_together(model, resolved.cards, resolved.request.data_parallel_size or 1)
    if card_type is None or card_type.fabric is None or not joined.spans(modules, together):
        return CardPath(host_nics=False)
    parameters, figure = model.shape.parameters, card_type.fabric.over_host()
    if model.stored_fp8 and parameters and parameters > LARGE_FP8_PARAMETERS:
        warning = (
            f"{model.name} is an FP8 model above 300 B parameters on PCIe cards: host NICs with libfabric must be "
            f"verified before it starts (fabric_check_host_nics: true)."
        )
        return CardPath(True, "" if node.host_nics else warning)
    apart = f"The {resolved.card_name} cards {', '.join(map(str, modules))} have links of their own in groups only"
    if node.host_nics or figure is None:
        return CardPath(
            True,
            f"{apart}, and talk over host NICs beyond those: libfabric and hccl_ofi_wrapper must be in the image and "
            f"the NICs verified before they start.",
        )
    return CardPath(
        False,
        f"{apart}, and talk over PCIe and UPI of the host beyond those: about {figure.nw_gb_s:g} GB/s for "
        f"{figure.ranks} cards (all_reduce), which is slow. Use cards of one group, or have host NICs measured "
        f"(fabric_check_host_nics: true).",
    )
