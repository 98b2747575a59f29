"""Which nodes meet in which round, what each does in it, and what came of it.

What a node said of itself comes in as plain data: what the module fabric_pair_info returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.printable import printable
from ..base.refusal import Refusal
from ..catalogue.fabric import size_text
from .classes import Floor, modules_are
from .nics import SLOWER
from .pairs import Met, as_csv, as_json, rounds
from .runs import Run
from .static import Fault

# Ansible's way to a node and back, a container's start and end: seconds beside hccl_demo's own, a guess.
AROUND = 15
# A node that waits for another one gives up after its limit, and ends its container some seconds later.
MARGIN = 60


def not_ready(
    faults: Sequence[Fault],
    modules: Sequence[int],
    busy: Sequence[int],
    why_not: str,
    *,
    ways: bool,
    address: str | None,
) -> str:
    """Return why a node meets no other one, as a sentence; empty where it does.

    why_not is what asked.not_measured says of its image. ways: its cards have ports to other nodes, or host NICs are
    configured. address: where other nodes reach it, None where none is known.
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


def plan(seen: Mapping[str, Mapping[str, Any]], budget: int) -> dict[str, Any]:
    """Return which nodes meet when, as plain data; seen is what each node said of itself, budget is seconds (0: all).

    Keys: nodes, left_out (why, by node), rounds (those that the budget is enough for), of (all rounds), modules (how
    many cards of each node take part), direct (Gaudi Direct is asked for), seconds (of one round), limit, sentences.
    With direct there is time for one round more, which is run again where a node has no Gaudi Direct. Raises Refusal
    for less than two nodes that can be measured, more than 64, and a budget that no round fits in.
    """
    left_out = {node: printable(said["why"]) for node, said in seen.items() if not said["ready"]}
    nodes = [node for node in seen if node not in left_out]
    said = [f"{node} is left out: {why}" for node, why in left_out.items()]
    if len(nodes) < 2:
        raise Refusal(
            "too_few_nodes",
            f"Pairs need two nodes that can be measured, and {len(nodes) or 'none'} can. {' '.join(said)}".rstrip(),
        )
    made = rounds(nodes)
    each = max(int(seen[node]["seconds"]) for node in nodes) + AROUND
    direct = all(seen[node]["direct"] for node in nodes)
    again = each if direct else 0
    fits = len(made) if not budget else min(len(made), max(0, budget - again) // each)
    if not fits:
        raise Refusal(
            "budget_too_small",
            f"fabric_check_pairs_budget is {budget} s, and one round takes about {each + again} s. Give {each + again} "
            "at least, or 0 for all rounds.",
        )
    count = min(len(seen[node]["modules"]) for node in nodes)
    about = seen[nodes[0]]
    said.insert(
        0,
        f"{about['collective']} of {size_text(about['size'])} ({about['loop']} loops) over {count} cards of each of "
        f"two nodes: {sum(map(len, made[:fits]))} pairs of {len(nodes)} nodes in {fits} rounds of {each} seconds, "
        f"about {_minutes(fits * each + again)}{_AGAIN if direct else ''}, more where a run hangs.",
    )
    if fits < len(made):
        said.append(f"The budget of {budget} s is enough for {fits} of {len(made)} rounds: not every pair meets.")
    return {
        "nodes": nodes,
        "left_out": left_out,
        "rounds": [[list(pair) for pair in pairs] for pairs in made[:fits]],
        "of": len(made),
        "modules": count,
        **{key: about[key] for key in ("collective", "size", "loop")},
        "direct": direct,
        "seconds": each,
        "limit": max(int(seen[node]["limit"]) for node in nodes),
        "sentences": said,
    }


_AGAIN = " with one round that is run again where a node has no Gaudi Direct"


def _minutes(seconds: int) -> str:
    return f"{seconds} seconds" if seconds < 120 else f"{round(seconds / 60)} minutes"


def part(plan: Mapping[str, Any], place: int, node: str) -> dict[str, Any]:
    """Return what a node does in a round (place counts from 0): first (holds rank 0), other, and half (0 or 1).

    Empty for a node that pauses, or that is left out.
    """
    for one, other in plan["rounds"][place]:
        if node in (one, other):
            return {"first": one, "other": other if node == one else one, "half": int(node == other)}
    return {}


def still_fits(plan: Mapping[str, Any], budget: int, elapsed: float, *, direct: bool = False) -> bool:
    """Whether another round fits into what is left of the budget; both in seconds, a budget of 0 is none.

    direct: it asks for Gaudi Direct, so that it may be run twice.
    """
    return not budget or elapsed + float(plan["seconds"]) * (2 if direct else 1) <= budget


def no_direct(halves: Mapping[str, Mapping[int, Mapping[str, Any]]], place: int) -> str:
    """Say which nodes have no Gaudi Direct, which a round asked for; empty where none said so.

    The round is then run again without, and so are all others.
    """
    found = {node: made[place] for node, made in halves.items() if place in made}
    return " ".join(printable(f"{node}: {half['sentence']}") for node, half in found.items() if half["no_direct"])


def met(plan: Mapping[str, Any], halves: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> tuple[Met, ...]:
    """Return the pairs that have met: halves are what each node's runs returned, by round, counted from 0.

    A pair is good where both its halves ended well, and its figure is what rank 0 printed. A half that nobody heard of
    is a node that was lost in that round.
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
            found.append(Met(place + 1, (one, other), figure, printable("; ".join(wrong))))
    return tuple(found)


def floor_of(floors: Sequence[Floor], plan: Mapping[str, Any]) -> float | None:
    """Return the site's own floor in GB/s for a run over two nodes, the most exact one; None without one."""
    run = Run(tuple(range(2 * int(plan["modules"]))), plan["collective"], plan["size"], plan["loop"])
    own = max((floor for floor in floors if floor.fits(run)), key=lambda floor: floor.exactness, default=None)
    return own.nw_gb_s if own else None


def outcome(
    plan: Mapping[str, Any], pairs: Sequence[Met], floor_gb_s: float | None, without: str = ""
) -> dict[str, Any]:
    """Return what came of it: as_json of the pairs, with left_out, csv (text), good, and all sentences as ``lines``.

    good: every pair that has met was good, and nobody is under suspicion. gaudi_direct says whether it is in use
    between the nodes, None where nothing tells; without: what no_direct said, for whichever round.
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
    """Say whether Gaudi Direct is in use between the nodes; nothing where nobody knows."""
    if direct is None:
        return []
    return [
        "Gaudi Direct is in use between the nodes." if direct else f"Gaudi Direct is not in use. {without} {SLOWER}"
    ]
