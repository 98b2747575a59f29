"""docs/fabric.md: its figures are those of the catalogue, its bounds those of the code, its ids all that there are."""

from __future__ import annotations

import re

import yaml
from ansible.module_utils.gaudi.catalogue.compute import ComputeBounds
from ansible.module_utils.gaudi.catalogue.fabric import size_text
from ansible.module_utils.gaudi.fabric import compute
from ansible.module_utils.gaudi.fabric.classes import SLOW_BELOW

from tests.unit.fabric.made import EIGHT, ROOT, TYPES, most_runs

TEXT = (ROOT / "docs" / "fabric.md").read_text(encoding="utf-8")
BOUNDS = ComputeBounds.from_cards(yaml.safe_load((ROOT / "catalog" / "cards.yml").read_text(encoding="utf-8")))
SOURCE = (ROOT / "module_utils" / "gaudi" / "fabric" / "verdict.py").read_text(encoding="utf-8")


def rows(first: str) -> list[list[str]]:
    """The rows below a table's heading."""
    table = TEXT.partition(f"| {first} |")[2].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def test_the_figures_are_those_of_the_catalogue() -> None:
    expected = []
    for card in {card.name: card for card in TYPES.values()}.values():
        if card.fabric is None:
            continue
        keys = {(each.collective, each.size) for each in (*card.fabric.samples, *card.fabric.pass_limits)}
        for collective, size in keys:
            sample, limit = card.fabric.sample(collective, 8, size), card.fabric.pass_limit(collective, 8, size)
            expected.append(
                [
                    card.name,
                    f"{collective} {size_text(size)}",
                    f"{sample.nw_gb_s:.1f}, {sample.algo_gb_s:.1f}" if sample else "-",
                    f"{SLOW_BELOW * sample.nw_gb_s:.1f}" if sample else "-",
                    f"{limit.nw_gb_s:g}" if limit else "-",
                ]
            )
    assert sorted(rows("card")) == sorted(expected)


def test_the_bounds_are_those_of_the_code() -> None:
    assert rows("further runs at most, for") == [
        [f"a group of {cards}", *(str(bound) for bound in most_runs(cards).values())] for cards in (8, 4)
    ]


def test_the_checks_of_numbers_are_those_of_the_code() -> None:
    asked = compute.request(compute.plan((), EIGHT, (EIGHT,), (), "boot", BOUNDS.copy_mib))
    told = {row[0].strip("`"): row for row in rows("check")}
    assert set(told) == {*compute.OF_A_CARD, *compute.OF_A_GROUP}
    assert f"until {asked['copy_bytes'] >> 30} GiB lie there" in told["copy"][1]
    assert f"a table of {asked['table_bytes'] >> 20} MiB" in told["gather"][1]
    assert f"an inner side of {asked['inner']}," in told["matmul"][1]
    assert BOUNDS.matmul == 2**-7
    assert "beyond 2^-7 of" in told["matmul"][2]
    assert compute.ROUNDS["full"] == 2
    assert [row[0].strip("`") for row in told.values() if row[2].startswith("warns")] == ["matmul"]


def test_every_answer_to_an_instance_has_its_line() -> None:
    told = set(re.findall(r'"(fabric_[a-z_]+)"', SOURCE)) - {"fabric_busy", "fabric_to_measure"}
    assert {row[0].strip("`") for row in rows("id")} == told
