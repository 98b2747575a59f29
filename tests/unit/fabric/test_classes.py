"""The class of a bandwidth: against published figures, pass limits, the site's floors, other groups and the record."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.fabric.classes import (
    ClassifiedRun,
    Floor,
    RecordedFigure,
    judge,
    modules_text,
    read_floors,
)
from ansible.module_utils.gaudi.fabric.output import Figure, RunOutput
from ansible.module_utils.gaudi.fabric.runs import DemoRun

from tests.unit.fabric.made import EIGHT, MIB, USUAL, fabric, failed, printed

QUADS = (DemoRun((0, 1, 2, 3), "all_reduce", 32 * MIB, 10000), DemoRun((4, 5, 6, 7), "all_reduce", 32 * MIB, 10000))


def one(run: DemoRun, output: RunOutput, card: str = "HL-225", **given: tuple[Floor, ...]) -> ClassifiedRun:
    return judge([(run, output)], fabric(card), given.get("floors", ()), ())[0]


@pytest.mark.parametrize(
    ("nw", "word"), [(258.2, "good"), (232.4, "good"), (232.3, "slow"), (129.0, "slow"), (1.0, "slow"), (400.0, "good")]
)
def test_below_ninety_per_cent_of_the_published_figure_is_slow(nw: float, word: str) -> None:
    result = one(USUAL, printed(USUAL, nw))
    assert (result.word, result.basis) == (word, "published")
    assert result.floor_gb_s == pytest.approx(232.388, abs=0.001)
    assert result.passed is (word == "good")


def test_a_pass_limit_counts_for_its_own_size_only() -> None:
    limited = DemoRun(EIGHT, "all_reduce", 256 * MIB, 1000)
    assert one(limited, printed(limited, 127.0)).word == "broken"
    assert one(limited, printed(limited, 127.0)).basis == "limit"
    assert one(limited, printed(limited, 127.5)).word == "unpublished"
    assert one(USUAL, printed(USUAL, 127.0)).word == "slow"
    gaudi3 = DemoRun(EIGHT, "all_reduce", 256 * MIB, 1000)
    assert [one(gaudi3, printed(gaudi3, nw), "HL-325L").word for nw in (255.0, 255.5, 461.0, 462.0)] == [
        "broken",
        "slow",
        "slow",
        "good",
    ]


def test_a_run_that_failed_is_broken_whatever_it_printed() -> None:
    result = one(USUAL, RunOutput(printed(USUAL, 258.2).figures, failed("hccl-wrong-result").failure))
    assert (result.word, result.failure, result.nw_gb_s) == ("broken", "hccl-wrong-result", 258.2)
    assert result.sentence.startswith("all_reduce of 32m over modules 0-7: ")


def test_a_figure_of_another_size_does_not_count() -> None:
    other = RunOutput((Figure("all_reduce", MIB, 10000, 258.2, 147.5),), None)
    assert one(USUAL, other).word == "broken"
    assert "no NW Bandwidth for this size" in one(USUAL, other).sentence


def test_the_sites_own_floor_replaces_the_published_one_and_the_exact_one_counts() -> None:
    floors = (Floor("all_reduce", 100.0), Floor("all_reduce", 250.0, ranks=8), Floor("all_gather", 999.0))
    result = one(USUAL, printed(USUAL, 245.0), floors=floors)
    assert (result.word, result.basis, result.floor_gb_s) == ("slow", "site", 250.0)
    assert one(USUAL, printed(USUAL, 101.0), floors=floors[:1]).word == "good"
    others = (Floor("all_reduce", 999.0, size=MIB), Floor("all_reduce", 999.0, ranks=4))
    assert one(USUAL, printed(USUAL, 240.0), floors=others).basis == "published"


def test_groups_without_a_published_figure_are_compared_with_each_other() -> None:
    words = [
        result.word
        for result in judge(
            [(QUADS[0], printed(QUADS[0], 200.0)), (QUADS[1], printed(QUADS[1], 170.0))], fabric("HL-338"), (), ()
        )
    ]
    assert words == ["unpublished", "slow"]
    even = judge([(QUADS[0], printed(QUADS[0], 200.0)), (QUADS[1], printed(QUADS[1], 185.0))], fabric("HL-338"), (), ())
    assert [result.word for result in even] == ["unpublished", "unpublished"]
    assert all("No figure is published for it" in result.sentence for result in even)
    assert (even[0].basis, even[1].floor_gb_s) == ("groups", 180.0)


def test_a_group_that_failed_is_nothing_to_compare_with() -> None:
    wrong = RunOutput(printed(QUADS[0], 200.0).figures, failed("hccl-wrong-result").failure)
    first, second = judge([(QUADS[0], wrong), (QUADS[1], printed(QUADS[1], 1.0))], fabric("HL-338"), (), ())
    assert (first.word, second.word, second.basis) == ("broken", "unpublished", "none")


def test_the_nodes_own_record_is_compared_with_where_nothing_is_published() -> None:
    record = (RecordedFigure(replace(QUADS[0], loop=1000), 200.0), RecordedFigure(QUADS[1], 500.0))
    result = judge([(QUADS[0], printed(QUADS[0], 179.0))], fabric("HL-338"), (), record)[0]
    assert (result.word, result.basis, result.floor_gb_s) == ("slow", "record", 180.0)
    assert judge([(QUADS[0], printed(QUADS[0], 181.0))], fabric("HL-338"), (), record)[0].word == "unpublished"


def test_published_figures_are_not_for_host_nics() -> None:
    over = replace(USUAL, over_host_nics=True)
    assert one(over, printed(over, 50.0)).word == "unpublished"
    limited = replace(over, size=256 * MIB)
    assert one(limited, printed(limited, 50.0)).word == "unpublished"
    assert "over host NICs" in one(over, printed(over, 50.0)).sentence


@pytest.mark.parametrize(
    ("floor", "id_"),
    [
        ({"collective": "all_reduce", "nw_gb_s": "fast"}, "not_a_number"),
        ({"collective": "all_reduce", "nw_gb_s": float("nan")}, "out_of_range"),
        ({"collective": "all_reduce", "nw_gb_s": -1}, "out_of_range"),
        ({"collective": "all_reduce"}, "missing_key"),
        ({"collective": "all", "nw_gb_s": 1}, "unknown_choice"),
        ({"collective": "all_reduce", "nw_gb_s": 1, "ranks": 1}, "out_of_range"),
        ({"collective": "all_reduce", "nw_gb_s": 1, "size": "x"}, "wrong_form"),
        ("245", "not_a_mapping"),
    ],
)
def test_a_floor_that_is_none_is_refused(floor: object, id_: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_floors([floor])
    assert refused.value.id == id_


def test_floors_are_read() -> None:
    assert read_floors([{"collective": "all_reduce", "nw_gb_s": "240.5", "ranks": "8", "size": "32m"}]) == (
        Floor("all_reduce", 240.5, 8, 32 * MIB),
    )
    assert read_floors(None) == ()


def test_a_result_is_plain_data() -> None:
    said = one(USUAL, printed(USUAL, 258.2)).as_dict()
    assert (said["class"], said["modules"], said["ranks"], said["size"]) == ("good", list(EIGHT), 8, 32 * MIB)


def test_modules_are_written_as_ranges() -> None:
    assert [modules_text(each) for each in ((0, 1, 2, 3), (0, 1), (3, 0, 1, 2, 6), (5,))] == [
        "0-3",
        "0, 1",
        "0-3, 6",
        "5",
    ]
