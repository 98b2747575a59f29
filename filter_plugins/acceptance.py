"""The page of several nodes' verdicts, and what runs over pairs of nodes come to."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base import reported
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.entries import CardType
from ansible.module_utils.gaudi.fabric import asked, classes, meetings, report, verdict
from ansible.utils.display import Display

# What fabric_pair returned, by node and round.
Halves = Mapping[str, Mapping[int, Mapping[str, Any]]]


def acceptance_page(
    verdicts: Mapping[str, Mapping[str, Any]], made: str, pairs: Mapping[str, Any] | None = None
) -> str:
    """Return the page of these nodes; made: when, in ISO 8601; pairs: results of acceptance_pairs_outcome.

    verdicts: what each node reports. It stands under the name that the node has in the inventory.
    """
    page: str = report.report([{**each, "node": node} for node, each in _valid(verdicts)], pairs, made)
    return page


def _valid(verdicts: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield verdicts by node; one that cannot be read is left out with a warning."""
    for node, said in verdicts.items():
        try:
            if said:
                yield node, verdict.read_verdict(json.dumps(reported.document(said)))
        except ValueError as error:
            Display().warning(printable(f"{node} reports no valid verdict, so the page leaves it out: {error}"))


def acceptance_image(plans: Sequence[Mapping[str, Any]]) -> str:
    """Return the image of these plans that measures, empty without one."""
    image: str = asked.measuring_image(plans)
    return image


def acceptance_pairs_plan(
    seen: Mapping[str, Mapping[str, Any]],
    budget: int,
    card_types: object,
    tests: object = (),
    limit: int = 0,
    host_nics: bool = False,
) -> dict[str, Any]:
    """Return which nodes meet when; seen: what fabric_pair returned, by node; budget: seconds, 0 for all.

    card_types: catalog/cards.yml; the others are options of the role fabric_check.
    """
    try:
        types = CardType.table(card_types).values()
        fabrics = {kind.name: kind.fabric for kind in types if kind.fabric}
        settings = meetings.PairSettings(fabrics, tests, int(limit), host_nics)
        return dict(meetings.plan(seen, int(budget), settings))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def acceptance_pairs_part(plan: Mapping[str, Any], place: int, node: str) -> dict[str, Any]:
    """Return what a node does in a round, empty where it pauses."""
    return dict(meetings.part(plan, int(place), node))


def acceptance_pairs_fits(plan: Mapping[str, Any], budget: int, elapsed: float, direct: bool) -> bool:
    """Whether another round fits into what is left of the budget; direct: it asks for Gaudi Direct."""
    return bool(meetings.still_fits(plan, int(budget), float(elapsed), direct=direct))


def acceptance_pairs_no_direct(halves: Halves, place: int) -> str:
    """Say which nodes have no Gaudi Direct, which a round asked for; empty where none said so."""
    return str(meetings.no_direct(_by_round(halves), int(place)))


def _by_round(halves: Halves) -> dict[str, dict[int, Mapping[str, Any]]]:
    """What went through a variable may have numbers as text."""
    return {node: {int(place): half for place, half in made.items()} for node, made in halves.items()}


def acceptance_pairs_outcome(
    plan: Mapping[str, Any],
    halves: Halves,
    floors: Sequence[Any],
    without: str = "",
) -> dict[str, Any]:
    """Return results, csv, good and lines; halves: what fabric_pair returned by node and round.

    without: what acceptance_pairs_no_direct said.
    """
    try:
        own = classes.read_floors(floors)
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None
    floor = meetings.floor_of(own, plan)
    return dict(meetings.outcome(plan, meetings.met(plan, _by_round(halves)), floor, without))


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {
            "acceptance_page": acceptance_page,
            "acceptance_image": acceptance_image,
            "acceptance_pairs_plan": acceptance_pairs_plan,
            "acceptance_pairs_part": acceptance_pairs_part,
            "acceptance_pairs_fits": acceptance_pairs_fits,
            "acceptance_pairs_no_direct": acceptance_pairs_no_direct,
            "acceptance_pairs_outcome": acceptance_pairs_outcome,
        }
