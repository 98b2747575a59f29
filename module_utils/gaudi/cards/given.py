"""Check a topology that a node reports, or one from a file: of a machine that is not reachable, or read earlier.

It is input from outside, so every key is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..base.checks import integer, mapping, only_known, sequence, shown, switch, text
from ..base.cpulist import normalise_cpulist
from ..base.refusal import Refusal
from .document import SCHEMA, new_card, new_topology
from .findings import group_findings, name_findings, topo_findings
from .hl_smi import Affinity, parse_amount, parse_csv, parse_topo
from .users import new_user

CASE_KEYS = ("hl_smi_name_csv", "hl_smi_index_module_csv", "hl_smi_topo", "modules_in_use", "addresses")

# Far more cards, addresses or findings than any node has; the limit bounds the work for a nonsense file.
LONGEST_LIST = 1024
# Upper bound for process ids, indexes, temperatures and MiB.
LARGEST = 1 << 31
# The largest module id a request may name.
LAST_MODULE = 255

T = TypeVar("T")

_NUMBERS = ("index", "numa_node", "memory_total_mib", "memory_used_mib", "temperature_c", "links_up", "links_total")


def given_topology(given: object) -> dict[str, Any]:
    """Return the topology document from a file's content.

    given is a topology document, the whole result of gaudi_topology_info, or output of hl-smi (see topology_from_case).
    A card needs only its module id and name; every other missing value is unknown. Raises Refusal for anything else,
    with the key that is wrong.
    """
    content = mapping(given, "The content")
    if isinstance(content.get("topology"), Mapping):
        content = mapping(content["topology"], "topology")
    if "cards" in content:
        return _once(_document(content))
    if any(key in content for key in CASE_KEYS):
        return topology_from_case(content)
    found = f"Its keys are {', '.join(sorted(content)[:5])}" if content else "It is empty"
    raise Refusal(
        "not_a_topology",
        f"{found}, but what hl-smi prints was expected ({', '.join(CASE_KEYS)}), or the result of gaudi_topology_info.",
    )


def topology_from_case(given: Mapping[str, object]) -> dict[str, Any]:
    """Return the topology document from recorded output of hl-smi.

    given holds ``hl_smi_name_csv`` (of ``hl-smi -Q name -f csv``), ``hl_smi_index_module_csv`` (of ``hl-smi -Q
    index,module_id -f csv``) and ``hl_smi_topo`` (of ``hl-smi topo -c -N``), and may hold ``modules_in_use`` (module
    ids) and ``addresses`` (pairs of interface and address with prefix). A card in use gets one user without details.
    Contradictions between the three outputs are findings. Raises Refusal, with the key, for a missing or unknown key
    and for text that cannot be parsed.
    """
    only_known(given, "What hl-smi prints", CASE_KEYS)
    missing = [key for key in CASE_KEYS[:3] if key not in given]
    if missing:
        raise Refusal("missing_key", f"What hl-smi prints is not complete: {', '.join(missing)} must be given as well.")
    names = [row["name"] for row in _parsed(given, "hl_smi_name_csv", lambda text: parse_csv(text, ["name"]))]
    numbers = _parsed(given, "hl_smi_index_module_csv", _indexes_and_modules)
    if len(names) != len(numbers):
        raise Refusal(
            "card_counts_differ", f"hl_smi_name_csv lists {len(names)} cards, hl_smi_index_module_csv {len(numbers)}."
        )
    # hl-smi topo prints nothing if it knows nothing; the other two outputs are still usable.
    places = _parsed(given, "hl_smi_topo", lambda text: parse_topo(text) if text.strip() else ())
    affinity = {place.module_id: place for place in places}
    in_use = {integer(item, "modules_in_use", 0, LAST_MODULE) for item in _list(given, "modules_in_use")}
    absent = sorted(in_use - {module_id for _index, module_id in numbers})
    if absent:
        raise Refusal(
            "no_such_module", f"modules_in_use names module {absent[0]}, which hl_smi_index_module_csv does not list."
        )
    cards = []
    for name, (index, module_id) in zip(names, numbers):
        card = new_card(index, module_id)
        place = affinity.get(module_id, Affinity(module_id, None, None))
        users = [new_user()] * (module_id in in_use)
        card.update(name=name, numa_node=place.numa_node, cpus=place.cpus or "", users=users)
        cards.append(card)
    modules = [module_id for _index, module_id in numbers]
    findings = topo_findings(modules, list(affinity)) + name_findings(cards) + group_findings(cards)
    return _once(_new(cards, given, findings=findings))


def reported_topology(given: object) -> dict[str, Any]:
    """Return the topology that a node reports of itself, with all its keys, also the one that is only foreseen.

    Two cards of one module id are among its findings. Raises Refusal for another form, with the key that is wrong.
    """
    content = dict(mapping(given, "The topology that the node reports"))
    foreseen = content.pop("foreseen", False)
    topology = _document(content)
    return {**topology, "foreseen": True} if switch(foreseen, "foreseen") else topology


def _parsed(given: Mapping[str, object], key: str, parse: Callable[[str], T]) -> T:
    """Parse the text of a key; refuse it, with the key's name, if that fails."""
    printed = given[key]
    if not isinstance(printed, str):
        raise Refusal("not_text", f"{key} must be text as hl-smi prints it, not {shown(printed)}.")
    try:
        return parse(printed)
    except ValueError as error:
        raise Refusal("hl_smi_unreadable", f"{key}: {error}.") from error


