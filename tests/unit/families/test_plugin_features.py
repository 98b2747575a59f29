"""What vLLM's own checks end a start with is refused before anything is changed, in every place it can be said."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.serving_cases import vendor
from tests.unit.families.test_plugin import RELEASES, plan, refused

GUESSING = {"method": "eagle3", "num_speculative_tokens": 2, "model": "/data/models/Guess"}
MIXTURE = {"model": "qwen3-30b-a3b-instruct-2507", "instance": "x"}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"speculative_config": {}}, "neither a method nor a model"),
        ({"speculative_config": {"methd": "ngram"}}, "Did you mean method?"),
        ({"speculative_config": {"method": "eagel", "model": "/data/e"}}, "Did you mean eagle?"),
        ({"speculative_config": {"method": [1]}}, "the method [1], which release"),
        ({"speculative_config": {"method": "eagle3", "num_speculative_tokens": 2}}, "no model that guesses"),
        ({"speculative_config": {"method": "ngram"}}, "no num_speculative_tokens"),
        ({"speculative_config": {**GUESSING, "model": 5}}, "speculative_config.model must be text, not 5"),
        ({"speculative_config": {**GUESSING, "model": "/etc"}}, "a directory of the system"),
        ({"structured_outputs_config": {"backend": "xgramar"}}, "Did you mean xgrammar?"),
        ({"structured_outputs_config": {"backnd": "xgrammar"}}, "Did you mean backend?"),
        ({"structured_outputs_config": {"disable_any_whitespace": True}}, "only the backend xgrammar or guidance"),
        ({"extra_args": ["--structured-outputs-config", '{"backend":"x"}']}, "has the backend 'x'"),
        ({"lora_modules": {"law": "/data/law"}, "enable_lora": False}, "LoRA is not enabled"),
        ({"extra_args": ["--lora-modules", "law=/data/law"]}, "Use the option lora_modules"),
        ({"enable_expert_parallel": True}, "has no experts"),
        ({"extra_args": ["-ep"]}, "has no experts"),
        ({"tool_call_parser": "hermess"}, "Did you mean hermes?"),
        ({"reasoning_parser": "qwn3"}, "Did you mean qwen3?"),
        ({"extra_args": ["--tool-call-parser=nobodys"]}, "does not have: it would not start. It has "),
        ({"extra_args": ["--reasoning_parser", "qwn3"]}, "Did you mean qwen3?"),
    ],
)
def test_what_does_not_start_is_refused(release: str, options: dict[str, Any], words: str) -> None:
    assert words in refused(release, **options)


@pytest.mark.parametrize("release", RELEASES)
def test_what_starts_is_not_refused(release: str) -> None:
    wishes: tuple[dict[str, Any], ...] = (
        {"speculative_config": GUESSING},
        {"speculative_config": {"model": "[ngram]", "num_speculative_tokens": 2}},
        {"speculative_config": {"method": "mtp", "model": "/data/models/Mtp", "num_speculative_tokens": 1}},
        {"structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True}},
        {"structured_outputs_config": {}},
        {"extra_args": ["--tool-call-parser", "own", "--tool-parser-plugin", "/data/own.py"]},
        {"tool_call_parser": "granite-20b-fc"},
    )
    for options in wishes:
        plan(release, **options)
    assert (
        "--enable-expert-parallel"
        in vendor.plan_request(release, {**MIXTURE, "enable_expert_parallel": True, "tensor_parallel_size": 4})[
            "arguments"
        ]
    )


def test_versions_differ_in_what_they_know() -> None:
    fallback = {"structured_outputs_config": {"disable_fallback": True}}
    plan("1.23", **fallback)
    assert "has 'disable_fallback', which the server of release 1.24 does not know" in refused("1.24", **fallback)
    assert "has the key disable_fallback" in refused("1.23", extra_args=["--guided-decoding-disable-fallback"])
    assert "has the key disable_fallback" not in refused("1.24", extra_args=["--guided-decoding-disable-fallback"])
    assert "is 'gemma4', which the server of release 1.23 does not have" in refused("1.23", tool_call_parser="gemma4")
    plan("1.24", tool_call_parser="gemma4")
    # The plugin brings one of its own.
    plan("1.24.1", tool_call_parser="minimax_m3_py")


@pytest.mark.parametrize("release", RELEASES)
def test_adapters_turn_lora_on(release: str) -> None:
    made = plan(release, lora_modules={"law": "/data/law"})
    assert made["arguments"].count("--enable-lora") == 1
    assert made["requires"]["files"] == ["/data/law/adapter_config.json"]
    assert (
        plan(release, lora_modules={"law": "/data/law"}, extra_args=["--enable-lora"])["arguments"].count(
            "--enable-lora"
        )
        == 1
    )
    for options, warned in (({"max_loras": 2}, True), ({"max_loras": 2, "enable_lora": True}, False)):
        warnings = plan(release, **options)["warnings"]
        assert any("max_loras is without effect" in words for words in warnings) == warned


@pytest.mark.parametrize("release", RELEASES)
def test_the_server_sees_the_model_that_guesses(release: str) -> None:
    made = plan(release, speculative_config=GUESSING)
    mount = {"source": "/data/models/Guess", "target": "/data/models/Guess", "read_only": True}
    assert mount in made["container"]["mounts"]
    assert made["requires"]["files"] == ["/data/models/Guess/config.json"]
    fetched = plan(release, speculative_config={**GUESSING, "model": "somebody/guess"})
    assert fetched["requires"]["files"] == []


def test_experts_that_nobody_counted_are_warned_of() -> None:
    config = {"model_type": "own", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4}
    made = vendor.plan_request(
        "1.24.1",
        {
            "weights": "/data/Own",
            "instance": "x",
            "model_config": config,
            "enable_expert_parallel": True,
            "max_model_len": 2048,
            "tensor_parallel_size": 1,
        },
    )
    assert any("no number of experts was found" in words for words in made["warnings"])


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("model", ["deepseek-r1-671b", "deepseek-r1-0528", "qwen3-coder-480b-a35b-instruct-fp8"])
def test_published_fp8_is_not_called_inc(release: str, model: str) -> None:
    """vLLM ends a start whose --quantization is not the method that config.json names."""
    wish = {"model": model, "instance": "x", "enable_expert_parallel": True}
    made = vendor.plan_request(release, wish)
    assert "--quantization" not in made["arguments"]
    assert "QUANT_CONFIG" not in made["environment"]
    assert made["requires"]["files"] == []
    assert any(line.startswith("dtype fp8: left out") for line in made["changes"])
    calibrated = vendor.plan_request(release, {**wish, "quantization_config": "/data/quantization/own.json"})
    assert calibrated["environment"]["QUANT_CONFIG"] == "/data/quantization/own.json"
    assert "--quantization" not in calibrated["arguments"]
    words = vendor.plan_request(release, {**wish, "quantization": "inc", "dtype": "fp8"})["refused"]
    assert "quantization is inc, but" in words
    assert "quantization_config alone turns INC on" in words
