"""The longest request a model was made for, scaled positions included, as vLLM reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.model.positions import overrides_in, positions_of
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.planning.test_refusals import LLAMA_70B, plan, sentence, warned

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({}, None),
        # The smallest that is there; model_max_length wins over all.
        ({"max_position_embeddings": 8192, "seq_length": 4096}, 4096),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        # Yarn counts from the length before it, other kinds from the one that is there.
        ({"max_position_embeddings": 40960, "rope_scaling": YARN}, 131072),
        ({"max_position_embeddings": 131072, "rope_scaling": YARN}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2}}, 8192),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic", "factor": 1.5}}, 6144),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 131072, "rope_scaling": {"type": "longrope", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 131072, "rope_scaling": {"type": "su", "factor": 8.0}}, 131072),
        # Pictures have positions of their own, and no factor.
        ({"max_position_embeddings": 32768, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, 32768),
        ({"model_type": "gemma3_text", "max_position_embeddings": 131072, "rope_scaling": {"factor": 8.0}}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": None}, 4096),
    ],
)
def test_the_limit_of_a_config(config: dict[str, Any], longest: int | None) -> None:
    found = positions_of(config)
    assert found.longest == longest
    assert not found.broken
    # Every number is said together with the key it comes from.
    assert bool(found.because) == (longest is not None)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"max_position_embeddings": "many"}, "max_position_embeddings"),
        ({"max_position_embeddings": 0}, "max_position_embeddings"),
        ({"rope_scaling": [4]}, "rope_scaling"),
        ({"rope_scaling": {"type": "linear", "factor": "two"}}, "factor"),
        ({"rope_scaling": {"type": "linear", "factor": -1}}, "factor"),
        ({"rope_scaling": {"type": "linear", "factor": float("nan")}}, "factor"),
        ({"rope_scaling": {**YARN, "original_max_position_embeddings": "x"}}, "original_max_position_embeddings"),
    ],
)
def test_a_length_that_is_none_is_refused_by_its_key(config: dict[str, Any], word: str) -> None:
    with pytest.raises(Refusal, match=word):
        positions_of(config)


def test_yarn_in_a_given_config() -> None:
    config = {**LLAMA_70B, "max_position_embeddings": 40960, "rope_scaling": YARN}
    assert "refused" not in plan(model_config=config, max_model_len=131072, tensor_parallel_size=8)
    sentence(
        "max_model_len is 131200",
        "131072",
        "original_max_position_embeddings 32768 times the factor 4.0",
        model_config=config,
        max_model_len=131200,
        tensor_parallel_size=8,
    )
    # A config that was stretched already is not stretched again.
    twice = {**config, "max_position_embeddings": 131072}
    sentence("131072", model_config=twice, max_model_len=262144, tensor_parallel_size=8)


def test_scaling_that_the_request_brings() -> None:
    config = {**LLAMA_70B, "max_position_embeddings": 8192}
    for argument, content in (
        ("--rope-scaling", {**YARN, "original_max_position_embeddings": 8192}),
        ("--hf-overrides", {"rope_scaling": {**YARN, "original_max_position_embeddings": 8192}}),
        ("--hf_overrides", {"max_position_embeddings": 32768}),
    ):
        extra = [argument, json.dumps(content)]
        stretched: dict[str, Any] = {"model_config": config, "extra_args": extra, "tensor_parallel_size": 8}
        assert "refused" not in plan(max_model_len=32768, **stretched)
        joined = {**stretched, "extra_args": [f"{argument}={json.dumps(content)}"]}
        assert "refused" not in plan(max_model_len=32768, **joined)
        sentence("max_model_len is 40960", "32768", max_model_len=40960, **stretched)


def test_scaling_of_a_model_of_the_catalogue() -> None:
    extra = ["--rope-scaling", json.dumps(YARN)]
    sentence("max_model_len is 65536", "40960", model="qwen3-8b", max_model_len=65536)
    assert "refused" not in plan(model="qwen3-8b", max_model_len=65536, extra_args=extra)
    sentence("131072", model="qwen3-8b", max_model_len=131200, extra_args=extra)


@pytest.mark.parametrize("given_", [{"type": "yarn", "factor": 4.0}, {"factor": 4.0}])
def test_scaling_the_server_would_end_for_is_said(given_: dict[str, Any]) -> None:
    answer = plan(extra_args=["--rope-scaling", json.dumps(given_)])
    assert warned(answer, "will not start", "rope_scaling")


def test_who_asks_for_too_much_by_name_gets_it_with_a_warning() -> None:
    config = {**LLAMA_70B, "max_position_embeddings": 8192}
    asked: dict[str, Any] = {"model_config": config, "max_model_len": 16384, "tensor_parallel_size": 8}
    allowed = plan(extra_environment={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, **asked)
    assert warned(allowed, "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "8192")
    # The start script of the later branch sets it for everybody, which is nobody's wish.
    sentence("8192", release="1.22-2025.11", **asked)
    sentence("8192", extra_environment={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "0"}, **asked)


@pytest.mark.parametrize("value", ["", "4", "[1]", "{", "[" * 4000, '{"rope_type": "linear", "factor": 1e999}'])
def test_an_argument_that_is_no_json_object_is_refused(value: str) -> None:
    config = {**LLAMA_70B, "max_position_embeddings": 8192}
    refused = plan(model_config=config, extra_args=["--rope-scaling", value], tensor_parallel_size=8)["refused"]
    assert "rope" in refused
    assert len(refused) < 400


@given(st.lists(st.text(max_size=20), max_size=4))
def test_any_arguments(arguments: list[str]) -> None:
    assert overrides_in(arguments) == {}
