"""The topology document: what a node's cards are, where they sit and who uses them.

The document is plain data (see library/gaudi_topology_info.py for its keys). A fact nobody could
give is None, never a guess; two sources that disagree are a finding, never an average.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cpulist import shown
from .hl_smi import Affinity, parse_amount, parse_csv, parse_topo

SCHEMA = 1

CASE_KEYS = ("hl_smi_name_csv", "hl_smi_index_module_csv", "hl_smi_topo", "modules_in_use", "addresses")


def new_card(index: int | None, module_id: int | None) -> dict[str, Any]:
    """Return a card of which nothing but its numbers is known."""
    return {
        "index": index,
        "module_id": module_id,
        "name": None,
        "serial": None,
        "uuid": None,
        "bus_id": None,
        "numa_node": None,
        "cpus": "",
        "memory_total_mib": None,
        "memory_used_mib": None,
        "temperature_c": None,
        "driver_version": None,
        "nic_driver_version": None,
        "firmware": None,
        "links_up": None,
        "links_total": None,
        "state": None,
        "users": [],
    }


def topology_from_case(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the topology document of a machine described by what hl-smi prints on it.

    given holds ``hl_smi_name_csv`` (of ``hl-smi -Q name -f csv``), ``hl_smi_index_module_csv`` (of
    ``hl-smi -Q index,module_id -f csv``) and ``hl_smi_topo`` (of ``hl-smi topo -c -N``), and may hold
    ``modules_in_use`` (module ids) and ``addresses`` (pairs of interface and address with prefix).
    A card in use has one user of which nothing more is known. Raises ValueError, naming the key, for a
    missing or unknown key and for text that cannot be read.
    """
    unknown = sorted(str(key) for key in given if key not in CASE_KEYS)
    missing = [key for key in CASE_KEYS[:3] if key not in given]
    wrong = [f"unknown: {', '.join(unknown)}"] * bool(unknown) + [f"missing: {', '.join(missing)}"] * bool(
        missing
    )
    _require(not wrong, f"a given topology has the keys {', '.join(CASE_KEYS)} ({'; '.join(wrong)})")
    for key in CASE_KEYS[:3]:
        _require(
            isinstance(given[key], str), f"{key} is text as hl-smi prints it, not {shown(str(given[key]))}"
        )
    names = [row["name"] for row in parse_csv(given["hl_smi_name_csv"], ["name"])]
    numbers = [
        _index_and_module(row) for row in parse_csv(given["hl_smi_index_module_csv"], ["index", "module_id"])
    ]
    if len(names) != len(numbers):
        raise ValueError(f"hl_smi_name_csv lists {len(names)} cards, hl_smi_index_module_csv {len(numbers)}")
    affinity = {row.module_id: row for row in parse_topo(given["hl_smi_topo"])} if numbers else {}
    in_use = _module_ids(given.get("modules_in_use", []))
    absent = sorted(in_use - {module_id for _index, module_id in numbers})
    if absent:
        raise ValueError(
            f"modules_in_use names module {absent[0]}, which hl_smi_index_module_csv does not list"
        )
    cards = []
    for name, (index, module_id) in zip(names, numbers):
        card = new_card(index, module_id)
        place = affinity.get(module_id, Affinity(module_id, None, None))
        card.update(
            name=name,
            numa_node=place.numa_node,
            cpus=place.cpus or "",
            users=[new_user()] * (module_id in in_use),
        )
        cards.append(card)
    return new_topology(cards, addresses=_addresses(given.get("addresses", [])))


def new_user() -> dict[str, Any]:
    """Return a user of a card of whom nothing is known but that the card is in use."""
    return {"pid": None, "name": None, "unit": None, "container": None, "container_name": None}


def new_topology(cards: list[dict[str, Any]], **facts: object) -> dict[str, Any]:
    """Return a topology document of these cards, sorted by module id; a card without one comes last."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "cards": sorted(
            cards, key=lambda card: (card["module_id"] is None, card["module_id"], card["index"] or 0)
        ),
        "hl_smi_version": None,
        "driver_version": None,
        "addresses": [],
        "findings": [],
    }
    document.update(facts)
    return document


def _index_and_module(row: Mapping[str, str | None]) -> tuple[int, int]:
    """Return the two numbers of a row; both are needed to know a card."""
    values = []
    for field in ("index", "module_id"):
        number = parse_amount(row[field] or "")
        _require(number is not None and number >= 0, f"hl_smi_index_module_csv needs a number as {field}")
        values.append(number or 0)
    return values[0], values[1]


def _module_ids(given: object) -> set[int]:
    """Return a list of module ids as a set."""
    items = given if isinstance(given, (list, tuple)) else [None]
    numbers = [parse_amount(str(item)) if item is not None else None for item in items]
    _require(None not in numbers, f"modules_in_use is a list of module ids, not {shown(str(given))}")
    return {number for number in numbers if number is not None}


def _addresses(given: object) -> list[list[str]]:
    """Return pairs of interface and address."""
    pairs: list[Any] = list(given) if isinstance(given, (list, tuple)) else [None]
    for pair in pairs:
        is_pair = isinstance(pair, (list, tuple)) and [isinstance(part, str) for part in pair] == [True, True]
        _require(
            is_pair, f"addresses is a list of pairs such as [eth0, 10.20.0.11/24], not {shown(str(given))}"
        )
    return [list(pair) for pair in pairs]


def _require(condition: bool, message: str) -> None:
    """Raise ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)