def _indexes_and_modules(text: str) -> list[tuple[int, int]]:
    """Return index and module id of each card; both are needed to know a card."""
    numbers = []
    for row in parse_csv(text, ["index", "module_id"]):
        index, module_id = (parse_amount(row[name] or "") for name in ("index", "module_id"))
        if index is None or module_id is None or not (index >= 0 and 0 <= module_id <= LAST_MODULE):
            raise ValueError(
                f"an index and a module id from 0 to {LAST_MODULE} are needed in each row, not {shown(row)}"
            )
        numbers.append((index, module_id))
    return numbers


def _document(given: Mapping[str, object]) -> dict[str, Any]:
    """Return a document with all its keys, each of its type."""
    only_known(given, "A topology", tuple(new_topology([])))
    if given.get("schema", SCHEMA) != SCHEMA:
        raise Refusal(
            "wrong_schema",
            f"schema is {shown(given['schema'])}, but {SCHEMA} is read here. Read the node again with this version's "
            f"gaudi_topology_info.",
        )
    cards = [_card(card, f"cards[{place}]") for place, card in enumerate(_list(given, "cards"))]
    return _new(
        cards,
        given,
        hl_smi_version=_text(given, "hl_smi_version", "hl_smi_version"),
        driver_version=_text(given, "driver_version", "driver_version"),
        findings=[_finding(found, f"findings[{place}]") for place, found in enumerate(_list(given, "findings"))],
    )


def _new(cards: list[dict[str, Any]], given: Mapping[str, object], **facts: object) -> dict[str, Any]:
    """Return the document of these cards and of the addresses that were given."""
    sequence(cards, "The list of cards", LAST_MODULE + 1)
    addresses = [_address(pair, f"addresses[{place}]") for place, pair in enumerate(_list(given, "addresses"))]
    return new_topology(cards, addresses=addresses, **facts)


def _once(topology: dict[str, Any]) -> dict[str, Any]:
    """Return a topology with each module id once. Raises Refusal for another: nobody means that."""
    modules = [card["module_id"] for card in topology["cards"] if card["module_id"] is not None]
    twice = next((module_id for module_id in modules if modules.count(module_id) > 1), None)
    if twice is not None:
        raise Refusal("module_twice", f"Module {twice} is listed twice. A card is known by its module id.")
    return topology


def _list(given: Mapping[str, object], key: str) -> list[object]:
    """Return a list; one that is not said is empty."""
    value = given.get(key)
    return [] if value is None else list(sequence(value, key, LONGEST_LIST))


def _card(given: object, place: str) -> dict[str, Any]:
    """Return a card with all its keys."""
    card = mapping(given, place)
    known = new_card(None, None)
    only_known(card, place, tuple(known))
    for key in known:
        if key in _NUMBERS:
            known[key] = _number(card, key, f"{place}.{key}")
        elif key not in ("module_id", "cpus", "users"):
            known[key] = _text(card, key, f"{place}.{key}")
    known["module_id"] = _number(card, "module_id", f"{place}.module_id", LAST_MODULE)
    cpus = _text(card, "cpus", f"{place}.cpus") or ""
    try:
        known["cpus"] = normalise_cpulist(cpus)
    except ValueError as error:
        raise Refusal("not_a_cpu_list", f"{place}.cpus: {error}.") from error
    known["users"] = [_user(user, f"{place}.users") for user in _list(card, "users")]
    return known


def _user(given: object, place: str) -> dict[str, Any]:
    """Return a user of a card with all its keys."""
    user = mapping(given, place)
    only_known(user, place, tuple(new_user()))
    return {
        key: _number(user, key, f"{place}.{key}") if key == "pid" else _text(user, key, f"{place}.{key}")
        for key in new_user()
    }


def _finding(given: object, place: str) -> dict[str, Any]:
    """Return a finding."""
    found = mapping(given, place)
    only_known(found, place, ("id", "severity", "message"))
    return {key: text(found.get(key), f"{place}.{key}") for key in ("id", "severity", "message")}


def _address(given: object, place: str) -> list[str]:
    """Return a pair of interface and address."""
    pair = sequence(given, place, 2)
    if len(pair) != 2:
        raise Refusal("not_a_pair", f"{place} must be a pair such as [eth0, 10.20.0.11/24], not {shown(given)}.")
    return [text(part, place) for part in pair]


def _number(given: Mapping[str, object], key: str, place: str, highest: int = LARGEST) -> int | None:
    """Return a whole number, None where it is not known."""
    return None if given.get(key) is None else integer(given[key], place, 0, highest)


def _text(given: Mapping[str, object], key: str, place: str) -> str | None:
    """Return one line of text, None where it is not known."""
    return None if given.get(key) is None else text(given[key], place, empty=True)
