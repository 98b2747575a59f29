"""The page: its structure, what is drawn, that it loads nothing, and that no text of others becomes a part of it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from ansible.module_utils.gaudi.fabric.drawing import trend
from ansible.module_utils.gaudi.fabric.markup import Html, element
from ansible.module_utils.gaudi.fabric.report import report
from ansible.module_utils.gaudi.fabric.verdict import overridden
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fabric.pages import accepted, everything, pairs, quads, verdict

MADE = "2026-11-23T21:00:00+00:00"
HOSTILE = "<script>alert(1)</script>\"'&\x1b[2J"


class Page(HTMLParser):
    """The elements of a page: name, attributes, and the text inside; fails where one is left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[tuple[str, dict[str, str], list[str]]] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made: tuple[str, dict[str, str], list[str]] = (tag, {key: value or "" for key, value in attrs}, [])
        self.elements.append(made)
        if tag != "meta":
            self._open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for each in self._open:
            each[2].append(data)

    def of(self, tag: str, **wanted: str) -> list[str]:
        """The texts of the elements of a name whose attributes hold these words; class_ is the class."""
        words = {key.rstrip("_"): value.split() for key, value in wanted.items()}
        return [
            "".join(text)
            for name, attributes, text in self.elements
            if name == tag and all(set(value) <= set(attributes.get(key, "").split()) for key, value in words.items())
        ]


def page(*verdicts: dict[str, Any]) -> Page:
    return Page(report(verdicts, None, MADE))


def node(place: int) -> dict[str, Any]:
    return everything()[place]


def test_a_page_of_one_node_has_its_name_its_state_and_its_figure() -> None:
    made = page(accepted())
    assert made.of("h1") == ["Cards and links of gaudi-01"]
    assert made.of("span", class_="badge good")[0] == "✓ accepted"
    assert made.of("text", class_="figure") == ["258.2 GB/s"]
    assert len(made.of("line", class_="link good")) == 28
    assert made.of("g", class_="card good") == [f"Module {module}: good{module} ✓" for module in range(8)]
    assert "Looked at 2026-11-23 20:00 UTC." in made.of("p")


def test_a_slow_card_stands_out_and_so_do_its_links() -> None:
    made = page(node(1))
    assert made.of("g", class_="card bad") == ["Module 5: at fault5 ✗"]
    assert len(made.of("g", class_="card good")) == 7
    assert len(made.of("line", class_="link bad")) == 7
    assert made.of("p", class_="note doubt") == ["Let through all the same: spare part comes on Friday"]


def test_a_bad_link_is_a_line_of_its_own_in_the_group_it_belongs_to() -> None:
    made = page(node(2))
    assert made.of("line", class_="link fault") == ["Link of modules 5 and 6: at fault"]
    # Drawn last, so that no other line lies over it.
    assert made.of("line", class_="link")[-1] == "Link of modules 5 and 6: at fault"
    assert made.of("text", class_="figure") == ["201.3 GB/s", "97.8 GB/s"]
    assert len(made.of("line", class_="link good")) == 6
    assert "not in use" in made.of("td", **{"data-label": "Gaudi Direct"})
    assert made.of("p", class_="note")[-1].startswith("hl_qual passed")


def test_what_was_not_measured_has_no_links_and_no_figure() -> None:
    made = page(node(3))
    assert made.of("text", class_="figure") == ["no figure"]
    assert made.of("line", class_="link") == []
    assert len(made.of("g", class_="card unknown")) == 7
    assert "7 of 8" in made.of("p", class_="note bad")[0]


def test_a_group_that_failed_and_names_nobody_leaves_its_cards_in_doubt() -> None:
    made = page(node(5))
    assert made.of("text", class_="figure") == ["failed"]
    assert len(made.of("g", class_="card doubt")) == 8
    assert len(made.of("line", class_="link bad")) == 28


