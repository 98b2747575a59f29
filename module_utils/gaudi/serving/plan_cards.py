"""The cards of a plan, when its instance starts: their device indexes, and their reservation."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from io import StringIO
from typing import Any

from ..faults.words import say
from .failure import configuration, transient
from .plan import Plan, PlanCard


def card_indexes(table: str, cards: tuple[PlanCard, ...]) -> list[int]:
    """Return device indexes by module id, from hl-smi's ``index, module_id, serial`` table.

    Raises Failure if a serial does not match, as the module then has another card.
    """
    seen: dict[int, tuple[int, str]] = {}
    for row in csv.reader(StringIO(table), skipinitialspace=True):
        cells = [cell.strip() for cell in row]
        if len(cells) == 3 and cells[0].isdigit() and cells[1].isdigit():
            seen[int(cells[1])] = (int(cells[0]), cells[2])
    indexes = []
    for card in cards:
        if card.module_id not in seen:
            there = ", ".join(map(str, sorted(seen))) or "none"
            said = say("card-missing", module=card.module_id, serial=card.serial, seen=there)
            raise transient("card-missing", said)
        index, serial = seen[card.module_id]
        if card.serial is not None and serial != card.serial:
            said = say("card-replaced", module=card.module_id, serial=serial, wanted=card.serial)
            raise configuration("card-replaced", said)
        indexes.append(index)
    return indexes


def check_reservation(reservations: Mapping[str, Mapping[str, Any]], plan: Plan) -> None:
    """Check that exactly the plan's cards are reserved for this instance. Raises Failure."""
    held = reservations.get(plan.instance, {}).get("cards", [])
    reserved = {(card["module_id"], card["serial"]) for card in held}
    wanted = {(card.module_id, card.serial) for card in plan.cards}
    if reserved != wanted:

        def names(cards: set[tuple[int, Any]]) -> str:
            return ", ".join(f"{module} ({serial})" for module, serial in sorted(cards, key=str)) or "none"

        what = f"The plan needs the cards {names(wanted)}, reserved for {plan.instance} are {names(reserved)}"
        raise configuration("reservation", say("reservation", what=what))
