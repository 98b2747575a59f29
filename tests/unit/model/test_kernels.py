"""Kinds of attention that a config.json asks for, and what each release makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.model.kernels import (
    CHUNKED,
    ENCODER,
    INTERLEAVED,
    SOFT_CAP,
    SOME_LAYERS,
    WINDOW,
    kernels_of,
)

from plugin_utils import releases
from tests.golden.serving_cases import vendor
from tests.unit.planning.test_refusals import plan, warned

CONFIG = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 32000,
}
MISTRAL = {**CONFIG, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 4096}
QWEN = {**CONFIG, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 4096}
SPARSE = {
    **CONFIG,
    "model_type": "deepseek_v32",
    "architectures": ["DeepseekV32ForCausalLM"],
    "num_key_value_heads": 32,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "index_topk": 2048,
}
DELTA = {
    **CONFIG,
    "model_type": "qwen3_next",
    "architectures": ["Qwen3NextForCausalLM"],
    "layer_types": ["linear_attention", "full_attention"] * 16,
}


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({}, []),
        ({"sliding_window": 4096}, [WINDOW]),
        ({"sliding_window": None}, []),
        ({"sliding_window": 0}, []),
        ({"sliding_window": True}, []),
        ({"sliding_window": 4096, "use_sliding_window": False}, []),
        ({"sliding_window": 4096, "model_type": "gemma2"}, [INTERLEAVED]),
        ({"sliding_window": 4096, "layer_types": ["sliding_attention", "full_attention"]}, [INTERLEAVED]),
        ({"sliding_window": 4096, "layer_types": ["sliding_attention"] * 2}, [WINDOW]),
        ({"sliding_window": 4096, "layer_types": ["full_attention"] * 2}, []),
        ({"sliding_window": 4096, "max_window_layers": 28, "num_hidden_layers": 32}, [SOME_LAYERS]),
        ({"sliding_window": 4096, "max_window_layers": 32, "num_hidden_layers": 32}, [WINDOW]),
        ({"index_topk": 2048}, ["sparse_attention"]),
        ({"index_topk": "many"}, []),
        ({"layer_types": ["linear_attention", "full_attention"]}, ["gated_delta"]),
        ({"layer_types": ["mamba", "attention"]}, []),
        ({"full_attention_interval": 4, "num_hidden_layers": 48}, ["gated_delta"]),
        ({"attention_chunk_size": 8192}, [CHUNKED]),
        ({"attention_chunk_size": None}, []),
        ({"attn_logit_softcapping": 50.0}, [SOFT_CAP]),
        ({"attn_logit_softcapping": None}, []),
        ({"is_encoder_decoder": True}, [ENCODER]),
        ({"is_encoder_decoder": False}, []),
    ],
)
def test_a_config_names_its_attention(config: dict[str, Any], names: list[str]) -> None:
    assert [kernel.name for kernel in kernels_of(config)] == names


@pytest.mark.parametrize("release", ["1.23", "1.24"])
def test_sparse_attention_is_refused_where_the_plugin_raises(release: str) -> None:
    answer = plan(release, model_config=SPARSE, tensor_parallel_size=8, max_model_len=8192)
    assert answer["refused_id"] == "unsupported_feature"
    assert "index_topk 2048" in answer["refused"]
    assert "NotImplementedError" in answer["refused"]


def test_sparse_attention_is_warned_of_where_dense_attention_takes_its_place() -> None:
    longer = plan("1.24.1", model_config=SPARSE, tensor_parallel_size=8, max_model_len=8192)
    assert warned(longer, "sparse attention (index_topk 2048)", "dense attention")
    equal = plan("1.24.1", model_config=SPARSE, tensor_parallel_size=8, max_model_len=2048)
    assert "refused" not in equal
    assert not warned(equal, "dense attention")


@pytest.mark.parametrize(("release", "refused"), [("1.22", False), ("1.23", True), ("1.24", False), ("1.24.1", False)])
def test_gated_delta_nets_need_a_release_that_computes_them(release: str, *, refused: bool) -> None:
    answer = plan(release, model_config=DELTA, max_model_len=8192)
    assert (answer.get("refused_id") == "unsupported_feature") is refused, answer.get("refused")


@pytest.mark.parametrize("release", ["1.18", "1.21", "1.22", "deepseek-r1", "1.23", "1.24", "1.24.1"])
def test_a_window_that_a_release_does_not_keep_to_is_warned_of(release: str) -> None:
    where, cards = ("oam8", 8 if release == "deepseek-r1" else 1)
    longer = plan(release, where, model_config=MISTRAL, tensor_parallel_size=cards, max_model_len=8192)
    assert bool(warned(longer, "a sliding window of 4096 tokens")) is (release != "1.22"), longer
    shorter = plan(release, where, model_config=MISTRAL, tensor_parallel_size=cards, max_model_len=4096)
    assert not warned(shorter, "sliding window")


def test_windows_in_some_layers_end_the_forks_server() -> None:
    some = {**QWEN, "use_sliding_window": True, "max_window_layers": 28}
    for release in ("1.18", "1.21", "1.22"):
        assert plan(release, model_config=some, max_model_len=8192)["refused_id"] == "unsupported_feature"
    assert "refused" not in plan("1.24.1", model_config=some, max_model_len=8192)
    off = {**some, "use_sliding_window": False}
    assert "refused" not in plan("1.22", model_config=off, max_model_len=8192)


GEMMA = {
    **CONFIG,
    "model_type": "gemma2",
    "architectures": ["Gemma2ForCausalLM"],
    "attn_logit_softcapping": 50.0,
    "num_hidden_layers": 42,
}
SCOUT = {
    "model_type": "llama4",
    "architectures": ["Llama4ForConditionalGeneration"],
    "text_config": {**CONFIG, "model_type": "llama4_text", "attention_chunk_size": 8192},
}
WHISPER = {
    **CONFIG,
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "is_encoder_decoder": True,
}


@pytest.mark.parametrize("release", ["1.18", "1.21", "1.22", "1.23", "1.24", "1.24.1"])
def test_a_soft_cap_that_no_kernel_has_is_warned_of(release: str) -> None:
    assert warned(plan(release, model_config=GEMMA, max_model_len=4096), "attn_logit_softcapping")


@pytest.mark.parametrize("release", ["1.21", "1.22", "1.23", "1.24.1"])
def test_local_attention_is_warned_of_where_all_tokens_are_attended_to(release: str) -> None:
    longer = plan(release, model_config=SCOUT, tensor_parallel_size=8, max_model_len=16384)
    assert bool(warned(longer, "local attention within 8192 tokens")) is release.startswith(("1.21", "1.22"))
    shorter = plan(release, model_config=SCOUT, tensor_parallel_size=8, max_model_len=8192)
    assert not warned(shorter, "local attention")


@pytest.mark.parametrize("release", ["1.18", "1.21", "1.22", "deepseek-r1", "1.23", "1.24", "1.24.1"])
def test_encoders_beside_a_decoder_are_refused_on_every_release(release: str) -> None:
    answer = plan(release, model_config=WHISPER, tensor_parallel_size=8, max_model_len=4096)
    assert answer["refused_id"] == "unsupported_feature", answer
    assert "NotImplementedError" in answer["refused"]


def test_unified_attention_has_no_window() -> None:
    unified: dict[str, Any] = {"bucketing_strategy": "unified", "max_model_len": 4096}
    assert plan("1.23", model_config=MISTRAL, **unified)["refused_id"] == "unsupported_feature"
    whole = {**MISTRAL, "sliding_window": None}
    assert "refused" not in plan("1.23", model_config=whole, **unified)


def test_every_kernel_of_a_release_file_is_one_that_is_derived(subtests: pytest.Subtests) -> None:
    known = {"sparse_attention", "gated_delta", WINDOW, INTERLEAVED, SOME_LAYERS, CHUNKED, SOFT_CAP, ENCODER}
    others = {"alibi", "beam_search", "chunked_prefill", "lora", "quantization", "medusa", "two_nodes"}
    for name in releases.names():
        with subtests.test(release=name):
            release = vendor.catalogue(name).release
            assert {*release.unsupported, *release.warned} <= known | others | {"lazy_mode_upstream", "ngram"}
