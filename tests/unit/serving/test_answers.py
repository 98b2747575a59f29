"""What an instance is asked, and which replies are answers: recorded exchanges of vLLM, and what may be wrong there."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.serving import answers

RECORDED = json.loads(Path(__file__).with_name("recorded").joinpath("answers.json").read_text(encoding="utf-8"))
CASES = {case["name"]: case for case in RECORDED["cases"]}


def exchange_of(case: dict[str, Any]) -> answers.Exchange:
    plan = {"task": case["task"], "served_model_name": case["request"]["model"], "ask": case.get("ask", {})}
    return answers.question_of(plan, case["question"], 32)


def read(case: dict[str, Any], reply: dict[str, Any]) -> str:
    return answers.answer_of(exchange_of(case), reply, "tiny")


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_exchange_is_what_is_asked_and_what_is_read(name: str) -> None:
    case = CASES[name]
    exchange = exchange_of(case)
    assert (exchange.path, exchange.body) == (case["path"], case["request"])
    assert read(case, case["reply"]) == case["answer"]


# By recorded exchange: what is changed of its reply (a path and a value), and why it is none then.
WRONG: list[tuple[str, list[str | int], Any, str]] = [
    ("chat", ["choices"], [], "it has another form"),
    ("chat", ["choices", 0, "message", "content"], " ", "it has no text"),
    ("chat", ["choices", 0, "message", "content"], 5, "it has no text"),
    ("chat", ["choices", 0, "finish_reason"], "abort", 'its finish_reason is "abort", so it was broken off'),
    ("chat", ["choices", 0, "finish_reason"], None, "its finish_reason is null, so it was broken off"),
    ("chat", ["usage"], None, "it has another form"),
    ("chat", ["usage", "completion_tokens"], 0, "its usage counts 0 completion_tokens"),
    ("chat", ["usage", "prompt_tokens"], True, "its usage counts true prompt_tokens"),
    ("completion", ["choices", 0, "text"], "", "it has no text"),
    ("completion", ["choices", 0, "finish_reason"], "abort", 'its finish_reason is "abort", so it was broken off'),
    ("embedding", ["data"], [], "it has not one embedding for each of two texts"),
    ("embedding", ["data", 1, "index"], 0, "it has not one embedding for each of two texts"),
    ("embedding", ["data", 1, "embedding"], [0, 0.0, 0, 0], "an embedding has nothing but zeros"),
    ("embedding", ["data", 1, "embedding", 2], float("nan"), "not all of an embedding is finite numbers"),
    ("embedding", ["data", 0, "embedding", 0], float("inf"), "not all of an embedding is finite numbers"),
    ("embedding", ["data", 0, "embedding", 0], 10**400, "not all of an embedding is finite numbers"),
    ("embedding", ["data", 0, "embedding", 0], True, "not all of an embedding is finite numbers"),
    ("embedding", ["data", 0, "embedding"], "AACAPw==", "not all of an embedding is finite numbers"),
    ("embedding", ["data", 1, "embedding"], [1.0], "its embeddings have 1 and 4 numbers"),
    ("rerank", ["results"], [], "its results are for the documents [], not for 0 and 1"),
    ("rerank", ["results", 1, "index"], 0, "its results are for the documents [0, 0], not for 0 and 1"),
    ("rerank", ["results", 1, "relevance_score"], float("nan"), "its scores are [0.997, NaN], not finite numbers"),
    ("rerank", ["results", 1, "relevance_score"], 0.999, "its scores are [0.997, 0.999], not the highest first"),
    ("rerank", ["results", 0], {}, "it has another form"),
]


@pytest.mark.parametrize(("name", "place", "value", "why"), WRONG)
def test_a_reply_of_another_shape_is_no_answer(name: str, place: list[str | int], value: Any, why: str) -> None:
    reply = copy.deepcopy(CASES[name]["reply"])
    part: Any = reply
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    with pytest.raises(Refusal) as refused:
        read(CASES[name], reply)
    assert refused.value.id == "answer_misshapen"
    assert str(refused.value).startswith("tiny answered {")
    assert str(refused.value).endswith(
        f" to: {CASES[name]['question']} That is no answer of {CASES[name]['path']}: {why}."
    )


def test_two_texts_with_one_embedding_are_told() -> None:
    reply = copy.deepcopy(CASES["embedding"]["reply"])
    reply["data"][1]["embedding"] = reply["data"][0]["embedding"]
    with pytest.raises(Refusal, match="two different texts have the same embedding"):
        read(CASES["embedding"], reply)


def test_the_dimension_is_that_of_the_plan() -> None:
    case = {**CASES["embedding"], "ask": {"dimensions": 1024}}
    with pytest.raises(Refusal, match="its embeddings have 4 numbers, and the model's hidden_size is 1024"):
        read(case, case["reply"])


def test_without_a_known_dimension_any_will_do() -> None:
    case = {**CASES["embedding"], "ask": {}}
    assert read(case, case["reply"]) == case["answer"]


def test_of_a_long_reply_the_beginning_is_shown() -> None:
    reply = {"data": [{"index": 0, "embedding": [0.123456789] * 4000}]}
    with pytest.raises(Refusal) as refused:
        read(CASES["embedding"], reply)
    assert len(str(refused.value)) < 1000


CHECK: dict[str, Any] = {"question": "What is the capital of France?", "contains": ["Paris", "巴黎"]}


def checked(content: str | None, thought: str | None = None) -> str:
    plan = {"task": "generate", "served_model_name": "qwen3-8b", "ask": {"check": CHECK}}
    (exchange,) = answers.questions(plan, CHECK["question"], 32)
    reply = copy.deepcopy(CASES["chat"]["reply"])
    reply["choices"][0]["message"].update(content=content, reasoning_content=thought)
    return answers.answer_of(exchange, reply, "tiny")


@pytest.mark.parametrize(
    ("content", "thought"), [("PARIS", None), ("巴黎。", None), (None, "It is Paris"), ("Yes", "paris")]
)
def test_a_right_answer_has_one_of_the_words(content: str | None, thought: str | None) -> None:
    assert checked(content, thought) == (content or thought)


def test_a_wrong_answer_is_told_with_what_was_asked_what_came_and_the_usual_cause() -> None:
    with pytest.raises(Refusal) as refused:
        checked("elpemememem")
    assert refused.value.id == "answer_wrong"
    said = str(refused.value)
    assert said.startswith(
        "tiny was asked: What is the capital of France? It answered: elpemememem A right answer has "
    )
    assert "Paris or 巴黎 in it." in said
    assert "intel_iommu=on iommu=pt" in said
    assert "playbooks/doctor.yml" in said


def test_another_question_is_asked_beside_the_check_and_may_be_answered_anyhow() -> None:
    plan = {"task": "generate", "served_model_name": "qwen3-8b", "ask": {"check": CHECK}}
    asked = answers.questions(plan, "Why?", 32)
    assert [(each.asked, each.body["max_tokens"], each.contains) for each in asked] == [
        ("Why?", 32, ()),
        (CHECK["question"], 256, CHECK["contains"]),
    ]
    assert [each.asked for each in answers.questions({**plan, "ask": {}}, "Why?", 32)] == ["Why?"]


def test_a_list_of_models_is_their_names() -> None:
    assert answers.served_models({"data": [{"id": "tiny"}, {"id": "/data/models/Tiny"}]}, "tiny") == [
        "tiny",
        "/data/models/Tiny",
    ]


@pytest.mark.parametrize(
    "reply",
    [{}, {"data": []}, {"data": None}, {"data": "tiny"}, {"data": ["tiny"]}, {"data": [{}]}, {"data": [{"id": 5}]}],
)
def test_another_reply_is_no_list_of_models(reply: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        answers.served_models(reply, "tiny")
    assert refused.value.id == "answer_misshapen"
    assert str(refused.value).startswith(f"tiny answered {json.dumps(reply)} to /v1/models. That is no list of models")
