"""The stand-in server reads each release's surface by itself: what it checks of plans can fail.

tests/golden has it take the plans of every model and of every case of the vendor.
"""

from __future__ import annotations

from tests.golden.plan_checks import beyond_surface, not_started, problems, unexplained
from tests.golden.serving_cases import vendor


def test_it_can_refuse() -> None:
    plan = vendor.plan_request("1.22", {"weights": "/m/x", "padding_limit": 0.1})
    assert problems("1.22", plan) == []
    other = {**plan, "arguments": plan["arguments"][:3]}
    assert [words for words in not_started("1.21", other) if "does not know VLLM_" in words]
    unknown = {**plan, "arguments": [*plan["arguments"], "--no-such-option"]}
    assert [words for words in not_started("1.22", unknown) if "--no-such-option" in words]


def test_what_a_release_does_not_read_and_what_has_no_rule_is_named() -> None:
    plan = vendor.plan_request("1.22", {"weights": "/m/x"})
    more = {
        **plan,
        "arguments": [*plan["arguments"], "--no-such-option"],
        "environment": {**plan["environment"], "VLLM_NO_SUCH": "1"},
    }
    assert list(beyond_surface("1.22", more)) == [
        "1.22 has no option --no-such-option",
        "1.22 does not read VLLM_NO_SUCH",
    ]
    assert list(unexplained(more)) == ["VLLM_NO_SUCH=1 is not explained", "--no-such-option is not explained"]
    without = {**plan, "explain": [{**item, "source": ""} for item in plan["explain"][:1]] + plan["explain"][1:]}
    assert [words.partition(":")[0] for words in unexplained(without)] == ["an explanation is incomplete"]
