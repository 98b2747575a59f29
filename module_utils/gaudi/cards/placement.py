"""Placement: choose the cards of an instance and the CPU cores near them. A card's identity is its module id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..base.cpulist import format_ranges, parse_ranges
from ..base.refusal import Refusal
from .users import describe_user, is_own, may_stay, new_user


@dataclass(frozen=True)
class PlacementCard:
    """A card as placement sees it. ``node`` is its NUMA node; None if it is not known, or the host has none."""

    module_id: int
    serial: str | None
    name: str | None
    node: int | None
    cpus: str
    memory_total_mib: int | None
    memory_used_mib: int | None
    # Why the card is not available, in words ("used by pid 4242 python3"); None if it is free.
    taken: str | None
    # The instance that has the card reserved, if that is why it is taken; a reservation outlasts a stop.
    holder: str | None = None


@dataclass(frozen=True)
class Reservations:
    """The content of cards.lock: module ids by instance, and the serial that each module had when it was reserved."""

    modules: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    serials: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def from_document(cls, document: object) -> Reservations:
        """Read the document kept at /var/lib/gaudi-serving/cards.lock; None or an empty one holds nothing."""
        held = document.get("reservations") if isinstance(document, Mapping) else None
        modules: dict[str, tuple[int, ...]] = {}
        serials: dict[int, str] = {}
        if document is not None and not isinstance(held, Mapping):
            raise Refusal(
                "reservations_damaged",
                "The reservation file has no mapping reservations. Restore it, or free all cards and remove it.",
            )
        for instance, entry in (held or {}).items():
            cards = entry.get("cards") if isinstance(entry, Mapping) else None
            if not isinstance(cards, Sequence):
                raise Refusal(
                    "reservations_damaged",
                    f"The reservation file lists no cards for {instance}. Release that instance and start again.",
                )
            for card in cards:
                module_id = card.get("module_id") if isinstance(card, Mapping) else None
                if not isinstance(module_id, int):
                    raise Refusal(
                        "reservations_damaged", f"The reservation file holds a card without a module id for {instance}."
                    )
                modules[str(instance)] = (*modules.get(str(instance), ()), module_id)
                if card.get("serial"):
                    serials[module_id] = str(card["serial"])
        return cls(modules, serials)


def read_cards(
    topology: Mapping[str, object],
    reservations: Reservations,
    instance: str | None,
    planned: Mapping[int, str],
    named: Mapping[str, Sequence[int]],
) -> list[PlacementCard]:
    """Return the topology's cards; each that ``instance`` cannot get has the reason in ``taken``.

    ``planned``: cards that earlier requests of the same call got. ``named``: cards that its requests name, by instance.
    Three things do not block an instance: its own reservation, its own unit and container, and an instance that names
    other cards, because that one is stopped first. A request that names no cards avoids those that other requests name,
    unless it holds them already.
    """
    own = reservations.modules.get(instance or "", ())
    holder = {
        module_id: name
        for name, modules in reservations.modules.items()
        if instance is None or name != instance
        for module_id in modules
        if module_id in named.get(name, modules)
    }
    promised = {
        module_id: name
        for name, modules in named.items()
        if name != instance and instance not in named
        for module_id in modules
        if module_id not in own
    }
    cards = []
    entries = topology.get("cards")
    for entry in entries if isinstance(entries, Sequence) else ():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("module_id"), int):
            continue
        module_id = entry["module_id"]
        state = entry.get("state")
        taken = held_by = None
        leaving = [name for name, modules in named.items() if name != instance and module_id not in modules]
        if module_id in planned:
            taken = f"planned for {planned[module_id]}"
        elif module_id in promised:
            taken = f"planned for {promised[module_id]}"
        elif module_id in holder:
            held_by = holder[module_id]
            taken = f"reserved by {held_by}"
        elif state is not None and str(state).lower() != "operational":
            taken = f"in state {state!r}"
        else:
            taken = _users(entry.get("users"), instance, module_id in own, leaving)
        cards.append(
            PlacementCard(
                module_id=module_id,
                serial=entry.get("serial"),
                name=entry.get("name"),
                node=entry.get("numa_node"),
                cpus=entry.get("cpus") or "",
                memory_total_mib=entry.get("memory_total_mib"),
                memory_used_mib=entry.get("memory_used_mib"),
                taken=taken,
                holder=held_by,
            )
        )
    return sorted(cards, key=lambda card: card.module_id)


def _users(users: object, instance: str | None, is_held: bool, leaving: Sequence[str]) -> str | None:
    """Describe the first user of a card that blocks the instance; None if there is none.

    ``leaving``: instances that give the card up, and so do not count.
    """
    for user in users if isinstance(users, Sequence) else ():
        known = {**new_user(), **user} if isinstance(user, Mapping) else new_user()
        if any(is_own(known, name) for name in leaving):
            continue
        if instance is None or not may_stay(known, instance, is_held):
            return f"used by {describe_user(known)}"
    return None


@dataclass(frozen=True)
class CardGroups:
    """Groups of module ids that the cards' own links join; no groups means that the links join all cards of a node.

    ``across``: something else (host NICs, or the host) also joins the groups, so an instance may use cards of several.
    """

    groups: tuple[tuple[int, ...], ...] = ()
    across: bool = False

    def group_of(self, module_id: int) -> int:
        """Return the position of a module's group; -1 if it is in none."""
        return next((place for place, group in enumerate(self.groups) if module_id in group), -1)

    def spans(self, modules: Sequence[int], together: int) -> bool:
        """Whether cards that communicate are of several groups: each ``together`` modules in a row do."""
        sets = (modules[at : at + together] for at in range(0, len(modules), together))
        return any(len({self.group_of(module_id) for module_id in each}) > 1 for each in sets)