def test_a_site_has_an_overview_with_the_worst_first() -> None:
    made = Page(report(everything(), pairs(), MADE))
    assert made.of("h2")[:2] == ["Nodes", "Pairs of nodes"]
    assert made.of("h2")[2:] == ["gaudi-02", "gaudi-03", "gaudi-04", "gaudi-06", "gaudi-07", "gaudi-05", "gaudi-01"]
    targets = {attributes["href"] for name, attributes, _ in made.elements if name == "a"}
    ids = [attributes["id"] for _, attributes, _ in made.elements if "id" in attributes]
    assert targets == {f"#{each}" for each in ids if each.startswith("node-")}
    assert len(ids) == len(set(ids))
    assert "7 nodes: 1 accepted, 5 failed, 1 not measured." in made.of("p")[0]


def test_bad_pairs_are_seen_and_good_ones_are_a_click_away() -> None:
    made = Page(report([], pairs(), MADE))
    assert made.of("td", **{"data-label": "pair"})[0] == "gaudi-02 and gaudi-03"
    assert made.of("summary") == ["5 good pairs"]
    (folded,) = made.of("details")
    assert "gaudi-02 and gaudi-03" not in folded
    assert "gaudi-05 is left out: Module 3 is in use." in made.of("p", class_="note doubt")
    assert not any("open" in attributes for name, attributes, _ in made.elements if name == "details")
    nothing = {**pairs(), "pairs": [], "bad_links": [], "sentences": ["6 of 6 pairs have not met."]}
    assert Page(report([], nothing, MADE)).of("table") == []


def test_wrong_numbers_have_card_check_and_what_was_expected_and_came() -> None:
    made = page(node(6))
    assert "failed" in made.of("span", class_="badge bad")[0]
    text = " ".join(made.of("tr"))
    for words in ("module 3gather12-75 of 64", "module 4matmul12-7beyond the tolerance"):
        assert words in text
    assert {each.strip() for each in made.of("p", class_="note bad")} == {"Module 3 computes wrong numbers."}
    assert len(made.of("g", class_="card bad")) == 1
    assert "Numbers" not in page(node(0)).of("h3")


def test_history_is_a_curve_and_a_table() -> None:
    made = page(accepted())
    assert len(made.of("circle", class_="dot good")) == 4
    assert len(made.of("circle", class_="dot bad")) == 1
    assert "4 earlier" in made.of("summary")
    assert made.of("td", **{"data-label": "time"})[0] == "2026-11-22 20:00 UTC"
    assert made.of("figcaption") == ["all_reduce of 32m over modules 0-7"]
    once = accepted()
    assert page({**once, "history": []}).of("polyline") == []
    # Of other measurements a single point would be no curve.
    others = [{**entry, "measurements": []} for entry in once["history"]]
    assert (page({**once, "history": others}).of("figure"), len(page({**once, "history": others}).of("summary"))) == (
        [],
        2,
    )


def test_every_group_has_a_curve_of_its_own() -> None:
    made = page(
        verdict(
            "gaudi-03",
            *quads(201.3, 97.8),
            card="HL-338",
            before=verdict("gaudi-03", *quads(201.0, 200.8), card="HL-338"),
        )
    )
    assert made.of("figcaption") == ["all_reduce of 32m over modules 0-3", "all_reduce of 32m over modules 4-7"]
    assert [len(made.of("circle", class_=f"dot {state}")) for state in ("good", "bad")] == [3, 1]


def test_narrow_screens_have_the_heading_of_every_cell() -> None:
    made = Page(report(everything(), pairs(), MADE))
    cells = [attributes for name, attributes, _ in made.elements if name == "td"]
    assert cells
    assert all(attributes["data-label"] for attributes in cells)
    assert "width=device-width" in report([], None, MADE)


