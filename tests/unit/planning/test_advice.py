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


@pytest.mark.parametrize("release", [*FORKS, "deepseek-r1"])
@pytest.mark.parametrize("name", ["fp8", "fp8_e4m3", "fp8_e5m2"])
def test_a_type_of_the_kv_cache_that_only_the_parser_takes_is_refused(release: str, name: str) -> None:
    """The server makes bytes of these names, and ends as it writes keys into them."""
    for asked in ({"kv_cache_dtype": name}, {"extra_args": ["--kv-cache-dtype", name]}):
        made = plan(release, asked)
        assert made["refused_id"] == "unsupported_kv_cache"
        assert "take auto or fp8_inc" in made["refused"]
    assert "refused" not in plan(release, {"kv_cache_dtype": "fp8_inc"})


GLM = {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "n_routed_experts": 128,
    "moe_intermediate_size": 1408,
    "max_position_embeddings": 131072,
}


def guessing(release: str, served: Mapping[str, Any], method: str, **more: object) -> dict[str, Any]:
    """The plan of a server that guesses tokens with layers of its own model."""
    said = {"method": method, "num_speculative_tokens": 1, **more}
    return vendor.plan_request(release, {**served, "tensor_parallel_size": 8, "speculative_config": said})


def config(model_type: str, **keys: object) -> dict[str, Any]:
    """A model of the shape of GLM-4.5-Air with other keys."""
    return {
        "weights": "/data/models/X",
        "model_config": {**GLM, "model_type": model_type, **keys},
        "max_model_len": 8192,
    }


@pytest.mark.parametrize(
    ("release", "method"), [("1.22", "deepseek_mtp"), ("1.23", "mtp"), ("1.24.1", "qwen3_next_mtp")]
)
def test_a_model_without_layers_that_guess_is_not_served_with_them(release: str, method: str) -> None:
    made = guessing(release, {"model": "qwen3-8b"}, method)
    assert made["refused_id"] == "unsupported_speculation"
    assert "guess with layers of its own (MTP)" in made["refused"]
    assert "refused" not in guessing(release, {"model": "qwen3-8b"}, method, model="/data/models/Mtp")


@pytest.mark.parametrize(
    ("release", "model", "served"),
    [
        ("1.22", config("deepseek_v3", architectures=["DeepseekV3ForCausalLM"]), True),
        ("1.22", config("glm4_moe"), False),
        ("1.23", config("glm4_moe"), True),
        ("1.24.1", config("glm4_moe", num_nextn_predict_layers=1), True),
        ("1.24.1", config("glm4_moe", num_nextn_predict_layers=0), False),
        ("1.24.1", config("llama", architectures=["LlamaForCausalLM"]), False),
    ],
)
def test_a_release_knows_whose_own_layers_guess(release: str, model: Mapping[str, Any], *, served: bool) -> None:
    method = "deepseek_mtp" if release == "1.22" else "mtp"
    assert (guessing(release, model, method).get("refused_id") == "unsupported_speculation") is not served


@pytest.mark.parametrize("method", ["draft_model", "extract_hidden_states", "mlp_speculator", "suffix"])
def test_a_method_that_the_plugins_model_runner_ends_at_is_refused(method: str) -> None:
    made = guessing("1.24.1", {"model": "qwen3-8b"}, method, model="/data/models/Guess")
    assert made["refused_id"] == "unknown_speculation"


@pytest.mark.parametrize("option", ["reasoning_parser", "tool_call_parser"])
def test_a_parser_that_a_fork_does_not_have_is_refused_with_those_that_it_has(option: str) -> None:
    assert "granite" in plan("1.21", {option: "openai"})["refused"]
