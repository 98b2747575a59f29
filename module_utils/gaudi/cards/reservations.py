"""Reservations of cards on a node, and how a request changes them.

Pure: input is the text of /var/lib/gaudi-serving/cards.lock, a request and a topology document; output is the new
reservations, or a Refusal with a sentence for people. library/card_reservation.py reads and writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..base.cpulist import shown
from ..base.documents import parse
from ..base.refusal import Refusal
from ..base.values import INSTANCE
from .users import describe_user, is_own, label, may_stay

SCHEMA = 1

# Findings with which the topology cannot tell whether a card is in use.
_BLIND = ("not-root", "no-hl-smi", "no-driver", "hl-smi-failed", "no-cards")

Card = dict[str, Any]
Reservations = dict[str, dict[str, Any]]


# The form of the file's content; render_reservations writes it.
_FORM = {"reservations": {str: {"since": str, "cards": [{"module_id": int, "serial": (str, type(None))}]}}}


def parse_reservations(text: str) -> Reservations:
    """Parse the reservations file; return the reservations by instance.

    Raises Refusal, with the defect, for a text that this module did not write, also for an empty one: treating it as
    "nothing is reserved" would give cards away twice.
    """
    try:
        reservations: Reservations = parse(text, _FORM, SCHEMA)["reservations"]
    except ValueError as error:
        raise Refusal("reservations_damaged", str(error)) from error
    odd = next((name for name in reservations if not INSTANCE.fullmatch(name)), None)
    if odd is not None:
        raise Refusal("reservations_damaged", f"it names an instance {shown(odd)}")
    return reservations


def rebuild(plans: Mapping[str, Mapping[str, Any]], now: str) -> Reservations:
    """Return the reservations that follow from the plans of all instances, dated now (ISO 8601).

    Raises Refusal if two plans name the same card, because the owner cannot be determined.
    """
    rebuilt: Reservations = {}
    owners: dict[int, str] = {}
    for instance, plan in sorted(plans.items()):
        cards = [{"module_id": card["module_id"], "serial": card.get("serial")} for card in plan.get("modules", [])]
        for card in cards:
            other = owners.setdefault(card["module_id"], instance)
            if other != instance:
                raise Refusal(
                    "cards_claimed_twice",
                    f"the plans of {other} and {instance} both name module {card['module_id']}. Remove the one that "
                    "serves nothing (playbooks/status.yml shows both): playbooks/remove.yml --limit NODE "
                    f"-e instance={other}, or -e instance={instance}",
                )
        rebuilt[instance] = {"cards": sorted(cards, key=_module), "since": now}
    return rebuilt


def render_reservations(reservations: Reservations) -> str:
    """Return the file's text; the same reservations always give the same text."""
    return json.dumps({"schema": SCHEMA, "reservations": reservations}, indent=2, sort_keys=True) + "\n"


def check_request(instance: str, cards: Sequence[Mapping[str, Any]], state: str) -> None:
    """Raise Refusal for a request that is wrong on any node."""
    if not INSTANCE.fullmatch(instance):
        raise Refusal(
            "not_an_instance_name",
            "An instance's name has at most 48 of a-z, 0-9 and '-', with no '-' at either end; "
            f"{shown(instance)} is none. Choose another name.",
        )
    modules = [card["module_id"] for card in cards]
    if state == "present" and not modules:
        raise Refusal("no_card_asked", f"{instance} asks for no card. Name the cards, or free them with state: absent.")
    twice = sorted({module for module in modules if modules.count(module) > 1})
    if twice:
        raise Refusal("module_twice", f"{instance} asks for module {twice[0]} twice. Name each card once.")


def free(reservations: Reservations, instance: str) -> Reservations:
    """Return the reservations without those of an instance; it may have none."""
    return {name: held for name, held in reservations.items() if name != instance}


def reserve(
    reservations: Reservations,
    instance: str,
    cards: Sequence[Mapping[str, Any]],
    topology: Mapping[str, Any],
    now: str,
    given_up_by: Collection[str] = (),
    foreseen: bool = False,
) -> Reservations:
    """Return the reservations with exactly these cards reserved for the instance, dated now (ISO 8601).

    Cards that it no longer asks for become free. If it asks for what it has, nothing changes, not even the date. All or
    nothing: raises Refusal if a card is missing, has another serial than requested, is reserved by another instance, or
    is used by anything but this instance. Instances in given_up_by lose the requested cards. With ``foreseen`` (check
    mode) those instances may still be using them.
    """
    modules = {card["module_id"] for card in cards}
    reservations = _without(reservations, {name for name in given_up_by if name != instance}, modules)
    leaving = given_up_by if foreseen else ()
    granted = [_granted(reservations, instance, card, topology, leaving) for card in sorted(cards, key=_module)]
    before = reservations.get(instance)
    if before is not None and before["cards"] == granted:
        return reservations
    return {**reservations, instance: {"cards": granted, "since": now}}


