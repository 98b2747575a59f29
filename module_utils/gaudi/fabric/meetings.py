"""Plan which pairs of nodes run together in which round, each node's part, and evaluate the results.

Each node's facts are plain data: the result of the module fabric_pair, checked by reported.pair. What is measured,
and for how long, follows from the inventory and the catalogue, so that no node decides it for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import multimode
from typing import Any

from ..base.printable import printable
from ..base.refusal import Refusal
from ..catalogue.fabric import Fabric, size_text
from .classes import Floor, modules_are
from .nics import SLOWER
from .pairs import PairRun, as_csv, as_json, rounds
from .runs import DemoRun, check_size, limit_seconds, requested_tests, seconds
from .static import StaticFault

# Seconds beside hccl_demo's own: Ansible's connection to the node, start and end of a container. A guess.
AROUND = 15
# A node that waits for its partner gives up after its limit, and then needs some seconds to end its container.
MARGIN = 60
_ALIKE = "Measure nodes that are alike together, with --limit."


@dataclass(frozen=True)
class PairSettings:
    """Settings of the inventory and the catalogue for runs over two nodes.

    fabrics: the links of each card type. tests: fabric_check_tests. limit: seconds after which a run counts as hanging;
    0 for the catalogue's. host_nics: whether host NICs carry the traffic.
    """

    fabrics: Mapping[str, Fabric]
    tests: object = ()
    limit: int = 0
    host_nics: bool = False

    def run(self, fabric: Fabric, count: int) -> tuple[DemoRun, int, int]:
        """Return the run over two nodes with ``count`` cards each, its expected duration, and its limit, in seconds.

        Raises Refusal for a test that hccl_demo does not accept.
        """
        test = requested_tests(self.tests, fabric)[0]
        both = DemoRun(tuple(range(2 * count)), test.collective, test.size, test.loop, self.host_nics)
        check_size(both)
        return both, seconds(both, fabric), self.limit or limit_seconds(both, fabric)


def not_ready(
    faults: Sequence[StaticFault],
    modules: Sequence[int],
    busy: Sequence[int],
    why_not: str,
    *,
    ways: bool,
    address: str | None,
) -> str:
    """Return why a node cannot take part in a pair, as a sentence; "" if it can.

    why_not: what asked.not_measured says of its image. ways: its cards have external ports, or host NICs are
    configured. address: where other nodes reach it, None if unknown.
    """
    fatal = [fault.sentence for fault in faults if fault.fatal]
    if fatal:
        return f"The static checks failed. {' '.join(fatal)}"
    if busy:
        return f"{modules_are(busy)} in use. Stop what uses them."
    if why_not:
        return why_not
    if not modules:
        return "It has no cards that the catalogue knows."
    if not ways:
        return (
            "Its cards have no ports to other nodes. Where host NICs with libfabric are configured, set "
            "fabric_check_host_nics: true."
        )
    if address is None:
        return "No address is known at which other nodes reach it. Set fabric_check_address."
    return ""


def _wrong_address(node: str, ready: Mapping[str, Mapping[str, Any]]) -> str:
    """Return why others must not connect to the address that a node reports; "" if they may."""
    owned = {name for name, said in ready.items() if said["named"] or said["address"] in said["known"]}
    address, known = ready[node]["address"], ready[node]["known"]
    if known and node not in owned:
        return (
            f"It reports {address}, and its ansible_host is {', '.join(known)}. Set fabric_check_address to the "
            "address at which other nodes reach it."
        )
    alike = {name for name, said in ready.items() if said["address"] == address}
    if len(alike) > 1 and alike & owned != {node}:
        return f"It reports {address}, and so does another node. Set fabric_check_address."
    return ""


def left_out_of(seen: Mapping[str, Mapping[str, Any]], settings: PairSettings) -> dict[str, str]:
    """Return why nodes take no part, by node: they are not ready, differ from most others, or share an address.

    Of a node's facts, ``named`` is true if fabric_check_address sets its address, ``known`` are the addresses of its
    ansible_host (none if the controller knows none), and ``expected`` is gaudi_expected_cards.
    """
    reasons = {node: printable(said["why"]) for node, said in seen.items() if not said["ready"]}
    ready = {node: said for node, said in seen.items() if said["ready"]}
    for node, said in ready.items():
        if why := _wrong_address(node, ready):
            reasons[node] = why
        # Otherwise the smaller number of one of two nodes would decide how many cards of the other are measured.
        if len(said["modules"]) != said["expected"]:
            reasons[node] = f"It reports {len(said['modules'])} cards, and gaudi_expected_cards is {said['expected']}."
    for node, said in seen.items():
        if node not in reasons and said["card_type"] not in settings.fabrics:
            reasons[node] = (
                f"It reports cards of the type {said['card_type']}, whose links the catalogue does not know."
            )
    types = [said["card_type"] for node, said in seen.items() if node not in reasons]
    for node, said in seen.items():
        if node not in reasons and said["card_type"] != multimode(types)[0]:
            reasons[node] = f"Its cards are {said['card_type']}, and most nodes have {multimode(types)[0]}. {_ALIKE}"
    counts = [len(said["modules"]) for node, said in seen.items() if node not in reasons]
    for node, said in seen.items():
        if node not in reasons and len(said["modules"]) < min(multimode(counts)):
            reasons[node] = (
                f"It has {len(said['modules'])} cards, and most nodes have {min(multimode(counts))}. {_ALIKE}"
            )
    return reasons


def plan(seen: Mapping[str, Mapping[str, Any]], budget: int, settings: PairSettings) -> dict[str, Any]:
    """Plan the rounds, as plain data; seen: each node's own facts; budget: seconds (0: all rounds).

    Keys: nodes, reached (address and port of each node), left_out (reason by node), rounds (as many as fit into the
    budget), of (number of all rounds), modules (cards of each node that take part), collective, size (bytes), loop,
    direct (Gaudi Direct is requested), seconds (of one round), limit (seconds), sentences. With ``direct`` the budget
    includes one extra round, which is repeated if a node has no Gaudi Direct. Raises Refusal for less than two usable
    nodes, for more than 64, for a budget without room for one round, and for a test that hccl_demo does not accept.
    """
    left_out = left_out_of(seen, settings)
    nodes = [node for node in seen if node not in left_out]
    said = [f"{node} is left out: {why}" for node, why in left_out.items()]
    if len(nodes) < 2:
        raise Refusal(
            "too_few_nodes",
            f"Pairs need two nodes that can be measured, and {len(nodes) or 'none'} can. {' '.join(said)}".rstrip(),
        )
    made = rounds(nodes)
    count = min(len(seen[node]["modules"]) for node in nodes)
    run, expected, limit = settings.run(settings.fabrics[seen[nodes[0]]["card_type"]], count)
    each = expected + AROUND
    direct = all(seen[node]["direct"] for node in nodes)
    again = each if direct else 0
    fits = len(made) if not budget else min(len(made), max(0, budget - again) // each)
    if not fits:
        raise Refusal(
            "budget_too_small",
            f"fabric_check_pairs_budget is {budget} s, and one round takes about {each + again} s. Give {each + again} "
            "at least, or 0 for all rounds.",
        )
    said.insert(
        0,
        f"{run.collective} of {size_text(run.size)} ({run.loop} loops) over {count} cards of each of "
        f"two nodes: {sum(map(len, made[:fits]))} pairs of {len(nodes)} nodes in {fits} rounds of {each} seconds, "
        f"about {_minutes(fits * each + again)}{_AGAIN if direct else ''}, more where a run hangs.",
    )
    if fits < len(made):
        said.append(f"The budget of {budget} s is enough for {fits} of {len(made)} rounds: not every pair meets.")
    return {
        "nodes": nodes,
        "reached": {node: {key: seen[node][key] for key in ("address", "port")} for node in nodes},
        "left_out": left_out,
        "rounds": [[list(pair) for pair in pairs] for pairs in made[:fits]],
        "of": len(made),
        "modules": count,
        "collective": run.collective,
        "size": run.size,
        "loop": run.loop,
        "direct": direct,
        "seconds": each,
        "limit": limit,
        "sentences": said,
    }


_AGAIN = " with one round that is run again where a node has no Gaudi Direct"


def _minutes(seconds: int) -> str:
    return f"{seconds} seconds" if seconds < 120 else f"{round(seconds / 60)} minutes"


def part(plan: Mapping[str, Any], place: int, node: str) -> dict[str, Any]:
    """Return a node's part in a round (place counts from 0): first (holds rank 0), other, half (0 or 1), address, port.

    address and port are those of the first node. Empty for a node that pauses or is left out.
    """
    for one, other in plan["rounds"][place]:
        if node in (one, other):
            return {
                "first": one,
                "other": other if node == one else one,
                "half": int(node == other),
                **plan["reached"][one],
            }
    return {}


def still_fits(plan: Mapping[str, Any], budget: int, elapsed: float, *, direct: bool = False) -> bool:
    """Whether another round fits into the rest of the budget, in seconds; a budget of 0 is unlimited.

    direct: the round asks for Gaudi Direct, so it may run twice.
    """
    return not budget or elapsed + float(plan["seconds"]) * (2 if direct else 1) <= budget


def no_direct(halves: Mapping[str, Mapping[int, Mapping[str, Any]]], place: int) -> str:
    """Say which nodes have no Gaudi Direct although a round asked for it; "" if none reported that.

    That round is then repeated without it, and all later rounds do not ask for it.
    """
    found = {node: made[place] for node, made in halves.items() if place in made}
    return " ".join(printable(f"{node}: {half['sentence']}") for node, half in found.items() if half["no_direct"])


def met(plan: Mapping[str, Any], halves: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> tuple[PairRun, ...]:
    """Return the pairs that ran; halves: each node's results by round, counted from 0.

    A pair is good if both halves succeeded; its figure is what rank 0 printed. A missing half means that the node was
    lost in that round.
    """
    found = []
    for place, pairs in enumerate(plan["rounds"]):
        done = [(pair, [halves.get(node, {}).get(place) for node in pair]) for pair in pairs]
        if not any(half for _, both in done for half in both):
            continue
        for (one, other), both in done:
            wrong = [
                f"{node}: {half['sentence'] if half else 'nothing was heard of its half of the run'}"
                for node, half in zip((one, other), both)
                if half is None or half["sentence"]
            ]
            figure = both[0]["nw_gb_s"] if both[0] and not wrong else None
            if not wrong and figure is None:
                wrong = [f"{one}: hccl_demo printed no NW Bandwidth"]
            found.append(PairRun(place + 1, (one, other), figure, printable("; ".join(wrong))))
    return tuple(found)


def floor_of(floors: Sequence[Floor], plan: Mapping[str, Any]) -> float | None:
    """Return the site's most exact floor in GB/s for a run over two nodes; None without one."""
    run = DemoRun(tuple(range(2 * int(plan["modules"]))), plan["collective"], plan["size"], plan["loop"])
    own = max((floor for floor in floors if floor.fits(run)), key=lambda floor: floor.exactness, default=None)
    return own.nw_gb_s if own else None


