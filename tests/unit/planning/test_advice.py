"""Options in vLLM's own words on every release: served with what they need, or refused with a way out that is one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from plugin_utils import releases
from tests.golden.serving_cases import vendor

NAMED = re.compile(r"use release ((?:[\w.-]+\w)(?:(?:, | or )[\w.-]+\w)*)", re.IGNORECASE)
ASKED: tuple[Mapping[str, Any], ...] = (
    {"enable_prefix_caching": True},
    {"enable_lora": True},
    {"lora_modules": {"law": "/data/adapters/law"}, "max_lora_rank": 16},
    {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
    {"reasoning_parser": "deepseek_r1"},
    {"tool_call_parser": "hermes"},
    {"enable_chunked_prefill": True},
    {"async_scheduling": True},
    {"quantization": "inc"},
    {"scheduler_steps": 4},
    {"partial_warmup": {"max_num_seqs": 8, "max_seq_len": 1024}},
    {"padding_limit": 0.25},
    {"exponential_bucketing": True},
    {"log_step_cpu_fallbacks": True},
    {"dtype": "fp8"},
    {"dtype": "float16"},
    {"extra_args": ["--enable-lora"]},
)
FORKS = ("1.21", "1.22", "1.22-2025.11")


def plan(release: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    cards = 8 if release.startswith("deepseek") else "auto"
    # The deepseek_r1 branch has no class for Qwen3.
    model = "qwen2-72b-instruct" if release.startswith("deepseek") else "qwen3-8b"
    return vendor.plan_request(release, {"model": model, "tensor_parallel_size": cards, **asked})


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_release_that_a_refusal_names_serves_what_was_asked_for(asked: Mapping[str, Any]) -> None:
    wrong = []
    for release in releases.names():
        sentence = plan(release, asked).get("refused", "")
        for named in NAMED.findall(sentence):
            for other in re.split(r", | or ", named):
                if other not in ("later", "before") and "refused" in plan(other, asked):
                    wrong.append(f"{release} names {other}: {plan(other, asked)['refused']}")
    assert wrong == []


@pytest.mark.parametrize("release", FORKS)
def test_options_that_the_forks_have_are_passed_on(release: str) -> None:
    words = {
        "enable_prefix_caching": (True, ["--enable-prefix-caching"]),
        "enable_lora": (True, ["--enable-lora"]),
        "reasoning_parser": ("granite", ["--enable-reasoning", "--reasoning-parser", "granite"]),
        "tool_call_parser": ("hermes", ["--tool-call-parser", "hermes", "--enable-auto-tool-choice"]),
        "speculative_config": (
            {"method": "ngram", "num_speculative_tokens": 3},
            ["--speculative-config", '{"method":"ngram","num_speculative_tokens":3}'],
        ),
    }
    for option, (value, expected) in words.items():
        arguments = plan(release, {option: value})["arguments"]
        place = arguments.index(expected[0])
        assert arguments[place : place + len(expected)] == expected
    assert "--enable-prefix-caching" not in plan(release, {"enable_prefix_caching": False})["arguments"]


@pytest.mark.parametrize("release", [*FORKS, "deepseek-r1"])
def test_adapters_are_mounted_and_must_be_there(release: str) -> None:
    made = plan(release, {"lora_modules": {"law": "/data/adapters/law"}, "max_lora_rank": 16})
    place = made["arguments"].index("--lora-modules")
    assert made["arguments"][place + 1] == "law=/data/adapters/law"
    assert "--enable-lora" in made["arguments"]
    assert "/data/adapters/law" in [mount["source"] for mount in made["container"]["mounts"]]
    assert "/data/adapters/law/adapter_config.json" in made["requires"]["files"]


@pytest.mark.parametrize("release", ["1.16", "1.18"])
@pytest.mark.parametrize("option", ["enable_lora", "enable_chunked_prefill"])
def test_a_release_without_a_feature_gives_its_own_reason(release: str, option: str) -> None:
    assert "its documentation" in plan(release, {option: True})["refused"]


def test_the_server_of_deepseek_r1_takes_tools_or_reasoning() -> None:
    asked = {"model": "deepseek-r1-0528", "tool_call_parser": "hermes"}
    assert "reasoning parser" in vendor.plan_request("deepseek-r1", asked)["refused"]


@pytest.mark.parametrize("option", ["reasoning_parser", "tool_call_parser"])
def test_a_parser_that_a_fork_does_not_have_is_refused_with_those_that_it_has(option: str) -> None:
    assert "granite" in plan("1.21", {option: "openai"})["refused"]
