"""A given topology: what hl-smi prints on a machine that is not here."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ansible.module_utils.gaudi.cards.document import build_topology, new_card
from ansible.module_utils.gaudi.cards.given import given_topology, topology_from_case
from ansible.module_utils.gaudi.cards.text import WIDTH, describe_node
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cards.nodes import holder, sources

TOPO = (
    "modID   CPU Affinity      NUMA Affinity    \n-----   ------------      -------------    \n"
    "0       0-39, 80-119      0  \n1       0-39, 80-119      0  \n5       40-79, 120-159    1  \n"
)
CASE: dict[str, Any] = {
    "hl_smi_name_csv": "name\nHL-225\nHL-225\nHL-225\n",
    "hl_smi_index_module_csv": "index, module_id\n0, 5\n1, 1\n2, 0\n",
    "hl_smi_topo": TOPO,
    "modules_in_use": [1],
    "addresses": [["lo", "127.0.0.1/8"], ["eth0", "10.20.0.11/24"]],
}


def test_the_document() -> None:
    topology = topology_from_case(CASE)
    cards = [
        (card["module_id"], card["index"], card["name"], card["numa_node"], card["cpus"]) for card in topology["cards"]
    ]
    assert cards == [
        (0, 2, "HL-225", 0, "0-39,80-119"),
        (1, 1, "HL-225", 0, "0-39,80-119"),
        (5, 0, "HL-225", 1, "40-79,120-159"),
    ]
    assert [len(card["users"]) for card in topology["cards"]] == [0, 1, 0]
    assert topology["addresses"] == [["lo", "127.0.0.1/8"], ["eth0", "10.20.0.11/24"]]
    assert topology["findings"] == []
    # What such a description does not say stays unknown.
    assert {topology["cards"][0][key] for key in ("serial", "memory_total_mib", "bus_id", "state")} == {None}


@pytest.mark.parametrize(
    ("old", "new", "sentences"),
    [
        ("1       0-39, 80-119      0  \n", "", ["hl-smi topo has no row for module 1, which is among the cards."]),
        (
            "5    ",
            "9    ",
            ["has no row for module 5", "hl-smi topo has a row for module 9, which is not among the cards."],
        ),
    ],
)
def test_cards_and_places_that_do_not_go_together(old: str, new: str, sentences: list[str]) -> None:
    findings = topology_from_case({**CASE, "hl_smi_topo": TOPO.replace(old, new)})["findings"]
    assert [found["id"] for found in findings] == ["sources-disagree"] * len(sentences)
    for found, words in zip(findings, sentences, strict=True):
        assert words in found["message"]
    picture = describe_node(topology_from_case({**CASE, "hl_smi_topo": TOPO.replace(old, new)}))
    assert "warning: hl-smi topo has no row for module" in picture


def test_a_name_that_is_no_card() -> None:
    (found,) = topology_from_case({**CASE, "hl_smi_name_csv": "name\nHL-225\nHL-999\nHL-225\n"})["findings"]
    assert found["id"] == "unknown-card"
    assert "HL-999 is no card of catalog/cards.yml" in found["message"]


def test_what_may_be_left_out() -> None:
    bare = {key: value for key, value in CASE.items() if key.startswith("hl_smi")}
    topology = topology_from_case(bare)
    assert (topology["addresses"], [card["users"] for card in topology["cards"]]) == ([], [[], [], []])
    nothing = topology_from_case({"hl_smi_name_csv": "name\n", "hl_smi_index_module_csv": "", "hl_smi_topo": ""})
    assert nothing["cards"] == []
    nowhere = topology_from_case({**CASE, "hl_smi_topo": "\n"})
    assert {(card["numa_node"], card["cpus"]) for card in nowhere["cards"]} == {(None, "")}


def test_unspaced_lists_and_smt_off() -> None:
    topo = TOPO.replace(", ", ",").replace("40-79,120-159", "40-79")
    cards = topology_from_case({**CASE, "hl_smi_topo": topo})["cards"]
    assert [card["cpus"] for card in cards] == ["0-39,80-119", "0-39,80-119", "40-79"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hl_smi_topo": None}, "hl_smi_topo must be text as hl-smi prints it, not null."),
        ({"hl_smi_topo": True}, "hl_smi_topo must be text as hl-smi prints it, not true."),
        ({"hl_smi_topo": {"0": None}}, "hl_smi_topo must be text as hl-smi prints it, not {'0': null}."),
        ({"colour": "red"}, "does not know 'colour'. Known: addresses, hl_smi_index_module_csv,"),
        ({"hl_smi_name_csv": "name\nHL-225\n"}, "hl_smi_name_csv lists 1 cards, hl_smi_index_module_csv 3."),
        ({"hl_smi_name_csv": "name\nHL-225, 5\n"}, "hl_smi_name_csv: hl-smi printed 2 cells for 1 fields"),
        (
            {"hl_smi_index_module_csv": "index, module_id\n0, 5\n1, N/A\n2, 0\n"},
            "hl_smi_index_module_csv: an index and a module id from 0 to 255 are needed in each row, not "
            "{'index': '1', 'module_id': null}.",
        ),
        ({"hl_smi_index_module_csv": "index, module_id\n0, 5\n1, x\n2, 0\n"}, "hl_smi_index_module_csv: not a number"),
        ({"hl_smi_index_module_csv": "index, module_id\n0, 1\n1, 1\n2, 0\n"}, "Module 1 is listed twice."),
        ({"hl_smi_topo": "0 0-39 0"}, "hl_smi_topo: hl-smi topo printed no 'modID' header"),
        ({"modules_in_use": [7]}, "modules_in_use names module 7, which hl_smi_index_module_csv does not list."),
        ({"modules_in_use": "1"}, "modules_in_use must be a list, not '1'."),
        ({"modules_in_use": [None]}, "modules_in_use must be a whole number from 0 to 255, not null."),
        ({"addresses": ["10.0.0.1"]}, "addresses[0] must be a list, not '10.0.0.1'."),
        ({"addresses": [["eth0"]]}, "addresses[0] must be a pair such as [eth0, 10.20.0.11/24], not ['eth0']."),
        ({"addresses": [["eth0", 10]]}, "addresses[0] must be text, not 10."),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        given_topology({**CASE, **changes})


def test_missing_keys_are_named() -> None:
    with pytest.raises(ValueError, match="hl_smi_name_csv, hl_smi_topo must be given as well"):
        given_topology({"hl_smi_index_module_csv": "index, module_id\n"})


def test_what_the_module_returns_is_taken_as_it_is() -> None:
    topology = build_topology(sources(holders=[holder(0)]))
    assert given_topology(topology) == topology
    result = {"changed": False, "failed": False, "picture": "...", "topology": json.loads(json.dumps(topology))}
    assert given_topology(result) == topology


def test_of_a_card_little_needs_to_be_said() -> None:
    topology = given_topology({"cards": [{"module_id": 1, "name": "HL-225", "cpus": "0-3, 4-7"}, {"module_id": 0}]})
    assert [(card["module_id"], card["name"], card["cpus"]) for card in topology["cards"]] == [
        (0, None, ""),
        (1, "HL-225", "0-7"),
    ]
    assert topology["cards"][0]["users"] == topology["findings"] == topology["addresses"] == []
    assert "2 x" not in describe_node(topology)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "It is empty, but what hl-smi prints was expected (hl_smi_name_csv,"),
        ({"topologie": {}, "cars": []}, "Its keys are cars, topologie, but what hl-smi prints was expected"),
        (None, "The content must be a mapping of names to values, not null."),
        ([1], "The content must be a mapping of names to values, not [1]."),
        ({1: 2}, "The content must be a mapping of names to values, not {1: 2}."),
        ({"cards": {}}, "cards must be a list, not {}."),
        ({"cards": [None]}, "cards[0] must be a mapping of names to values, not null."),
        ({"cards": [{}, {"modul_id": 1}]}, "cards[1] does not know 'modul_id'. Known: boot_fit, bus_id,"),
        ({"cards": [{"module_id": "one"}]}, "cards[0].module_id must be a whole number from 0 to 255, not 'one'."),
        ({"cards": [{"module_id": True}]}, "cards[0].module_id must be a whole number from 0 to 255, not true."),
        ({"cards": [{"module_id": 1}, {"module_id": 1}]}, "Module 1 is listed twice."),
        ({"cards": [{"cpus": "many"}]}, "cards[0].cpus: not a CPU list such as 0-39,80-119: 'many'."),
        ({"cards": [{"name": ["HL-225"]}]}, "cards[0].name must be text, not ['HL-225']."),
        ({"cards": [{"users": [{"pid": "4242x"}]}]}, "cards[0].users.pid must be a whole number"),
        ({"cards": [], "colour": "red"}, "A topology does not know 'colour'. Known: addresses, cards,"),
        ({"cards": [], "schema": 2}, "schema is 2, but 1 is read here."),
        ({"cards": [], "findings": [{"id": "x"}]}, "findings[0].severity must be text, not null."),
        ({"cards": [{"module_id": 1}] * 300}, "The list of cards has 300 entries, the limit is 256."),
    ],
)
def test_a_document_that_is_none_is_refused_with_the_key(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        given_topology(given)


VALUES = st.none() | st.text(max_size=30) | st.integers() | st.lists(st.integers() | st.text(max_size=5), max_size=3)


@given(st.dictionaries(st.sampled_from(sorted(CASE)), VALUES))
def test_any_description_is_read_or_refused(changes: dict[str, Any]) -> None:
    try:
        topology = given_topology({**CASE, **changes})
    except ValueError as refused:
        # Outside of what is quoted, Python's own spellings mean nothing to whoever wrote the file.
        assert not re.search(r"\b(None|True|False)\b", re.sub(r"'[^']*'|\"[^\"]*\"", "", str(refused)))
        return
    assert max(map(len, describe_node(topology).split("\n"))) <= WIDTH


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*new_card(0, 0), "colour"])


@given(st.fixed_dictionaries({"cards": st.lists(st.dictionaries(KEYS, VALUES | ANYTHING), max_size=3)}), ANYTHING)
def test_any_document_is_read_or_refused(document: dict[str, Any], more: Any) -> None:
    for whole in (document, {**document, "addresses": more}, {**document, "findings": more}, more):
        try:
            topology = given_topology(whole)
        except ValueError:
            continue
        assert max(map(len, describe_node(topology).split("\n"))) <= WIDTH
        assert given_topology(topology) == topology