def outcome(
    plan: Mapping[str, Any], pairs: Sequence[PairRun], floor_gb_s: float | None, without: str = ""
) -> dict[str, Any]:
    """Return the outcome: as_json of the pairs, with left_out, csv (text), good, and all sentences as ``lines``.

    good: every pair that ran was good, and no node is suspected. gaudi_direct: whether it is in use between the nodes,
    None if unknown. without: what no_direct said in any round.
    """
    document = as_json(plan["nodes"], pairs, floor_gb_s)
    told = bool(without) or any(pair.nw_gb_s is not None for pair in pairs)
    direct = not without if plan["direct"] and told else None
    document = {**document, "gaudi_direct": direct, "sentences": [*document["sentences"], *_of_direct(direct, without)]}
    good = bool(pairs) and not (document["bad_nodes"] or document["bad_links"] or document["suspects"])
    return {
        "results": {**document, "left_out": dict(plan["left_out"])},
        "csv": as_csv(pairs, floor_gb_s),
        "good": good,
        "lines": [*document["sentences"], *(f"{node} is left out: {why}" for node, why in plan["left_out"].items())],
    }


def _of_direct(direct: bool | None, without: str) -> list[str]:
    """Say whether Gaudi Direct is in use between the nodes; nothing if that is unknown."""
    if direct is None:
        return []
    return [
        "Gaudi Direct is in use between the nodes." if direct else f"Gaudi Direct is not in use. {without} {SLOWER}"
    ]
