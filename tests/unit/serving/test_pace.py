"""How quickly an instance writes, read from a stream, and compared with what is usual for its plan."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.documents import parse
from ansible.module_utils.gaudi.serving import pace
from ansible.module_utils.gaudi.serving.pace import Pace


def lines(*chunks: tuple[float, dict[str, Any]]) -> list[tuple[float, bytes]]:
    found = [(seconds, b"data: " + json.dumps(chunk).encode() + b"\n") for seconds, chunk in chunks]
    return [line for each in found for line in (each, (each[0], b"\n"))] + [(9.0, b"data: [DONE]\n")]


def delta(**said: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said}]}


USAGE: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 11}}


@pytest.mark.parametrize("part", ["content", "reasoning_content", "reasoning"])
def test_a_chat_is_measured_from_its_first_text_to_its_last(part: str) -> None:
    begins = (0.1, delta(role="assistant", content=""))
    stream = lines(begins, (0.5, delta(**{part: "one"})), (1.5, delta(**{part: " two"})), (1.6, USAGE))
    assert pace.read(stream) == Pace(0.5, 10.0)


def test_a_completion_has_its_text_elsewhere() -> None:
    stream = lines((0.25, {"choices": [{"text": "one"}]}), (5.25, {"choices": [{"text": " two"}]}), (5.3, USAGE))
    assert pace.read(stream) == Pace(0.25, 2.0)


@pytest.mark.parametrize(
    "stream",
    [
        [],
        lines((1.0, delta(content="one")), (1.1, USAGE)),
        lines((1.0, delta(content="one")), (2.0, delta(content="two"))),
        lines((1.0, delta(content="one")), (1.0, delta(content="two")), (1.1, USAGE)),
        lines(
            (1.0, delta(content="one")), (2.0, delta(content="two")), (2.1, {"usage": {"completion_tokens": 10**400}})
        ),
        [(1.0, b"data: {\n")],
        [(1.0, b"data: 5\n")],
    ],
)
def test_of_another_stream_nothing_is_told(stream: list[tuple[float, bytes]]) -> None:
    with pytest.raises(ValueError, match=r"tokens|no mapping|Expecting"):
        pace.read(stream)


def measured(*paces: Pace) -> dict[str, Any]:
    """A record of plan a, one measurement a day."""
    record: dict[str, Any] | None = None
    for day, each in enumerate(paces, start=1):
        record = pace.recorded(record, "a", each, f"2026-01-{day:02}T00:00:00Z")
    assert record is not None
    return record


def test_the_record_keeps_the_first_and_the_last_of_each_plan() -> None:
    record = measured(*[Pace(0.5, 10.0)] * pace.EARLY, Pace(0.4, 8.0))
    assert record["plans"]["a"]["last"] == {
        "first_token_seconds": 0.4,
        "tokens_per_second": 8.0,
        "at": "2026-01-10T00:00:00Z",
    }
    assert [each["tokens_per_second"] for each in record["plans"]["a"]["early"]] == [10.0] * pace.EARLY
    assert parse(json.dumps(record), pace.FORM, pace.SCHEMA) == record


def test_one_lucky_measurement_is_not_usual() -> None:
    lucky, plain = Pace(0.01, 770.0), Pace(0.5, 20.0)
    assert pace.usual(measured(lucky), "a") == lucky
    assert pace.usual(measured(lucky, plain), "a") == plain
    assert pace.usual(measured(plain, lucky, Pace(0.6, 18.0)), "a") == plain
    assert pace.slower(measured(lucky, plain), "a", Pace(0.6, 18.0), "tiny") == []


def test_a_node_that_grows_slow_does_not_become_usual() -> None:
    record = measured(*[Pace(0.5, 10.0)] * pace.EARLY, *[Pace(0.5, 2.0)] * 2 * pace.EARLY)
    assert len(pace.slower(record, "a", Pace(0.5, 2.0), "tiny")) == 1


def test_another_plan_begins_its_own_record_and_the_oldest_is_forgotten() -> None:
    record: dict[str, Any] | None = None
    for day, label in enumerate("abcdefg", start=1):
        record = pace.recorded(record, label, Pace(0.5, 10.0), f"2026-01-{day:02}T00:00:00Z")
    assert record is not None
    assert sorted(record["plans"]) == list("cdefg")
    assert pace.slower(record, "new", Pace(50.0, 0.1), "tiny") == []
    # A clock that was set back makes no plan unknown that was just measured.
    record = pace.recorded(record, "back", Pace(0.5, 10.0), "2025-01-01T00:00:00Z")
    assert "back" in record["plans"]


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (Pace(0.5, 10.0), []),
        (Pace(0.99, 5.0), []),
        (Pace(0.5, 4.9), ["tiny writes 4.9 tokens/s, less than half of 10, which is usual with this plan. "]),
        (Pace(1.1, 10.0), ["tiny takes 1.1 s to its first token, more than twice 0.5 s, which is usual"]),
        (Pace(1.1, 1.0), ["tiny writes 1 tokens/s", "tiny takes 1.1 s"]),
    ],
)
def test_less_than_half_as_good_is_said(now: Pace, said: list[str]) -> None:
    found = pace.slower(pace.recorded(None, "a", Pace(0.5, 10.0), "2026-01-01"), "a", now, "tiny")
    assert len(found) == len(said)
    assert all(sentence.startswith(begin) for sentence, begin in zip(found, said, strict=True))


def test_a_few_hundredths_are_no_delay() -> None:
    assert pace.slower(pace.recorded(None, "a", Pace(0.02, 10.0), "x"), "a", Pace(0.2, 10.0), "tiny") == []


def test_the_words_name_what_is_usual_where_it_is_more() -> None:
    plain = Pace(0.5, 10.0)
    assert pace.words(measured(plain), "a") == "10 tokens/s, first after 0.5 s"
    assert pace.words(measured(plain, plain, Pace(0.6, 8.0)), "a") == "8 of 10 tokens/s, first after 0.6 s"
    assert pace.words(measured(plain), "b") == ""
