"""How long a start takes: what the record, the warm-up's own pace and the plan say of it."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.serving import starts
from ansible.module_utils.gaudi.serving.starts import Start

BEFORE = Start("digest", 100, 500.0, 800.0, "2026-01-31T08:00:00Z")


def test_the_record_keeps_the_last_starts_and_finds_that_of_a_plan() -> None:
    record: list[Start] = []
    for place in range(7):
        record = starts.added(record, Start(f"plan-{place % 2}", place, 1.0, 2.0, "2026-01-31T08:00:00Z"))
    assert [start.graphs for start in record] == [6, 5, 4, 3, 2]
    found = starts.last(record, "plan-1")
    assert found is not None
    assert found.graphs == 5
    assert starts.last(record, "plan-2") is None
    assert starts.read([start.document() for start in record]) == record


@pytest.mark.parametrize(
    ("seen", "elapsed", "before", "expected"),
    [
        (0, 0.0, None, None),
        (0, 30.0, BEFORE, 5.0),
        # Four of a hundred say little; five have a say.
        (4, 40.0, BEFORE, 5.0),
        (4, 40.0, None, None),
        (5, 40.0, BEFORE, 8.0),
        (5, 0.0, None, None),
        # One without graphs tells nothing of a warm-up.
        (0, 30.0, Start("digest", 0, 0.0, 60.0, ""), None),
    ],
)
def test_pace_is_that_of_this_warm_up_as_soon_as_it_says_enough(
    seen: int, elapsed: float, before: Start | None, expected: float | None
) -> None:
    assert starts.pace(seen, elapsed, 100, before) == expected


@pytest.mark.parametrize(
    ("graphs", "before", "expected"),
    [
        (0, None, None),
        (0, BEFORE, 7200),
        (150, None, 7200 + 3000),
        (150, Start("digest", 150, 9000.0, 10000.0, ""), 30000.0),
    ],
)
def test_the_budget_follows_from_graphs_and_the_last_start(
    graphs: int, before: Start | None, expected: float | None
) -> None:
    assert starts.budget(graphs, before) == expected


def test_slow_weights_raise_the_budget() -> None:
    assert starts.budget(150, None, 3000.0) == 7200 + 3000
    assert starts.budget(150, None, 6000.0) == 12000 + 3000


@pytest.mark.parametrize(
    ("seen", "said", "said_all", "before", "expected"),
    [
        ("planned alone", 0, False, None, 205),
        ("the server has more", 216, False, None, 216),
        ("the last start had more", 205, False, Start("digest", 216, 656.0, 837.0, ""), 216),
        ("the server has said all", 180, True, Start("digest", 216, 656.0, 837.0, ""), 180),
    ],
)
def test_graphs_are_those_that_the_server_says(
    seen: str, said: int, said_all: bool, before: Start | None, expected: int
) -> None:
    assert starts.graphs(205, said, said_all, before) == expected, seen


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "less than a minute"),
        (59, "less than a minute"),
        (60, "about 1 min"),
        (3569, "about 59 min"),
        (3599, "about 1 h 00 min"),
        (7830, "about 2 h 10 min"),
    ],
)
def test_words(seconds: float, said: str) -> None:
    assert starts.words(seconds) == said
