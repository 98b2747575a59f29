"""A config.json that lacks keys: the rules that need them are left out and say so, the others hold."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.model.facts import GAPS

from tests.unit.planning.test_memory import BF16
from tests.unit.planning.test_refusals import LLAMA_70B, MIXTRAL, plan, sentence, warned


@pytest.mark.parametrize("key", GAPS)
def test_a_key_that_is_missing_is_named(key: str) -> None:
    config = {name: value for name, value in LLAMA_70B.items() if name != key}
    answer = plan(model_config=config)
    assert warned(answer, f"model_config has no {key}: ")
    assert not warned(plan(model_config=LLAMA_70B), "model_config has no")


@pytest.mark.parametrize("key", ["vocab_size", "num_key_value_heads"])
def test_what_no_rule_needs_is_not_asked_for(key: str) -> None:
    config = {name: value for name, value in LLAMA_70B.items() if name != key}
    assert not warned(plan(model_config=config), "model_config has no")


def test_an_empty_config_plans_by_name() -> None:
    answer = plan("1.21", model_config={}, weights="/models/QwQ-32B")
    for key in GAPS:
        assert warned(answer, f"model_config has no {key}: ")
    # As from the name alone.
    assert answer["environment"]["VLLM_FP32_SOFTMAX"] == "false"
    assert "--enable-expert-parallel" in answer["arguments"]


def test_the_rules_whose_keys_are_there_hold() -> None:
    sentence("tensor_parallel_size is 3", "64", model_config={"num_attention_heads": 64}, tensor_parallel_size=3)
    sentence(
        "tensor_parallel_size is 8",
        "num_key_value_heads",
        model_config={"num_attention_heads": 64, "num_key_value_heads": 3},
        tensor_parallel_size=8,
    )
    sentence("max_model_len is 16384", "8192", model_config={"max_position_embeddings": 8192}, max_model_len=16384)
    assert "--enable-expert-parallel" in plan(model_config={"num_local_experts": 8})["arguments"]
    dense = plan(model_config={"model_type": "llama"})
    assert "--enable-expert-parallel" not in dense["arguments"]
    sentence("ALiBi", release="1.16", model_config={"model_type": "bloom"}, max_model_len=2048)


def test_every_head_has_its_own_keys_where_none_are_named() -> None:
    config = {name: value for name, value in MIXTRAL.items() if name != "num_key_value_heads"}
    assert "refused" not in plan(model_config=config, tensor_parallel_size=16, where="node16")
    three = {**MIXTRAL, "num_key_value_heads": 3}
    sentence("num_key_value_heads", model_config=three, tensor_parallel_size=16, where="node16")


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads"])
def test_the_kv_cache_is_not_guessed(key: str) -> None:
    config = {name: value for name, value in LLAMA_70B.items() if name != key}
    answer = plan(model_config=config, files=BF16)
    assert answer["memory"]["kv_cache_blocks"] is None
    assert answer["memory"]["fits"] is True


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_attention_heads": "many"}, ["num_attention_heads", "whole number"]),
        ({"num_attention_heads": 0}, ["num_attention_heads", "from 1"]),
        ({"hidden_size": -5}, ["hidden_size"]),
        ({"num_hidden_layers": True}, ["num_hidden_layers"]),
        ({"model_type": 5}, ["model_type", "qwen2"]),
        ({"max_position_embeddings": "x"}, ["max_position_embeddings"]),
    ],
)
def test_a_value_that_cannot_be_right_is_refused(config: dict[str, Any], words: list[str]) -> None:
    sentence(*words, model_config=config)


def test_null_is_the_same_as_nothing() -> None:
    assert warned(plan(model_config={**LLAMA_70B, "hidden_size": None}), "model_config has no hidden_size")


@pytest.mark.parametrize("release", ["1.16", "1.18"])
def test_buckets_that_are_not_known_are_said_so(release: str) -> None:
    answer = plan(release)
    assert answer["buckets"] is None
    assert warned(answer, "longest request is not known", "max_model_len", "model_config")
    for options in ({"max_model_len": 4096}, {"model_config": LLAMA_70B, "tensor_parallel_size": 8}):
        known = plan(release, **options)
        assert known["buckets"]["graphs"] > 0
        assert not warned(known, "longest request is not known")
