"""What lies on a card: weights as wide as they are loaded, graphs where there are some, and the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible.module_utils.gaudi.model.headers import Weights
from ansible.module_utils.gaudi.planning.many import plan_all
from ansible.module_utils.gaudi.planning.memory import growth, lacking_for_graphs

from tests.golden.serving_cases import vendor
from tests.unit.planning.test_refusals import GIB, LLAMA_70B


def plan(
    release: str = "1.22", files: Weights | None = None, reserved: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    model = options.get("model")
    request = options if model else {"weights": "/models/something", **options}
    answers: list[dict[str, Any]] = plan_all(
        [request],
        vendor.catalogue(release, model),
        vendor.topology("oam8"),
        weights_root="/data/models",
        reservations=reserved,
        read_weights=(lambda _path: files) if files is not None else None,
    )
    return answers[0]


BF16 = Weights(bytes=40 * GIB, parameters={"BF16": 20 * GIB})
F32 = Weights(bytes=40 * GIB, parameters={"F32": 10 * GIB})


@pytest.mark.parametrize(
    ("files", "dtype", "gib"),
    [
        (BF16, "bfloat16", 40.0),
        (BF16, "float32", 80.0),
        (F32, "float32", 40.0),
        # Embedding models are often stored in float32 and served in half of it.
        (F32, "bfloat16", 20.0),
        # As they are stored: what the configuration says decides.
        (BF16, "auto", 40.0),
        # Quantised integers stay what they are, what is left in floating point grows.
        (Weights(bytes=40 * GIB, parameters={"I32": 5 * GIB, "F16": 10 * GIB}), "float32", 60.0),
        # Calibrated FP8 keeps one byte of each.
        (BF16, "fp8", 20.0),
    ],
)
def test_weights_are_as_wide_as_they_are_loaded(files: Weights, dtype: str, gib: float) -> None:
    answer = plan(files=files, dtype=dtype)
    assert answer["memory"]["weights_gib_per_card"] == gib, answer["memory"]
    assert answer["memory"]["weights_bytes"] == files.bytes


def test_float32_that_does_not_fit_is_refused() -> None:
    heavy = Weights(bytes=60 * GIB, parameters={"BF16": 30 * GIB})
    assert "refused" not in plan(files=heavy)
    refused = plan(files=heavy, dtype="float32")["refused"]
    assert "120.0 GiB of weights per card (float32)" in refused
    assert refused.endswith("Set tensor_parallel_size to 2, 4 or 8.")


@pytest.mark.parametrize("release", ["1.21", "1.22"])
def test_a_model_of_the_catalogue_in_float32_takes_twice_the_room(release: str) -> None:
    half, whole = (plan(release, model="qwen3-8b", dtype=dtype)["memory"] for dtype in ("bfloat16", "float32"))
    assert whole["weights_gib_per_card"] == pytest.approx(2 * half["weights_gib_per_card"], abs=0.02)
    # Keys and values as well.
    room = whole["kv_cache_gib"] / half["kv_cache_gib"]
    assert whole["kv_cache_blocks"] == pytest.approx(half["kv_cache_blocks"] * room / 2, rel=0.01)


def test_fp8_stays_fp8_whatever_is_asked_for() -> None:
    assert growth(4, {"F8_E4M3": 10, "BF16": 10}) == 50 / 30
    assert growth(None, {"BF16": 10}) == 1.0
    assert growth(2, {}) == 1.0


@pytest.mark.parametrize("release", ["1.18", "1.21", "1.22", "1.22-2025.11"])
def test_without_graphs_nothing_is_kept_for_them(release: str) -> None:
    config = {**LLAMA_70B, "num_hidden_layers": 8}
    graphs, eager = (
        plan(
            release, files=BF16, model_config=config, max_model_len=4096, max_num_batched_tokens=4096, enforce_eager=on
        )
        for on in (False, True)
    )
    assert graphs["memory"]["graphs_gib"] > 0
    assert eager["memory"]["graphs_gib"] == 0
    assert eager["memory"]["kv_cache_gib"] == eager["memory"]["usable_gib"]
    assert eager["memory"]["kv_cache_blocks"] > graphs["memory"]["kv_cache_blocks"]


def test_1_18_keeps_its_own_default_for_graphs() -> None:
    memory = plan("1.18", files=BF16)["memory"]
    assert memory["graphs_gib"] == pytest.approx(0.4 * memory["usable_gib"], abs=0.02)


def test_1_16_shares_out_the_whole_card() -> None:
    """(what PyTorch sees of a card) x 0.9 - weights - profiling run, nothing for graphs."""
    memory = plan("1.16", files=BF16)["memory"]
    seen = (memory["card_mib"] - memory["idle_mib"] - 645) / 1024
    assert memory["usable_gib"] == pytest.approx(0.9 * seen - 40 - 504 / 1024, abs=0.02)
    assert memory["graphs_gib"] == 0
    (why,) = (item for item in plan("1.16", files=BF16)["explain"] if item["value"] == "memory")
    assert why["source"].endswith("vllm/worker/habana_worker.py determine_num_available_blocks")


@pytest.mark.parametrize(("release", "options"), [("1.22", {"kv_cache_dtype": "fp8_inc"}), ("deepseek-r1", {})])
def test_an_fp8_cache_without_measured_scales_is_said(release: str, options: dict[str, Any]) -> None:
    assert any("KV cache is fp8_inc without" in sentence for sentence in plan(release, **options)["warnings"])


@pytest.mark.parametrize(
    ("release", "options"),
    [
        ("1.22", {"kv_cache_dtype": "fp8_inc", "quantization_config": "/calib/q.json"}),
        ("1.22", {"kv_cache_dtype": "auto"}),
        ("1.21", {"weights": "/models/Qwen3-32B", "dtype": "fp8"}),
        ("deepseek-r1", {"dtype": "fp8"}),
    ],
)
def test_an_fp8_cache_with_scales_is_nothing_to_say(release: str, options: dict[str, Any]) -> None:
    assert not any("KV cache is" in sentence for sentence in plan(release, **options)["warnings"])


@pytest.mark.parametrize(
    ("release", "size", "right"),
    [
        ("1.16", 256, "8, 16, 32, 64 or 128"),
        ("1.18", 100, "8, 16, 32, 64 or 128"),
        ("1.21", 256, "1, 8, 16, 32, 64 or 128"),
        ("1.22", 512, "1, 8, 16, 32, 64, 128 or 256"),
        ("1.22-2025.11", 48, "1, 8, 16, 32, 64, 128 or 256"),
        ("deepseek-r1", 1, "8, 16, 32, 64 or 128"),
        ("deepseek-r1-2025.11", 256, "8, 16, 32, 64 or 128"),
    ],
)
def test_a_block_size_the_release_does_not_take(release: str, size: int, right: str) -> None:
    refused = plan(release, block_size=size)["refused"]
    assert f"block_size is {size}" in refused
    assert f"takes {right}." in refused


def test_block_sizes_a_release_takes() -> None:
    large = plan("1.22", block_size=256)
    assert vendor.options(large["arguments"])["--block-size"] == "256"
    assert not any("block_size" in sentence for sentence in large["warnings"])
    small = plan("1.22", block_size=64)
    assert any("block_size 64" in sentence and "128" in sentence for sentence in small["warnings"])


def shared(**options: Any) -> dict[str, Any]:
    found = vendor.catalogue("1.22", "bge-m3")
    found = replace(found, models={**found.models, **vendor.catalogue("1.22", "bge-reranker-v2-m3").models})
    request = {"model": "bge-m3", "share_card_with": ["bge-reranker-v2-m3"], **options}
    answers: list[dict[str, Any]] = plan_all([request], found, vendor.topology("oam8"), weights_root="/data/models")
    return answers[0]


def test_models_that_share_a_card_are_as_wide_as_they_are_loaded() -> None:
    """Both are stored in float32."""
    whole, half, stored = (
        shared(dtype=dtype)["memory"]["weights_gib_per_card"] for dtype in ("float32", "bfloat16", "auto")
    )
    assert whole == stored == pytest.approx((2271019008 + 2271023104) / GIB, abs=0.05)
    assert half == pytest.approx(whole / 2, abs=0.02)


def test_models_that_share_a_card_need_a_size() -> None:
    assert "size of the first model" in shared(weights="/data/elsewhere/bge")["refused"]


# Qwen3-Next-80B-A3B: 36 of its 48 layers keep a state for each sequence (config.json of the repository).
NEXT = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "moe_intermediate_size": 512,
    "num_experts": 512,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
}
NEXT_FILES = Weights(bytes=152 * GIB, parameters={"BF16": 76 * GIB})


def left_for_graphs(memory: dict[str, Any]) -> float:
    taken = ("kv_cache_gib", "dummy_block_gib", "states_gib")
    return float(memory["usable_gib"] - sum(memory[name] for name in taken))


def lacking(made: dict[str, Any]) -> list[str]:
    return [sentence for sentence in made["warnings"] if "GiB are missing" in sentence]


@pytest.mark.parametrize("release", ["1.24", "1.24.1"])
def test_cards_chosen_for_a_model_leave_memory_for_graphs(release: str) -> None:
    given = plan(release, NEXT_FILES, model_config=NEXT, tensor_parallel_size=2)
    missing = -left_for_graphs(given["memory"])
    assert missing > 1
    (said,) = lacking(given)
    assert float(said.partition(" GiB are missing")[0].split()[-1]) == pytest.approx(missing, abs=0.1)
    chosen = plan(release, NEXT_FILES, model_config=NEXT, tensor_parallel_size="auto")
    assert len(chosen["modules"]) == 4
    assert left_for_graphs(chosen["memory"]) > 0
    assert not lacking(chosen)
    (why,) = [item for item in chosen["explain"] if item["rule"] == "fewest-cards"]
    assert float(why["inputs"]["2"].split()[0]) == pytest.approx(missing, abs=0.1)
    # Fewer sequences leave it on two cards.
    few = plan(release, NEXT_FILES, model_config=NEXT, tensor_parallel_size="auto", max_num_seqs=32)
    assert len(few["modules"]) == 2


def test_cards_that_others_have_do_not_prevent_the_plan_on_fewer() -> None:
    made = plan(
        "1.24.1",
        NEXT_FILES,
        {"other": {"cards": [{"module_id": number} for number in range(2, 8)]}},
        model_config=NEXT,
        tensor_parallel_size="auto",
    )
    assert "refused" not in made
    assert len(made["modules"]) == 2
    assert lacking(made)


def test_where_no_number_of_cards_leaves_memory_for_graphs_the_plan_says_so() -> None:
    made = plan("1.24.1", NEXT_FILES, model_config=NEXT, tensor_parallel_size="auto", max_num_seqs=2048)
    assert lacking(made)
    (why,) = [item for item in made["explain"] if item["rule"] == "fewest-cards"]
    assert why["result"] == len(made["modules"]) == 8
    assert list(why["inputs"]) == ["1", "2", "4"]


def test_a_counted_state_and_a_cache_without_graphs_lack_nothing() -> None:
    """Mamba's states are taken off the KV cache by the server; without graphs none are missing."""
    config = {
        **{key: value for key, value in NEXT.items() if not key.startswith(("linear", "full"))},
        "model_type": "granitemoehybrid",
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "layer_types": [*["mamba"] * 9, "attention"] * 4,
        "num_hidden_layers": 40,
        **{"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4},
    }
    mamba = plan("1.24.1", BF16, model_config=config, tensor_parallel_size="auto", max_model_len=8192)
    assert mamba["memory"]["states_gib"] > mamba["memory"]["graphs_gib"]
    eager = plan("1.22", BF16, model_config={**LLAMA_70B, "num_hidden_layers": 8}, enforce_eager=True)
    for made in (mamba, eager):
        assert lacking_for_graphs(made["memory"]) == 0
