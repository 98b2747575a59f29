"""What came of a benchmark: the client's figures by our names, runs by their names, and tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.benchmark import figures

from tests.unit.benchmark.made import run, step, written
from tests.unit.preflight.test_contracts import ROOT

RECORDED = Path(__file__).parent / "recorded"


def test_the_figures_of_a_client_have_our_names() -> None:
    found = figures.step_of(written(3), 2, 4)
    assert (found["concurrency"], found["requests"], found["failed"]) == (2, 4, 1)
    assert found["tokens_per_second"] == 256.0
    assert found["ttft_p99_ms"] == 60.0
    assert set(found) == {"concurrency", "requests", "failed", *figures.FIGURES}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"output_throughput": None}, "output_throughput"),
        ({"output_throughput": "fast"}, "output_throughput"),
        ({"p99_ttft_ms": float("nan")}, "p99_ttft_ms"),
        ({"median_tpot_ms": float("inf")}, "median_tpot_ms"),
        ({"duration": -1.0}, "duration"),
        ({"duration": True}, "duration"),
        ({"duration": 10**400}, "duration"),
        ({"completed": 5}, "completed"),
        ({"completed": None}, "completed"),
    ],
)
def test_what_is_no_figure_is_named(changes: dict[str, object], named: str) -> None:
    with pytest.raises(Refusal, match=f"The client wrote no {named} for 2 at a time"):
        figures.step_of(written(4, **changes), 2, 4)


def test_a_run_is_read_as_it_was_kept_and_nothing_else() -> None:
    assert figures.read(json.dumps(run())) == run()
    wrong = [
        run("../../etc/x"),
        run(steps=[step(1, float("nan"))]),
        run(steps=[step(1, float("inf"))]),
        run(steps=[step(at, 1.0) for at in range(1, 258)]),
        {"run": "x"},
        [],
    ]
    for document in wrong:
        with pytest.raises(ValueError, match=r"^it "):
            figures.read(json.dumps(document))


def test_what_an_owner_measured_is_a_run_that_others_are_compared_with() -> None:
    printed = (RECORDED / "bench_serve_0.26.0.txt").read_text(encoding="utf-8")
    told = {found[1]: float(found[2]) for found in re.finditer(r"^([A-Z][^:\n]+): +([\d.]+) *$", printed, re.MULTILINE)}
    recorded = figures.read((ROOT / "docs/examples/recorded-qwen3-30b-8x-hl-225.json").read_text(encoding="utf-8"))
    (one,) = recorded["steps"]
    assert one == {
        "concurrency": told["Maximum request concurrency"],
        "requests": told["Successful requests"],
        "failed": told["Failed requests"],
        "seconds": told["Benchmark duration (s)"],
        "input_tokens": told["Total input tokens"],
        "output_tokens": told["Total generated tokens"],
        "requests_per_second": told["Request throughput (req/s)"],
        "tokens_per_second": told["Output token throughput (tok/s)"],
        "ttft_p50_ms": told["Median TTFT (ms)"],
        "ttft_p99_ms": told["P99 TTFT (ms)"],
        "tpot_p50_ms": told["Median TPOT (ms)"],
        "tpot_p99_ms": told["P99 TPOT (ms)"],
    }
    half = {**one, "tokens_per_second": one["tokens_per_second"] / 2}
    lines = figures.table(run(steps=[half], input_tokens=1024, output_tokens=512), recorded)
    assert [line.split() for line in lines][-1][:2] == ["10", "0.50"]


def test_a_run_is_found_by_a_part_of_its_name() -> None:
    names = ["3f2a91c07d1e-20260131T080000Z", "3f2a91c07d1e-20260201T080000Z", "aaaaaaaaaaaa-20260131T080000Z"]
    assert figures.chosen(names, "aaa") == names[2]
    assert figures.chosen(names, "20260201") == names[1]
    with pytest.raises(Refusal, match="Several runs have '3f2a' in the name"):
        figures.chosen(names, "3f2a")
    with pytest.raises(Refusal, match=r"No run on this node has 'x' in the name\. The last ones are: 3f2a"):
        figures.chosen(names, "x")
    with pytest.raises(Refusal, match="The last ones are: none"):
        figures.chosen([], "b")


def test_failed_requests_are_said() -> None:
    assert figures.failed(run()) == ""
    assert figures.failed(run(steps=[step(1), step(4, failed=3)])) == (
        "Requests of chat failed: 3 of 16 with 4 at a time."
    )


def test_the_table_of_one_run() -> None:
    assert figures.table(run()) == [
        "3f2a91c07d1e-20260131T080000Z: chat, qwen3-8b, release 1.22, 1024 tokens in, 128 out",
        "  at a time  requests  failed  tokens/s  requests/s  TTFT p50  TTFT p99  TPOT p50  TPOT p99",
        "          1         4       0     100.0        2.00      40.0      60.0     10.00     14.50",
        "          4        16       0     320.0        2.00      40.0      60.0     10.00     14.50",
        "TTFT and TPOT are milliseconds.",
    ]


def test_the_table_of_two_runs_has_ratios_of_what_both_measured() -> None:
    now = run("bbbbbbbbbbbb-20260201T080000Z", steps=[step(4, 640.0, tpot_p99_ms=0.0), step(8)])
    lines = figures.table(now, run())
    assert lines[-1] == "          4      2.00        1.00      1.00      1.00      1.00      0.00"
    assert lines[-3] == "bbbbbbbbbbbb-20260201T080000Z as a multiple of 3f2a91c07d1e-20260131T080000Z:"
    assert not [line for line in lines if "other lengths" in line]
    # From nothing there is no ratio.
    assert figures.table(run(), now)[-1].endswith("-")


def test_two_runs_that_say_little_of_each_other_say_so() -> None:
    other = run("bbbbbbbbbbbb-20260201T080000Z", output_tokens=64)
    assert "The two had other lengths: their figures say little of each other." in figures.table(run(), other)
    apart = figures.table(run(steps=[step(2)]), run())
    assert apart[-1] == "They have no concurrency in common, so there is no ratio."
