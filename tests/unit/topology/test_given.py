"""A given topology: what hl-smi prints on a machine that is not here."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.topology import topology_from_case
from ansible.module_utils.gaudi.topology_text import WIDTH, describe_node
from hypothesis import given
from hypothesis import strategies as st

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
        ({"hl_smi_topo": None}, "hl_smi_topo is text as hl-smi prints it, not 'None'"),
        ({"colour": "red"}, "unknown: colour"),
        ({"hl_smi_name_csv": "name\nHL-225\n"}, "hl_smi_name_csv lists 1 cards, hl_smi_index_module_csv 3"),
        ({"hl_smi_index_module_csv": "index, module_id\n0, 5\n1, N/A\n2, 0\n"}, "needs a number as module_id"),
        ({"hl_smi_index_module_csv": "index, module_id\n0, 5\n1, 5\n2, 0\n"}, "lists module 5 twice"),
        ({"hl_smi_topo": "0 0-39 0"}, "no 'modID' header"),
        ({"modules_in_use": [7]}, "modules_in_use names module 7"),
        ({"modules_in_use": "1"}, "modules_in_use is a list of module ids"),
        ({"modules_in_use": [None]}, "modules_in_use is a list of module ids"),
        ({"addresses": ["10.0.0.1"]}, "addresses is a list of pairs"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        topology_from_case({**CASE, **changes})


def test_missing_keys_are_named() -> None:
    with pytest.raises(ValueError, match="missing: hl_smi_name_csv, hl_smi_index_module_csv, hl_smi_topo"):
        topology_from_case({})


VALUES = st.none() | st.text(max_size=30) | st.integers() | st.lists(st.integers() | st.text(max_size=5), max_size=3)


@given(st.dictionaries(st.sampled_from(sorted(CASE)), VALUES))
def test_any_description_is_read_or_refused(changes: dict[str, Any]) -> None:
    try:
        topology = topology_from_case({**CASE, **changes})
    except ValueError:
        return
    assert max(map(len, describe_node(topology).split("\n"))) <= WIDTH
