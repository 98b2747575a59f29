"""The figures of every entry are computed a second time from the shape of the model.

A mistyped head count, layer count or size gives another number of parameters; the published one was taken from
elsewhere (the hub's tensor counts, the size in the index), so both agree only where both are right.
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import pytest

from tests.unit.catalogue.documentation import ROOT, models

MODELS = models()

# What the catalogue leaves out because no rule asks for it: the width of the feed-forward part, from config.json.
FEED_FORWARD = {
    "qwen2-72b-instruct": 29568,
    "qwq-32b": 27648,
    "qwq-32b-long-context": 27648,
    "deepseek-r1-distill-qwen-32b": 27648,
    "deepseek-r1-distill-llama-70b": 28672,
    "deepseek-r1-distill-llama-8b": 14336,
    "qwen2.5-7b-instruct": 18944,
    "qwen3-8b": 12288,
    "llama-2-7b": 11008,
    "llama-2-7b-chat": 11008,
    "llama-2-70b": 28672,
    "llama-2-70b-chat": 28672,
    "mistral-7b-instruct-v0.3": 14336,
    "mixtral-8x7b-instruct-v0.1": 14336,
    "qwen3-coder-480b-a35b-instruct-fp8": 2560,
    "codellama-34b-instruct-hf": 22016,
    "llama-3.3-70b-instruct": 28672,
    "meta-llama-3.1-8b": 14336,
    "meta-llama-3.1-8b-instruct": 14336,
    "meta-llama-3.1-70b": 28672,
    "meta-llama-3.1-70b-instruct": 28672,
    "meta-llama-3.1-405b": 53248,
    "meta-llama-3.1-405b-instruct": 53248,
    "mistral-7b-instruct-v0.2": 14336,
    "mistral-large-instruct-2407": 28672,
    "mixtral-8x7b-v0.1": 14336,
    "mixtral-8x22b-v0.1": 16384,
    "qwen2.5-14b-instruct": 13824,
    "qwen2.5-32b-instruct": 27648,
    "qwen2.5-72b-instruct": 29568,
    "qwen3-0.6b": 3072,
    "qwen3-14b": 17408,
    "qwen3-32b": 25600,
    "qwen3-30b-a3b-instruct-2507": 768,
    "qwen3-235b-a22b": 1536,
}
BLOCK = 128


def decoder(shape: dict[str, Any], width: int) -> int:
    """Parameters of a decoder with grouped heads and separate input and output embeddings."""
    hidden, layers = shape["hidden_size"], shape["num_hidden_layers"]
    head = shape.get("head_dim", hidden // shape["num_attention_heads"])
    queries, keys = head * shape["num_attention_heads"], head * shape["num_key_value_heads"]
    attention = 2 * hidden * queries + 2 * hidden * keys
    if shape["model_type"] == "qwen2":  # biases of q, k and v
        attention += queries + 2 * keys
    if shape["model_type"].startswith("qwen3"):  # norms of q and k
        attention += 2 * head
    experts = shape.get("num_experts", 0)
    forward = 3 * hidden * width * max(experts, 1) + hidden * experts
    total: int = layers * (attention + forward + 2 * hidden) + 2 * shape["vocab_size"] * hidden + hidden
    return total


def test_parameters_of_the_shape_are_the_published_ones(subtests: pytest.Subtests) -> None:
    for name, width in sorted(FEED_FORWARD.items()):
        with subtests.test(name=name):
            shape = MODELS[name]["architecture"]
            assert decoder(shape, width) == shape["parameters"]


def test_sixteen_bit_models_take_two_bytes_a_parameter(subtests: pytest.Subtests) -> None:
    for name in sorted(set(FEED_FORWARD) - {"qwen3-coder-480b-a35b-instruct-fp8"}):
        with subtests.test(name=name):
            assert MODELS[name]["weights_bytes"] == 2 * MODELS[name]["architecture"]["parameters"]


def test_bytes_of_the_coder_model_follow_from_its_shape() -> None:
    shape, width = MODELS["qwen3-coder-480b-a35b-instruct-fp8"]["architecture"], 2560
    hidden, head = shape["hidden_size"], shape["head_dim"]
    attention = 2 * hidden * head * (shape["num_attention_heads"] + shape["num_key_value_heads"])
    linear = shape["num_hidden_layers"] * (attention + 3 * hidden * width * shape["num_experts"])
    expected = linear + 2 * (linear // BLOCK**2) + 2 * (shape["parameters"] - linear)
    assert MODELS["qwen3-coder-480b-a35b-instruct-fp8"]["weights_bytes"] == expected


def language_and_vision(shape: dict[str, Any], width: int, tower: dict[str, int]) -> int:
    """Parameters of a Qwen3-VL: the decoder, and a tower of pictures with a merger at its end and three below."""
    inner, forward, patch = tower["hidden_size"], tower["intermediate_size"], tower["patch"]
    block = 4 * inner * inner + 4 * inner + 2 * inner * forward + forward + inner + 4 * inner
    joined = 4 * inner
    merger = joined * joined + joined + joined * shape["hidden_size"] + shape["hidden_size"]
    mergers = (merger + 2 * inner) + 3 * (merger + 2 * joined)
    seen: int = patch * inner + inner + tower["positions"] * inner + tower["depth"] * block + mergers
    return decoder(shape, width) + seen


# vision_config of the family's larger models: patches of 2 x 16 x 16 x 3 values, 48 x 48 positions.
TOWER = {"hidden_size": 1152, "intermediate_size": 4304, "depth": 27, "patch": 1536, "positions": 2304}


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("qwen3-vl-30b-a3b-instruct", 768),
        ("qwen3-vl-32b-instruct", 25600),
        ("qwen3-vl-32b-thinking", 25600),
        ("qwen3-vl-235b-a22b-instruct", 1536),
        ("qwen3-vl-235b-a22b-thinking", 1536),
    ],
)
def test_models_that_see_have_their_tower(name: str, width: int) -> None:
    shape = MODELS[name]["architecture"]
    assert language_and_vision(shape, width, TOWER) == shape["parameters"]
    assert MODELS[name]["weights_bytes"] == 2 * shape["parameters"]


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b"])
def test_gpt_oss_to_the_last_tensor(name: str) -> None:
    """Attention with biases and sinks, a router, experts with biases; experts in 4 bits, a byte of scale for 32."""
    shape, width = MODELS[name]["architecture"], 2880
    hidden, heads, experts = shape["hidden_size"], shape["num_attention_heads"], shape["num_experts"]
    queries, keys = shape["head_dim"] * heads, shape["head_dim"] * shape["num_key_value_heads"]
    attention = 2 * hidden * queries + 2 * hidden * keys + queries + 2 * keys + hidden + heads
    packed = shape["num_hidden_layers"] * experts * 3 * hidden * width
    others = attention + experts * (2 * width + hidden) + hidden * experts + experts + 2 * hidden
    rest = shape["num_hidden_layers"] * others + 2 * shape["vocab_size"] * hidden + hidden
    assert packed + rest == shape["parameters"]
    assert packed // 2 + packed // 32 + 2 * rest == MODELS[name]["weights_bytes"]
    assert MODELS[f"{name}-bf16"]["architecture"] == shape
    assert MODELS[f"{name}-bf16"]["weights_bytes"] == 2 * shape["parameters"]


def blocks(rows: int, columns: int) -> int:
    """Scales of a matrix: one for each block of 128 x 128, cut off blocks included."""
    return -(-rows // BLOCK) * -(-columns // BLOCK)


@pytest.mark.parametrize("name", ["deepseek-r1-0528", "deepseek-r1-671b"])
def test_deepseek_to_the_last_tensor(name: str) -> None:
    """Weights, scales and biases as the hub counts them, the multi-token prediction layer included."""
    shape = MODELS[name]["architecture"]
    hidden, heads, latent, rope = 7168, 128, shape["kv_lora_rank"], shape["qk_rope_head_dim"]
    assert (hidden, heads) == (shape["hidden_size"], shape["num_attention_heads"])
    query, plain, value, dense_width, expert_width = 1536, 128, 128, 18432, 2048
    projections = [
        (query, hidden),
        (heads * (plain + rope), query),
        (latent + rope, hidden),
        (heads * (plain + value), latent),
        (hidden, heads * value),
    ]
    dense, sparse = 3, shape["num_hidden_layers"] - 3 + 1  # the last one predicts the token after the next
    experts = shape["num_experts"] + 1  # the shared one
    eight_bit = (dense + sparse) * sum(rows * columns for rows, columns in projections)
    eight_bit += dense * 3 * hidden * dense_width + sparse * experts * 3 * hidden * expert_width
    scales = (dense + sparse) * sum(blocks(rows, columns) for rows, columns in projections)
    scales += dense * 3 * blocks(hidden, dense_width) + sparse * experts * 3 * blocks(hidden, expert_width)
    router_biases = sparse * shape["num_experts"]
    norms = (dense + sparse) * (query + latent + 2 * hidden) + hidden
    routers = sparse * hidden * shape["num_experts"]
    prediction = 2 * hidden * hidden + 3 * hidden
    sixteen_bit = norms + routers + prediction + 4 * shape["vocab_size"] * hidden
    assert eight_bit + sixteen_bit + scales + router_biases == shape["parameters"]
    assert eight_bit + 2 * sixteen_bit + 4 * (scales + router_biases) == MODELS[name]["weights_bytes"]


def test_the_simulated_model_is_the_one_the_simulator_builds() -> None:
    path = ROOT / "simulator" / "images" / "serving" / "build_tiny_model.py"
    spec = importlib.util.spec_from_file_location("build_tiny_model", path)
    assert spec is not None and spec.loader is not None
    built = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(built)
    entry = MODELS["simulated-tiny"]
    shape = entry["architecture"]
    assert entry["directory"] == entry["title"] == built.NAME
    assert (shape["hidden_size"], shape["num_hidden_layers"], shape["vocab_size"]) == (
        built.HIDDEN,
        built.LAYERS,
        built.VOCABULARY,
    )
    assert (shape["num_attention_heads"], shape["num_key_value_heads"]) == (built.HEADS, built.KV_HEADS)
    assert shape["max_position_embeddings"] == built.LENGTH
    assert shape["parameters"] == sum(math.prod(size) for size in built.tensors().values())
    assert entry["weights_bytes"] == 2 * shape["parameters"]


def test_a_wrong_head_count_would_be_noticed() -> None:
    shape = dict(MODELS["qwen3-8b"]["architecture"], num_key_value_heads=4)
    assert decoder(shape, FEED_FORWARD["qwen3-8b"]) != shape["parameters"]