def test_drawings_are_told_to_those_who_do_not_see_them() -> None:
    made = Page(report(everything(), pairs(), MADE))
    drawn = [attributes for name, attributes, _ in made.elements if name == "svg"]
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawn)
    assert any("link 5-6 at fault" in attributes["aria-label"] for attributes in drawn)


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    text = report(everything(), pairs(), MADE)
    made = Page(text)
    assert not {name for name, _, _ in made.elements} & {"script", "link", "img", "iframe", "object", "base", "form"}
    loading = {"src", "srcset", "data", "action", "xlink:href", "style", "onload", "onclick"}
    assert not {key for _, attributes, _ in made.elements for key in attributes} & loading
    assert all(attributes["href"].startswith("#") for _, attributes, _ in made.elements if "href" in attributes)
    assert not re.search(r"https?:|url\(|@import", text)
    policies = [attributes["content"] for _, attributes, _ in made.elements if "http-equiv" in attributes]
    assert [policy.split(";")[0] for policy in policies] == ["default-src 'none'"]


def hostile(value: Any, text: str) -> Any:
    """Any document with its free texts replaced."""
    if isinstance(value, dict):
        free = (
            "sentence",
            "node",
            "other",
            "override",
            "not_measured",
            "time",
            "wrapper",
            "driver",
            "nodes",
            "sentences",
        )
        return {
            key: text if key in free and each and isinstance(each, str) else hostile(each, text)
            for key, each in value.items()
        }
    return [hostile(each, text) for each in value] if isinstance(value, list) else value


def test_what_others_wrote_is_shown_and_is_no_part_of_the_page() -> None:
    documents = [hostile(each, HOSTILE) for each in everything()]
    text = report(documents, hostile(pairs(), HOSTILE), HOSTILE)
    assert "<script" not in text
    assert "\x1b" not in text
    made = Page(text)
    assert made.of("h2")[-1].startswith("<script>alert(1)</script>\"'&")
    before = Page(report(everything(), pairs(), MADE))
    assert [each[0] for each in made.elements] == [each[0] for each in before.elements]


@given(st.text())
def test_no_text_changes_the_structure(text: str) -> None:
    made = page(hostile(overridden(node(2), "why"), f"x{text}"))
    assert [each[0] for each in made.elements] == STRUCTURE


STRUCTURE = [each[0] for each in page(overridden(node(2), "why")).elements]


def test_only_what_was_made_an_element_is_html() -> None:
    assert element("p", {"title": '"<'}, "<b>", element("br")) == '<p title="&quot;&lt;">&lt;b&gt;<br></p>'
    assert isinstance(element("p"), Html)


@pytest.mark.parametrize(
    ("values", "floor", "dots"),
    [([250.0], 232.0, 1), ([None], None, 1), ([None, None], 200.0, 2), ([1.0, None, 3.0], None, 3), ([0.0], None, 1)],
)
def test_a_curve_stands_for_any_number_of_figures(values: list[float | None], floor: float | None, dots: int) -> None:
    made = Page(trend(values, floor))
    assert len(made.of("circle")) == dots
    assert len(made.of("line", class_="floor")) == (floor is not None)
    numbers = [float(each) for each in re.findall(r'(?:cx|cy|x|y)="([-0-9.]+)"', trend(values, floor))]
    assert all(-1 <= number <= 321 for number in numbers)


def test_a_last_figure_that_is_the_lowest_is_written_once_and_below_its_curve() -> None:
    assert Page(trend([200.0, 90.0], 180.0)).of("text") == ["90.0 GB/s"]
    assert Page(trend([90.0, 200.0], 180.0)).of("text") == ["90.0", "200.0 GB/s"]
    assert Page(trend([200.0, None], 180.0)).of("text") == ["200.0", "failed"]
    dots, (word,) = (
        [float(each) for each in re.findall(rf'<{name} [^>]*y="([0-9.]+)"', trend([200.0, 90.0], 180.0))]
        for name in ("circle", "text")
    )
    assert word > dots[-1]


def test_a_page_of_nobody_says_so() -> None:
    assert "No node was looked at." in report([], None, MADE)
    assert "No node was looked at." not in report([], pairs(), MADE), "nodes that met have no verdict of their own"