ALL_JOINED = CardGroups()


def choose(
    cards: Sequence[PlacementCard],
    count: int,
    *,
    what: str,
    wanted: Sequence[int] | None = None,
    within: Sequence[int] | None = None,
    own: Sequence[int] = (),
    joined: CardGroups = ALL_JOINED,
    copies: int = 1,
) -> list[PlacementCard]:
    """Choose the cards of an instance. Raises Refusal with who has which card.

    ``copies``: copies of the model; each gets an equal number of consecutive cards. The cards of one copy must be
    joined; cards of different copies do not communicate.
    ``wanted`` (the option ``modules``) is used in the given order or refused. ``within`` limits the free choice
    (HABANA_VISIBLE_MODULES of the caller). ``own``: cards that the instance already holds; it keeps them.
    The free choice takes one group of ``joined`` cards if the instance fits there, else several groups with whole
    copies in each. Within a group it takes the NUMA node with the most free cards if the instance fits there, lowest
    module ids first, else as few NUMA nodes as possible, those with the most free cards first.
    """
    by_id = {card.module_id: card for card in cards}
    if wanted is not None:
        _check_listed(by_id, wanted, what, "modules")
        if not joined.across and joined.spans(wanted, count // copies):
            raise _not_joined(f"{what}: modules names {', '.join(map(str, wanted))}", joined, copies)
        return [by_id[module_id] for module_id in wanted]
    if within is not None:
        _check_listed(by_id, within, what, "HABANA_VISIBLE_MODULES")
    allowed = [card for card in cards if within is None or card.module_id in within]
    free = [card for card in allowed if card.taken is None]
    if len(free) < count:
        raise Refusal(
            "too_few_free_cards",
            f"{what} asks for {_cards(count)}, but {_only_free(free)} {_others(allowed)}. Free cards{_how(allowed)}.",
            "Or lower tensor_parallel_size.",
        )
    size = count // copies
    kept = [card for card in free if card.module_id in own]
    if len(kept) == count:
        again = _within_groups(kept, size, copies, joined)
        if again or joined.across:
            return again or kept
    fitting = _within_groups(free, size, copies, joined)
    if fitting is None and not joined.across:
        raise _not_joined(f"{what} asks for {_cards(count)}, and {_free(free)}", joined, copies)
    return fitting or _emptiest(free, count)


def _within_groups(
    free: Sequence[PlacementCard], size: int, copies: int, joined: CardGroups
) -> list[PlacementCard] | None:
    """Return cards for all copies, each copy within one group; None if they do not fit like this.

    ``size``: cards of one copy. The group with the most free cards takes as many copies as fit.
    """
    groups: dict[int, list[PlacementCard]] = {}
    for card in free:
        groups.setdefault(joined.group_of(card.module_id), []).append(card)
    chosen: list[PlacementCard] = []
    for group in sorted(groups.values(), key=len, reverse=True):
        fit = min(len(group) // size, copies - len(chosen) // size)
        chosen += _emptiest(group, fit * size)
    return chosen if len(chosen) == size * copies else None


def _emptiest(free: Sequence[PlacementCard], count: int) -> list[PlacementCard]:
    """Return cards of the NUMA nodes with the most free cards, sorted by module id."""
    nodes: dict[int | None, list[PlacementCard]] = {}
    for card in free:
        nodes.setdefault(card.node, []).append(card)
    emptiest = sorted(nodes.values(), key=lambda node: (-len(node), node[0].module_id))
    chosen: list[PlacementCard] = []
    for node in emptiest:
        chosen += node[: count - len(chosen)]
    return sorted(chosen, key=lambda card: card.module_id)


def _not_joined(asked: str, joined: CardGroups, copies: int) -> Refusal:
    """Return the refusal for cards of several groups; ``asked`` says what was requested."""
    each = " for each copy of the model" if copies > 1 else ""
    groups = _and([f"modules {', '.join(map(str, group))}" for group in joined.groups])
    return Refusal(
        "cards_not_joined",
        f"{asked}, but these cards have links in groups only ({groups}), and nothing joins the groups but host NICs.",
        f"Use cards of one group{each}, so at most {max(map(len, joined.groups))}; or configure host NICs, and have "
        "them measured with fabric_check_host_nics: true for the node.",
    )


def _check_listed(by_id: Mapping[int, PlacementCard], wanted: Sequence[int], what: str, option: str) -> None:
    double = sorted({module_id for module_id in wanted if list(wanted).count(module_id) > 1})
    if double:
        raise Refusal("module_twice", f"{what}: {option} names module {double[0]} twice. Name every card once.")
    for module_id in wanted:
        if module_id not in by_id:
            there = ", ".join(str(known) for known in by_id) or "none"
            raise Refusal(
                "no_such_module",
                f"{what}: {option} names module {module_id}, which this node does not have. There are: {there}.",
            )
        if by_id[module_id].taken:
            raise Refusal(
                "card_taken",
                f"{what}: {option} names module {module_id}, which is {by_id[module_id].taken}. "
                f"{_only_free([card for card in by_id.values() if card.taken is None]).capitalize()}. "
                f"Choose free cards or {_way_out(by_id[module_id])}.",
            )


def _how(cards: Sequence[PlacementCard]) -> str:
    """Return how reserved cards are freed, in brackets; "" if none of the cards is reserved."""
    names = sorted({card.holder for card in cards if card.holder})
    if not names:
        return ""
    name = names[0] if len(names) == 1 else "NAME"
    return f" (playbooks/remove.yml --limit NODE -e instance={name} frees those of {_and(names)})"


def _way_out(card: PlacementCard) -> str:
    """Return how to free a card: stopping an instance keeps its reservation, removing it does not."""
    if card.holder:
        return (
            f"remove {card.holder}, which keeps its cards while it is stopped "
            f"(playbooks/remove.yml --limit NODE -e instance={card.holder})"
        )
    return "stop that user"


def _and(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def _cards(count: int) -> str:
    return "1 card" if count == 1 else f"{count} cards"


def _only_free(free: Sequence[PlacementCard]) -> str:
    return f"only {_free(free)}" if free else "no card is free"


def _free(free: Sequence[PlacementCard]) -> str:
    ids = ", ".join(str(card.module_id) for card in free)
    return f"module {ids} is free" if len(free) == 1 else f"modules {ids} are free"


def _others(cards: Sequence[PlacementCard]) -> str:
    groups: dict[str, list[str]] = {}
    for card in cards:
        if card.taken:
            groups.setdefault(card.taken, []).append(str(card.module_id))
    if not groups:
        return f"of the {_cards(len(cards))} there are"
    return "(" + "; ".join(f"{', '.join(ids)}: {reason}" for reason, ids in groups.items()) + ")"


def physical_ranges(cpus: str) -> list[tuple[int, int]]:
    """Return the ranges of a node's CPU list without SMT siblings.

    Linux numbers SMT siblings after all cores. So a list of two ranges, or one whose second half has the same lengths
    as the first, is cores followed by siblings, and only the cores are used, as in the vendor's split. Any other list
    (one range with SMT off, three ranges) is used whole.
    """
    ranges = list(parse_ranges(cpus))
    half = len(ranges) // 2
    lengths = [last - first for first, last in ranges]
    if len(ranges) == 2 or (len(ranges) % 2 == 0 and lengths[:half] == lengths[half:]):
        return ranges[:half]
    return ranges


def core_shares(node_cards: Sequence[PlacementCard], cpus: str) -> dict[int, str]:
    """Divide a node's cores among all its cards: module id -> disjoint CPU ranges.

    Each range is divided by the number of cards, rounded down. A card's slot is its module id modulo that number, which
    is the vendor's order. If that gives two cards one slot (gaps in the module ids, or interleaved ids), the slot is
    its rank within the NUMA node. If there are fewer cores than cards, all cards share the whole list.
    """
    count = len(node_cards)
    ids = sorted(card.module_id for card in node_cards)
    modulo = {module_id: module_id % count for module_id in ids}
    slots = modulo if len(set(modulo.values())) == count else {module_id: rank for rank, module_id in enumerate(ids)}
    shares: dict[int, str] = {}
    for module_id in ids:
        parts = []
        for first, last in physical_ranges(cpus):
            width = (last - first + 1) // count
            if width:
                low = first + width * slots[module_id]
                parts.append((low, low + width - 1))
        shares[module_id] = format_ranges(parts or parse_ranges(cpus))
    return shares


def cpu_binding(cards: Sequence[PlacementCard], chosen: Sequence[PlacementCard]) -> list[str]:
    """Return the numactl command for the chosen cards; empty if a card's CPUs are not known.

    On one NUMA node, its memory is preferred (``-p``), not enforced: if the node's memory is full, the server must
    still run. Over several nodes, the cores of all cards are bound and memory stays local to the core that allocates
    it.
    """
    ranges = []
    for card in chosen:
        if not card.cpus:
            return []
        neighbours = [other for other in cards if (other.node, other.cpus) == (card.node, card.cpus)]
        ranges.append(core_shares(neighbours, card.cpus)[card.module_id])
    vector = ["numactl", "-C", ",".join(_joined(ranges))]
    nodes = {card.node for card in chosen}
    node = next(iter(nodes))
    if len(nodes) == 1 and node is not None and node >= 0:
        vector += ["-p", str(node)]
    return vector


def _joined(ranges: Sequence[str]) -> list[str]:
    """Return each card's ranges in card order; ranges that cards share (fewer cores than cards) appear once."""
    return list(dict.fromkeys(ranges))
