"""Lines of a batch: what a request must say, and what came of one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.batch import lines
from hypothesis import given
from hypothesis import strategies as st

BODY = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}]}
LINE: dict[str, Any] = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": BODY}


def line(**other: Any) -> str:
    return json.dumps({**LINE, **other})


def test_a_line_of_openai_is_a_request() -> None:
    """The example of https://platform.openai.com/docs/guides/batch, with another model."""
    request = lines.read_request(line(body={**BODY, "max_tokens": 1000}))
    assert (request.custom_id, request.url, request.model) == ("one", "/v1/chat/completions", "chat")
    assert request.body["max_tokens"] == 1000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[]", "no JSON object"),
        (line(custom_id=""), "custom_id is missing"),
        (line(custom_id=7), "custom_id is missing"),
        (line(method="GET"), 'method is "GET", not POST'),
        (line(url="/v1/files"), 'url is "/v1/files"; there are /v1/chat/completions'),
        (line(url=["\x1b[31m"]), "url is"),
        (line(body=None), "body names no model"),
        (line(body={"model": ""}), "body names no model"),
        (line(body={**BODY, "stream": True}), "body asks for a stream"),
    ],
)
def test_what_is_no_request_is_said(text: str, says: str) -> None:
    with pytest.raises(ValueError) as wrong:
        lines.read_request(text)
    assert says in str(wrong.value)
    assert "\x1b" not in str(wrong.value)


@pytest.mark.parametrize(
    ("texts", "id", "says"),
    [
        ([], "batch_empty", "holds no request"),
        (["", " \n"], "batch_empty", "holds no request"),
        (
            [line(), line()],
            "batch_lines",
            '1 of 2 lines of IN are no requests, and nothing was asked. line 2: custom_id "one"',
        ),
        ([line(), "", "x"], "batch_lines", "line 3: it is no JSON"),
        (["x"] * 9, "batch_lines", "and 4 more."),
        ([line(), line(custom_id="two", body={"model": "b"})], "batch_models", "IN asks 2 models (b, chat)"),
    ],
)
def test_a_file_is_refused_as_a_whole(texts: list[str], id: str, says: str) -> None:
    with pytest.raises(Refusal) as refused:
        lines.Input.read(texts).check("IN")
    assert refused.value.id == id
    assert says in str(refused.value)


def test_a_file_asks_one_model() -> None:
    asked = lines.Input.read([line(), "\n", line(custom_id="two")])
    assert asked.check("IN") == "chat"
    assert (asked.requests, asked.urls, asked.names) == (2, {"/v1/chat/completions"}, {"one", "two"})


def test_a_model_answers_what_it_is_for() -> None:
    lines.check_task("chat", "generate", ["/v1/completions", "/v1/chat/completions"])
    with pytest.raises(Refusal) as refused:
        lines.check_task("embed", "embed", ["/v1/chat/completions"])
    assert "embed answers /v1/embeddings, and the batch asks /v1/chat/completions" in str(refused.value)


def test_a_failure_is_told_in_the_words_of_the_server() -> None:
    request = lines.read_request(line())
    assert lines.failure(lines.answered(request, 200, {"id": "x"})) == ""
    for body in ({"error": {"message": "too long"}}, {"message": "too long"}, {"error": "too long"}, "too long"):
        assert lines.failure(lines.answered(request, 400, body)) == "status 400: too long"
    assert lines.failure(lines.unanswered(request, "timeout", "no answer\x1b")) == "no answer?"


class UnwrittenAnswer(dict[str, Any]):
    """An answer that nobody writes out as a whole."""

    def __str__(self) -> str:
        raise AssertionError("the whole answer is written out")

    __repr__ = __str__


class LongText(str):
    """A text of which nobody reads more than its beginning."""

    def __str__(self) -> str:
        raise AssertionError("the whole text is copied")


def test_a_failure_is_cut_before_it_is_written_out() -> None:
    request = lines.read_request(line())
    for body in (
        UnwrittenAnswer(a=["x" * 1000] * 1000),
        {"error": UnwrittenAnswer(a=1)},
        [UnwrittenAnswer()],
        LongText("x" * 10**6),
    ):
        said = lines.failure(lines.answered(request, 400, body))
        assert said.startswith("status 400: ")
        assert len(said) < 400
    assert len(lines.failure({**lines.unanswered(request, "c", ""), "error": {"message": LongText("x" * 10**6)}})) < 400


def test_what_came_of_it_is_told() -> None:
    assert lines.told(1, {}) == "The request is answered."
    assert lines.told(3, {}) == "All 3 requests are answered."
    said = lines.told(9, {f"id-{number}": "status 400: no" for number in range(7)})
    assert said.startswith('7 of 9 requests failed. "id-0": status 400: no; "id-1"')
    assert said.endswith("and 2 more.")


def test_an_output_is_whole_when_every_request_has_an_answer() -> None:
    asked = lines.Input.read([line(), line(custom_id="two")])
    one, two = (lines.read_request(line(custom_id=name)) for name in ("one", "two"))
    good = [json.dumps(lines.answered(request, 200, {})) for request in (two, one)]

    def whole(asked: lines.Input, output: list[str]) -> bool:
        return lines.kept(asked, output) == len(asked.ids)

    assert whole(asked, good)
    assert not whole(asked, good[:1])
    # The same name with another question.
    assert not whole(lines.Input.read([line(body={**BODY, "max_tokens": 7}), line(custom_id="two")]), good)
    # A proxy's page is no answer.
    assert not whole(asked, [good[0], json.dumps(lines.answered(one, 200, "<html>"))])
    assert not whole(asked, [good[0], json.dumps(lines.answered(one, 400, {}))])
    assert not whole(asked, [good[0], good[1][:-9]])


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from([*LINE, "response", "error", "status_code"]), inner)
        ),
    )
)
def test_no_document_breaks_a_reader(document: object) -> None:
    lines.read_line(json.dumps(document))
    lines.Input.read([json.dumps(document)])
