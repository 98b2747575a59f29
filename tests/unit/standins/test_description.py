"""Node descriptions: every one in the tree is good, and a bad one is refused with all that is wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.standins import description

NAMES = sorted(path.stem for path in description.DESCRIPTIONS.glob("*.yml"))


@pytest.mark.parametrize("name", NAMES)
def test_every_description_loads_and_says_what_it_is(name: str) -> None:
    document = description.load(name)
    assert document["simulated"] is True
    assert yaml.safe_load((description.DESCRIPTIONS / f"{name}.yml").read_text(encoding="utf-8"))["about"]
    assert sorted(card["index"] for card in document["cards"]) == list(range(len(document["cards"])))
    assert len({card["serial"] for card in document["cards"]}) == len(document["cards"])
    assert all(card["serial"].startswith("SIM") for card in document["cards"])
    assert json.loads(description.render(document)) == document


def test_the_default_is_eight_oam_cards_whose_modules_are_not_their_indexes() -> None:
    cards = description.load(description.DEFAULT)["cards"]
    assert [card["name"] for card in cards] == ["HL-225"] * 8
    assert sorted(card["module_id"] for card in cards) == list(range(8))
    assert [card["module_id"] for card in cards] != [card["index"] for card in cards]
    assert {card["numa_node"] for card in cards} == {0, 1}


@pytest.mark.parametrize(
    ("name", "module", "external"),
    [
        ("gaudi2-oam8", 5, [8, 22, 23]),
        ("gaudi3-oam8", 5, [2, 3, 7]),
        ("gaudi3-oam8", 0, [17, 20, 21]),
        ("gaudi2e-pcie8", 5, []),
        ("gaudi3-pcie8", 5, [8, 9, 10, 11]),
    ],
)
def test_external_ports_are_those_of_the_card_and_its_place(name: str, module: int, external: list[int]) -> None:
    cards = {card["module_id"]: card["ports"] for card in description.load(name)["cards"]}
    assert cards[module]["external"] == external
    assert not set(cards[module]["internal"]) & set(external)
    assert len(cards[module]["internal"]) == (18 if "pcie" in name else 21)


def good() -> dict[str, Any]:
    return {"card": "HL-225", "release": "1.22.1", "modules": [1, 0], "numa": [{"cpus": "0-3", "modules": [0, 1]}]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"card": "HL-999"}, "'HL-999' is not one of"),
        ({"modules": [0, 0]}, "non-unique"),
        ({"modules": [0, 1, 2]}, "its nodes hold modules [0, 1], the cards are [0, 1, 2]"),
        ({"release": "9.9.9"}, "9.9.9 is not recorded"),
        ({"bus_ids": ["0000:33:00.0"]}, "1 entries for 2 cards"),
        ({"busy": [{"module": 7, "name": "python3"}]}, "busy: there is no module 7"),
        ({"busy": [{"module": 0, "name": "a name that is far too long"}]}, "does not match"),
        ({"lost": [9]}, "lost: there is no module 9"),
        ({"links_down": [{"module": 0, "ports": [99]}]}, "99 is greater than the maximum"),
        ({"card": "HL-288E", "links_down": [{"module": 0, "ports": [8]}]}, "HL-288E has no port [8]"),
        ({"numa": [{"cpus": "3-0", "modules": [0, 1]}]}, "CPU range '3-0' runs backwards"),
        ({"numa": [{"cpus": "0-3,2", "modules": [0, 1]}]}, "names a CPU twice"),
        ({"numa": [{"cpus": "0-3", "modules": [0]}, {"cpus": "3-5", "modules": [1]}]}, "two nodes share a CPU"),
        ({"fabric": {"slow": [{"module": 7, "share": 0.5}]}}, "fabric.slow: there is no module 7"),
        ({"fabric": {"slow": [{"module": 1, "share": 1.5}]}}, "1.5 is greater than or equal to the maximum"),
        ({"fabric": {"hang": [7]}}, "fabric.hang: there is no module 7"),
        ({"nonsense": 1}, "nonsense"),
        ({"faults": {"explode": True}}, "explode"),
    ],
)
def test_a_contradiction_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="Node description 'bad' is wrong") as refusal:
        description.expand({**good(), **change}, "bad")
    assert said in str(refusal.value)


def test_a_machine_without_numa_information(tmp_path: Path) -> None:
    path = tmp_path / "flat.yml"
    path.write_text(yaml.safe_dump({**good(), "numa": []}), encoding="utf-8")
    cards = description.load(path)["cards"]
    assert {(card["numa_node"], card["cpus"]) for card in cards} == {(-1, "")}


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no node description 'gaudi9'.*gaudi2-oam8"):
        description.load("gaudi9")


def test_a_description_is_not_changed_by_expanding_it() -> None:
    given_one = good()
    before = copy.deepcopy(given_one)
    description.expand(given_one, "same")
    assert given_one == before


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpu_lists_come_back_as_the_numbers_they_name(cpus: set[int]) -> None:
    assert description.expand_cpus(",".join(map(str, sorted(cpus)))) == sorted(cpus)
