"""The cards of an instance: which ones, what the server is told of them, and the cores beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.refusal import Refusal
from ..cards.placement import CardGroups, PlacementCard, choose, cpu_binding, read_cards
from ..catalogue.entries import CardType, ReleaseEntry
from ..families.registry import family_of
from ..model.facts import ModelFacts
from ..request.node import Node
from ..request.options import InstanceRequest
from ..rules.draft import Draft, given, rule
from .links import cards_together, joined_cards
from .refusals import check_card_names, check_heads, inputs_of, one_node_only

# More cards than this on one node are beyond every manual and script.
MOST_TRIED = 8
ALL_DEVICES = given("all-devices", "script:")


def card_name(topology: Mapping[str, Any]) -> str:
    """The name of the node's cards as hl-smi prints it; empty where none is known."""
    names = {card.get("name") for card in topology.get("cards") or [] if card.get("name")}
    return sorted(names)[0] if names else ""


def all_modules(topology: Mapping[str, Any]) -> tuple[int, ...]:
    """The module ids of all cards of the node."""
    ids = (card.get("module_id") for card in topology.get("cards") or [])
    return tuple(sorted(module_id for module_id in ids if isinstance(module_id, int)))


def place(
    request: InstanceRequest,
    release: ReleaseEntry,
    model: ModelFacts,
    node: Node,
    card_type: CardType | None,
    label: str,
    draft: Draft,
) -> tuple[list[PlacementCard], list[PlacementCard]]:
    """The chosen cards and all cards; ``card_type`` is that of the node."""
    fixed = release.constants.get("tensor_parallel_size")
    asked = request.tensor_parallel_size
    if fixed is not None and asked not in (None, fixed):
        raise Refusal(
            "card_count_fixed",
            f"{label}: tensor_parallel_size is {asked}, but release {release.name} always serves on {fixed} cards. "
            f"Leave it out, or use another release.",
        )
    copies = request.data_parallel_size or 1
    named = len(request.modules) // copies if request.modules else 1
    size = int(fixed or asked or max(named, 1))
    count = size * copies
    if request.modules is not None and len(request.modules) != count:
        raise Refusal(
            "card_counts_differ",
            f"{label}: modules names {len(request.modules)} cards, but {_wanted(size, copies)}. "
            f"Name as many modules as the instance has cards.",
        )
    cards = read_cards(node.topology, node.reservations, request.instance, node.planned, node.named)
    if not cards:
        raise Refusal(
            "no_cards",
            f"{label} asks for {count} card{'s' if count > 1 else ''}, but none was found on the node. "
            f"Check that the driver is loaded and that hl-smi lists the cards.",
        )
    if request.modules is None and count > len(cards):
        raise Refusal(
            "too_few_cards",
            f"{label} asks for {count} cards, but the node has {len(cards)} "
            f"(modules {_list([card.module_id for card in cards])}). {one_node_only(release)} "
            f"Serve it on a node with more cards.",
            "Or lower tensor_parallel_size.",
        )
    check_heads(model, size, len(cards), label, release)
    own = node.reservations.modules.get(request.instance or "", ())
    _check_serials(cards, own, node.reservations.serials, label)
    within = _within(request, label, draft, count, fixed=fixed is not None)
    joined = joined_cards(card_type, cards, node)
    apart = count // cards_together(model, size, copies)
    chosen = choose(
        cards, count, what=label, wanted=request.modules, within=within, own=own, joined=joined, copies=apart
    )
    check_card_names(chosen, label)
    _say_choice(draft, request, cards, chosen, own, label)
    if request.modules is not None:
        _warn_of_sockets(draft, cards, chosen, joined, count // apart)
    if count > MOST_TRIED:
        draft.warn(f"{count} cards on one node are more than any manual serves with: nobody is known to have tried.")
    return chosen, cards


def _check_serials(cards: Sequence[PlacementCard], own: Sequence[int], serials: Mapping[int, str], label: str) -> None:
    """Refuse a card that was exchanged since the instance reserved it; ``serials`` are those of the reservations."""
    for card in cards:
        held = serials.get(card.module_id)
        if card.module_id in own and held and card.serial and held != card.serial:
            raise Refusal(
                "serial_changed",
                f"{label}: module {card.module_id} had the serial {held} when it was reserved, now it has "
                f"{card.serial}: the card was exchanged. Release the instance's reservation and plan again.",
            )


def _say_choice(
    draft: Draft,
    request: InstanceRequest,
    cards: Sequence[PlacementCard],
    chosen: Sequence[PlacementCard],
    own: Sequence[int],
    label: str,
) -> None:
    """Record which cards were chosen and why; warn if an instance cannot get its former cards back."""
    modules = [card.module_id for card in chosen]
    if request.modules is None and len(own) == len(chosen) and sorted(own) != sorted(modules):
        lost = "; ".join(f"{card.module_id}: {card.taken}" for card in cards if card.module_id in own and card.taken)
        draft.warn(
            f"{label} holds modules {_list(own)}, which it cannot have back ({lost or 'not there'}): it moves to "
            f"{_list(modules)}."
        )
    draft.note(
        "modules",
        modules,
        "modules-given" if request.modules else "emptiest-node-first",
        "the request" if request.modules else "gaudi-serving: one NUMA node, the emptiest that fits",
        {
            "count": len(chosen),
            "free": [card.module_id for card in cards if card.taken is None],
            "numa_nodes": {str(card.module_id): card.node for card in chosen},
            "own": list(own),
        },
    )


def _warn_of_sockets(
    draft: Draft, cards: Sequence[PlacementCard], chosen: Sequence[PlacementCard], joined: CardGroups, together: int
) -> None:
    """Warn of modules on several NUMA nodes where one node has as many cards that are joined no worse.

    The manuals ask for one node as far as possible (v1.22 §2.1); their script then leaves the server unbound.
    """
    nodes = sorted({card.node for card in chosen if card.node is not None})
    if len(nodes) < 2:
        return
    apart = joined.spans([card.module_id for card in chosen], together) or together < len(chosen)
    sets: dict[tuple[int | None, int], list[int]] = {}
    for card in cards:
        key = (card.node, -1 if apart else joined.group_of(card.module_id))
        sets.setdefault(key, []).append(card.module_id)
    better = [_list(modules) for (node, _), modules in sorted(sets.items(), key=str) if node is not None]
    better = [modules for modules in better if modules.count(",") + 1 >= len(chosen)]
    if better:
        draft.warn(
            f"modules names {_list([card.module_id for card in chosen])}, which are on NUMA nodes "
            f"{' and '.join(map(str, nodes))}: the server is bound to cores of each, and no node's memory is "
            f"preferred. Cards of one node: {' or '.join(better)}."
        )


def _wanted(size: int, copies: int) -> str:
    """How many cards are asked for, in the words of a request."""
    one = f"tensor_parallel_size is {size}"
    return one if copies == 1 else f"{one} and data_parallel_size {copies}, {size * copies} cards in all"


def _within(request: InstanceRequest, label: str, draft: Draft, count: int, *, fixed: bool) -> tuple[int, ...] | None:
    """The cards that variables of the caller narrow the choice to."""
    environment = request.extra_environment
    if "HABANA_VISIBLE_DEVICES" in environment:
        raise Refusal(
            "cards_by_index",
            f"{label}: extra_environment sets HABANA_VISIBLE_DEVICES, which counts device indexes that change over "
            f"reboots; they are looked up at every start. Use modules.",
        )
    listed_text = environment.get("HABANA_VISIBLE_MODULES") or environment.get("HLS_MODULE_ID")
    if not listed_text or listed_text.lower() == "all":
        return None
    listed = InstanceRequest.from_mapping({"modules": listed_text}).modules or ()
    if request.modules is not None:
        if sorted(request.modules) != sorted(listed):
            draft.warn(
                f"extra_environment narrows the cards to modules {_list(listed)}, but the option modules names "
                f"{_list(request.modules)}: the option counts. Leave the variable out."
            )
        return None
    if fixed and len(listed) != count:
        draft.warn(
            f"extra_environment narrows the cards to modules {_list(listed)}, but this release always serves on "
            f"{count}: all {count} are used. Use another release for fewer cards."
        )
        return None
    return listed


def _list(modules: Sequence[int]) -> str:
    return ",".join(str(module_id) for module_id in modules)


@rule("module-ids", "script:set_module_ids")
def module_ids(modules: Sequence[int]) -> str:
    """Module ids, in the order of the request."""
    return _list(modules)


def module_variables(
    draft: Draft, chosen: Sequence[PlacementCard], cards: Sequence[PlacementCard], release: ReleaseEntry
) -> None:
    """Module ids for the framework: a list for several cards, HLS_MODULE_ID for one."""
    name = "HLS_MODULE_ID" if len(chosen) == 1 else "HABANA_VISIBLE_MODULES"
    draft.variable(name, module_ids(modules=[card.module_id for card in chosen]))
    if release.constants.get("visible_devices") and len(chosen) == len(cards):
        # With every card of the node chosen, "all" is what the supervisor's own list of indexes means as well.
        draft.variable("HABANA_VISIBLE_DEVICES", ALL_DEVICES(value=release.constants["visible_devices"]))


def bind_cpus(
    draft: Draft, release: ReleaseEntry, cards: Sequence[PlacementCard], chosen: Sequence[PlacementCard]
) -> list[str]:
    """The command that binds the server to the cores near its cards; empty where they are not known."""
    binding = cpu_binding(cards, chosen)
    by_script = family_of(release).script_binds_cpus
    source = "script:set_numactl; ranked within the node" if by_script else "gaudi-serving: a share of the node's cores"
    draft.note("cpu_binding", binding, "cores-by-rank", source, {"cards": inputs_of(chosen)})
    if not binding:
        draft.warn("The node's CPU lists are not known, so that the server is not bound to cores near its cards.")
    return binding