def again(reservations: Reservations, instance: str, cards: Sequence[Mapping[str, Any]], now: str) -> Reservations:
    """Return the reservations with the cards of an earlier plan reserved again, dated now (ISO 8601).

    The cards' use is not checked here: they were granted before, and the next start checks it. Raises Refusal if
    another instance has reserved one since.
    """
    wanted = [{"module_id": card["module_id"], "serial": card.get("serial")} for card in sorted(cards, key=_module)]
    before = reservations.get(instance)
    if before is not None and before["cards"] == wanted:
        return reservations
    for card in wanted:
        holder = _holder(reservations, instance, card)
        if holder is not None:
            raise Refusal(
                "card_reserved",
                f"{instance} cannot have module {card['module_id']} again: it is reserved by {holder} since "
                f"{reservations[holder]['since']}. Choose another card, or take {holder} off this node first: "
                f"playbooks/remove.yml --limit NODE -e instance={holder}",
            )
    return {**reservations, instance: {"cards": wanted, "since": now}}


def lend(reservations: Reservations, name: str, cards: Sequence[Mapping[str, Any]], now: str) -> Reservations:
    """Return the reservations with those of these cards that nobody has reserved, under a name, dated now (ISO 8601).

    Cards of instances stay theirs: whoever borrows cards uses only such as are free.
    """
    others = free(reservations, name)
    held = [{"module_id": card["module_id"], "serial": card["serial"]} for card in sorted(cards, key=_module)]
    mine = [card for card in held if _holder(others, name, card) is None]
    return {**others, name: {"cards": mine, "since": now}} if mine else others


def _module(card: Mapping[str, Any]) -> int:
    """Return the sort key of a card, its module id."""
    return int(card["module_id"])


def _without(reservations: Reservations, names: Collection[str], modules: Collection[int]) -> Reservations:
    """Return the reservations without these modules of these instances; an instance left without cards is dropped."""
    kept: Reservations = {}
    for name, held in reservations.items():
        cards = [card for card in held["cards"] if name not in names or card["module_id"] not in modules]
        if cards or not held["cards"]:
            kept[name] = {**held, "cards": cards}
    return kept


def _granted(
    reservations: Reservations,
    instance: str,
    wanted: Mapping[str, Any],
    topology: Mapping[str, Any],
    leaving: Collection[str],
) -> Card:
    """Return a card's reservation entry. Raises Refusal if it is not available; users in ``leaving`` do not count."""
    blind = [finding["message"] for finding in topology["findings"] if finding["id"] in _BLIND]
    if blind:
        raise Refusal(
            "card_use_unknown",
            f"{instance} cannot have module {wanted['module_id']}, because its use is not known. {blind[0]}",
        )
    card = next((card for card in topology["cards"] if card["module_id"] == wanted["module_id"]), None)
    if card is None:
        seen = ", ".join(str(card["module_id"]) for card in topology["cards"]) or "none"
        raise Refusal(
            "no_such_module",
            f"{instance} asks for module {wanted['module_id']}, which is not on this node (modules seen: {seen}). "
            "Plan the instance again, or look for the card with lspci -d 1da3: and dmesg.",
        )
    serial = wanted.get("serial")
    if serial is not None and serial != card["serial"]:
        raise Refusal(
            "serial_changed",
            f"{instance} was planned for the card with serial {serial} as {label(card)}, but the card there has "
            f"{card['serial'] or 'no serial that can be read'}. Cards were exchanged or moved: "
            f"plan the instance again.",
        )
    holder = _holder(reservations, instance, card)
    if holder is not None:
        raise Refusal(
            "card_reserved",
            f"{instance} cannot have {label(card)}: it is reserved by {holder} since {reservations[holder]['since']}. "
            f"Choose another card, or take {holder} off this node first: "
            f"playbooks/remove.yml --limit NODE -e instance={holder}",
        )
    is_held = any(held["module_id"] == card["module_id"] for held in reservations.get(instance, {}).get("cards", []))
    users = [user for user in card["users"] if not any(is_own(user, name) for name in leaving)]
    strangers = [user for user in users if not may_stay(user, instance, is_held)]
    if strangers:
        raise Refusal(
            "card_in_use",
            f"{instance} cannot have {label(card)}: it is in use by {' and '.join(map(describe_user, strangers))}. "
            "Stop that first, or choose another card.",
        )
    return {"module_id": card["module_id"], "serial": card["serial"]}


def holders(reservations: Reservations) -> dict[int, str]:
    """Return the instance that holds each reserved module."""
    return {card["module_id"]: name for name, held in reservations.items() for card in held["cards"]}


def _holder(reservations: Reservations, instance: str, card: Mapping[str, Any]) -> str | None:
    """Return the other instance that reserved a card, by module id or, if the card was moved, by serial."""
    for other, reservation in sorted(reservations.items()):
        for held in reservation["cards"] if other != instance else ():
            same_serial = held["serial"] is not None and held["serial"] == card["serial"]
            if held["module_id"] == card["module_id"] or same_serial:
                return other
    return None
