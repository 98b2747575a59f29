"""The chart: an SVG by itself, with every point, and nothing of a name that is drawn becomes a part of it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from ansible.module_utils.gaudi.benchmark import chart

from tests.unit.benchmark.made import run, step

SVG = "{http://www.w3.org/2000/svg}"
OTHER = "bbbbbbbbbbbb-20260201T080000Z"


def drawn(*runs: dict[str, object]) -> ElementTree.Element:
    return ElementTree.fromstring(str(chart.draw(runs)))  # noqa: S314 - our own


def points(svg: ElementTree.Element, kind: str) -> list[list[tuple[float, float]]]:
    lines = [each for each in svg.iter(f"{SVG}polyline") if kind in each.attrib["class"].split()]
    return [[tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()] for line in lines]  # type: ignore[misc]


def test_each_figure_is_a_line_over_the_concurrency() -> None:
    svg = drawn(run(steps=[step(1, 100.0), step(4, 320.0), step(16, 400.0)]))
    (tokens, *latencies) = points(svg, "r0")
    assert len(latencies) == 4
    assert [x for x, _ in tokens] == sorted(x for x, _ in tokens)
    # Upwards on paper is a smaller y.
    assert [y for _, y in tokens] == sorted((y for _, y in tokens), reverse=True)
    assert len(points(svg, "p99")) == 2
    texts = ["".join(each.itertext()) for each in svg.iter(f"{SVG}text")]
    assert {"Tokens a second", "1", "4", "16"} <= set(texts)
    assert "tokens a second 100.0 at 1, 320.0 at 4, 400.0 at 16" in svg.attrib["aria-label"]


def test_two_runs_share_the_axes_and_differ_in_more_than_colour() -> None:
    svg = drawn(run(), run(OTHER, steps=[step(4, 160.0), step(8, 200.0)]))
    first, second = points(svg, "r0")[0], points(svg, "r1")[0]
    assert first[1][0] == second[0][0]
    assert len(list(svg.iter(f"{SVG}circle"))) == 1 + 5 * 2
    assert len([each for each in svg.iter(f"{SVG}rect") if each.attrib["class"] == "mark r1"]) == 1 + 5 * 2


def test_it_needs_nothing_from_outside_and_takes_no_markup() -> None:
    text = str(chart.draw([run(model="</style><script>alert(1)</script>&\"'", release="<b>")]))
    assert "<script" not in text
    assert "<b>" not in text
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"@import|url\(|href|src=", text)


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [step(1)],
        [step(1, 0.0)],
        [step(1, 5e-324)],
        [step(n) for n in (1, 2, 4, 8, 16, 32, 64, 128)],
    ],
)
def test_everything_that_is_drawn_lies_on_the_paper(steps: list[dict[str, object]]) -> None:
    svg = drawn(run(steps=steps), run(OTHER, steps=steps))
    _, _, wide, high = map(float, svg.attrib["viewBox"].split())
    for line in points(svg, "line"):
        assert all(0 <= x <= wide and 0 <= y <= high for x, y in line)
