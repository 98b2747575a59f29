"""The question that fills the longest bucket of a plan, and what its answer is judged to be."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.serving import long_prompt

from tests.golden.full_plans import plans

CASES = plans.requests()
PATHS = ["/health", "/tokenize"]


def plan(**given: Any) -> dict[str, Any]:
    """A plan of a fork of vLLM, of the parts that are read."""
    return {
        "task": "generate",
        "served_model_name": "tiny",
        "paths": PATHS,
        "arguments": ["--max-model-len", "6144", "--max-num-batched-tokens", "6144"],
        "buckets": {"prompt_graphs": 7, "prompt_bs": [1], "prompt_seq": [896, 2048, 4096]},
        **given,
    }


def reply(content: str, thought: str | None = None, task: str = "generate") -> dict[str, Any]:
    said = {"text": content} if task == "complete" else {"message": {"content": content, "reasoning_content": thought}}
    return {
        "choices": [{**said, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 4000, "completion_tokens": 9},
    }


@pytest.mark.parametrize(
    ("case", "tokens"),
    [
        ("fork-1.22-two-cards", 4096),
        # 10 x 4224 is beyond the budget, 1 x 4224 is not.
        ("fork-1.21-two-cards", 4224),
        ("vllm-1.18-no-script", 1024),
        ("embeddings", 4096),
        # 2048 tokens of a prompt of which 129024 are in the KV cache already.
        ("plugin-1.24.1-fp8", 131072),
        # Nothing is warmed up, or nothing is known of it.
        ("vllm-1.16-bf16", 0),
        ("mamba", 0),
    ],
)
def test_longest_prompt_follows_from_the_plan(case: str, tokens: int) -> None:
    made = plans.plan(CASES[case])
    found = long_prompt.longest(made)
    assert tokens * 0.98 <= found <= tokens


def test_longest_prompt_of_a_smallest_batch_above_one_is_within_the_budget() -> None:
    buckets = {"prompt_graphs": 7, "prompt_bs": [4], "prompt_seq": [896, 1024, 4096]}
    assert long_prompt.longest(plan(buckets=buckets)) == 1024


@pytest.mark.parametrize("task", ["generate", "complete"])
@pytest.mark.parametrize("tokens", [300, 700])
def test_question_fills_the_bucket_and_begins_with_the_marker(task: str, tokens: int) -> None:
    asked = long_prompt.exchange(plan(task=task), tokens, "482913")
    assert asked is not None
    body = asked.body
    text = body["prompt"] if task == "complete" else body["messages"][0]["content"]
    assert text.startswith("The number to remember is 482913. ")
    assert text.count("482913") == 1
    filled = text.count(long_prompt.SENTENCE) * tokens / long_prompt.MEASURED
    # Beyond the bucket before, with room for a template.
    assert 3584 < filled <= 4096 - 100
    assert "482913" not in asked.asked


def test_question_leaves_room_for_the_answer() -> None:
    short = plan(arguments=["--max-model-len", "4096"])
    asked = long_prompt.exchange(short, 300, "482913")
    assert asked is not None
    filled = asked.body["messages"][0]["content"].count(long_prompt.SENTENCE) * 300 / long_prompt.MEASURED
    assert filled + asked.body["max_tokens"] <= 4096 - 100


@pytest.mark.parametrize("part", [None, {"warmup": "skipped, no graphs (skip_warmup)", "prompt_graphs": 0}])
def test_plan_without_a_warm_up_has_no_question(part: dict[str, Any] | None) -> None:
    assert long_prompt.exchange(plan(buckets=part), 300, "482913") is None


def test_plan_with_the_shortest_buckets_has_no_question() -> None:
    part = {"prompt_graphs": 1, "prompt_bs": [1], "prompt_seq": [128]}
    assert long_prompt.exchange(plan(buckets=part), 300, "482913") is None


@pytest.mark.parametrize(("task", "place"), [("embed", "input"), ("score", "documents")])
def test_models_without_text_get_it_beside_a_short_one(task: str, place: str) -> None:
    asked = long_prompt.exchange(plan(task=task), 300, "482913")
    assert asked is not None
    long, short = asked.body[place]
    assert len(long) > 10_000 > len(short)
    assert "max_tokens" not in asked.body
    numbers = [{"index": 0, "embedding": [0.5, 0.1]}, {"index": 1, "embedding": [0.1, 0.5]}]
    scores = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]
    assert long_prompt.judge(asked, {"data": numbers, "results": scores}, "482913", "tiny") == ""
    wrong = [{"index": 0, "embedding": [float("nan"), 0.1]}, {"index": 1, "embedding": [0.1, 0.5]}]
    with pytest.raises(Refusal) as refused:
        long_prompt.judge(asked, {"data": wrong, "results": scores[:1]}, "482913", "tiny")
    assert refused.value.id == "answer_misshapen"


def test_server_that_counts_tokens_is_asked_under_its_models_name() -> None:
    assert long_prompt.counting(plan(paths=["/health"])) is None
    body = long_prompt.counting(plan())
    assert body is not None
    assert (body["model"], body["prompt"].count(long_prompt.SENTENCE)) == ("tiny", long_prompt.MEASURED)
    assert long_prompt.counted({"count": 340}) == 340


@pytest.mark.parametrize("count", [None, "340", True, 0, -1, 10**9])
def test_implausible_count_of_tokens_is_estimated(count: object) -> None:
    assert long_prompt.counted({"count": count}) == long_prompt.ESTIMATE


def judged(content: str, thought: str | None = None, task: str = "generate") -> str:
    asked = long_prompt.exchange(plan(task=task), 300, "482913")
    assert asked is not None
    return long_prompt.judge(asked, reply(content, thought, task), "482913", "tiny")


@pytest.mark.parametrize(
    ("content", "thought"), [("482913", None), ("It is **482,913**.", None), ("Yes.", "They said 482913 first.")]
)
def test_answer_with_the_marker_is_right(content: str, thought: str | None) -> None:
    assert judged(content, thought) == ""


def test_answer_of_a_completion_model_is_read_as_well() -> None:
    assert judged(" 482913.", task="complete") == ""


# As reported of prompts of more than 3,000 tokens (HabanaAI/vllm-fork, issue 738), and other forms of garbage.
GARBAGE = [
    "!" * 256,
    "a" * 64,
    "!!!! !!!! !!!!",
    "()[]{}<>?!.,;:-" * 8,
    "the " * 40,
    "\N{REPLACEMENT CHARACTER}a b c d e f g h",
]


@pytest.mark.report("vllm-fork-738")
@pytest.mark.parametrize("content", GARBAGE)
def test_answer_that_nobody_can_read_is_refused(content: str) -> None:
    with pytest.raises(Refusal) as refused:
        judged(content)
    assert refused.value.id == "answer_unreadable"
    assert "4096 tokens" in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_answer_without_text_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        judged("")
    assert refused.value.id == "answer_misshapen"


@pytest.mark.parametrize(
    "content",
    [
        "The number is 17.",
        "?",
        "482912",
        "对不起 我不知道这个数字。",
        long_prompt.SENTENCE * 9,
        "- a\n- b\n- c\n- d\n- e",
    ],
)
def test_readable_answer_without_the_marker_is_a_warning(content: str) -> None:
    assert "does not repeat it" in judged(content)
