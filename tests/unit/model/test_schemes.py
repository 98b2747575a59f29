"""What quantised layers are made of, and which of it each release has kernels for."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.model.schemes import schemes_of

from tests.unit.planning.test_refusals import LLAMA_70B, MIXTRAL, plan


def group(bits: int, kind: str, strategy: str, activations: int | None = None, **more: Any) -> dict[str, Any]:
    """One group of compressed-tensors weights."""
    inputs = None if activations is None else {"num_bits": activations, "type": kind, "dynamic": True}
    weights = {"num_bits": bits, "type": kind, "strategy": strategy}
    return {"targets": ["Linear"], "weights": weights, "input_activations": inputs, **more}


def stored(form: str, *groups: dict[str, Any], base: dict[str, Any] = LLAMA_70B) -> dict[str, Any]:
    """The config.json of a model with these groups."""
    said = {"quant_method": "compressed-tensors", "format": form, "config_groups": dict(enumerate(groups))}
    kind = "MixtralForCausalLM" if base is MIXTRAL else "LlamaForCausalLM"
    return {**base, "architectures": [kind], "quantization_config": said}


WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
INT8 = stored("int-quantized", group(8, "int", "channel", 8))
FP8 = stored("float-quantized", group(8, "float", "channel", 8))
BLOCK = stored("float-quantized", group(8, "float", "block", 8))
PACKED = stored("pack-quantized", group(4, "int", "group"))
PACKED8 = stored("pack-quantized", group(8, "int", "group"))
NVFP4 = stored("nvfp4-pack-quantized", group(4, "float", "tensor_group", 4))
EXPERTS_INT8 = stored("int-quantized", group(8, "int", "channel", 8), base=MIXTRAL)
EXPERTS_FP8 = stored("float-quantized", group(8, "float", "channel", 8), base=MIXTRAL)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (INT8, ["w8a8-int-channel"]),
        (PACKED, ["w4a16-int-group"]),
        (NVFP4, ["w4a4-float-tensor_group"]),
        # A format without activations leaves those alone that a group names.
        (stored("pack-quantized", group(4, "int", "group", 8)), ["w4a16-int-group"]),
        (stored("mixed-precision", group(8, "float", "channel", 8, format="float-quantized")), ["w8a8-float-channel"]),
        (stored("float-quantized", *(group(8, "float", "tensor", 8) for _ in range(3))), ["w8a8-float-tensor"]),
        (stored("float-quantized", {"weights": None}), []),
        (stored("float-quantized", group(True, "float", "tensor")), []),
        (LLAMA_70B, []),
    ],
)
def test_a_config_names_its_schemes(config: dict[str, Any], names: list[str]) -> None:
    assert [scheme.name for scheme in schemes_of(config, "compressed-tensors")] == names


SERVED = {
    "1.21": {"FP8", "EXPERTS_FP8"},
    "1.22": {"FP8", "EXPERTS_FP8"},
    "1.23": {"FP8", "EXPERTS_FP8", "BLOCK", "PACKED"},
    "1.24": {"FP8", "EXPERTS_FP8", "BLOCK", "PACKED", "INT8"},
    "1.24.1": {"FP8", "EXPERTS_FP8", "BLOCK", "PACKED", "INT8"},
}


@pytest.mark.parametrize("release", sorted(SERVED))
def test_weights_need_a_kernel_for_their_bits(release: str, subtests: pytest.Subtests) -> None:
    every = {
        "INT8": INT8,
        "FP8": FP8,
        "BLOCK": BLOCK,
        "PACKED": PACKED,
        "PACKED8": PACKED8,
        "NVFP4": NVFP4,
        "EXPERTS_INT8": EXPERTS_INT8,
        "EXPERTS_FP8": EXPERTS_FP8,
    }
    for name, config in every.items():
        with subtests.test(name=name):
            answer = plan(release, model_config=config, tensor_parallel_size=8, max_model_len=8192)
            if name in SERVED[release]:
                assert "refused" not in answer, answer
            else:
                assert answer["refused_id"] == "unsupported_quantization"


@pytest.mark.parametrize("release", ["1.21", "1.22", "1.23", "1.24.1"])
@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_the_kernels_of_awq_and_gptq_read_four_bits(release: str, method: str) -> None:
    for bits in (4, 8, 3):
        config = {**LLAMA_70B, "quantization_config": {"quant_method": method, "bits": bits, "group_size": 128}}
        answer = plan(release, model_config=config, tensor_parallel_size=8, max_model_len=8192)
        assert answer.get("refused_id") == (None if bits == 4 else "unsupported_quantization"), answer.get("refused")


@pytest.mark.parametrize("release", ["1.21", "1.22", "1.23", "1.24", "1.24.1"])
@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_experts_in_awq_and_gptq_have_no_kernel(release: str, method: str) -> None:
    config = {**MIXTRAL, "quantization_config": {"quant_method": method, "bits": 4, "group_size": 128}}
    answer = plan(release, model_config=config, tensor_parallel_size=8, max_model_len=8192)
    assert answer["refused_id"] == "unsupported_quantization"
    assert "in experts" in answer["refused"]


# Qwen2-72B as it was first published in four bits: 29568 is 231 groups of 128.
UNEVEN = {**LLAMA_70B, "intermediate_size": 29568}
EVEN = {**LLAMA_70B, "intermediate_size": 29696}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.mark.parametrize("release", ["1.21", "1.22", "1.23", "1.24.1"])
@pytest.mark.parametrize(
    ("shape", "stored", "served"),
    [
        (UNEVEN, AWQ, [1]),
        (UNEVEN, {**AWQ, "quant_method": "gptq"}, [1]),
        (UNEVEN, {**AWQ, "group_size": -1}, [1, 2, 4, 8]),
        (EVEN, AWQ, [1, 2, 4, 8]),
        (UNEVEN, BLOCKS, [1]),
        (EVEN, BLOCKS, [1, 2, 4, 8]),
        (UNEVEN, {"quant_method": "fp8"}, [1, 2, 4, 8]),
        ({**EVEN, "num_attention_heads": 8, "head_dim": 64, "num_key_value_heads": 8}, AWQ, [1, 2, 4]),
    ],
)
def test_cards_share_rows_by_whole_groups_of_one_scale(
    release: str, shape: dict[str, Any], stored: dict[str, Any], served: list[int]
) -> None:
    for cards in (1, 2, 4, 8):
        config = {**shape, "quantization_config": stored}
        answer = plan(release, model_config=config, tensor_parallel_size=cards, max_model_len=8192)
        refused = answer.get("refused_id") == "scales_not_divisible"
        assert refused is (cards not in served), answer.get("refused")
        assert refused or "refused" not in answer


def test_groups_of_packed_integers_are_shared_whole() -> None:
    packed = stored("pack-quantized", {**group(4, "int", "group"), "weights": WEIGHTS}, base=UNEVEN)
    answer = plan("1.24.1", model_config=packed, tensor_parallel_size=2, max_model_len=8192)
    assert answer["refused_id"] == "scales_not_divisible"
    assert "refused" not in plan("1.24.1", model_config=packed, tensor_parallel_size=1, max_model_len=8192)


@pytest.mark.parametrize(
    "sizes",
    [
        # Python prints no product of two such numbers.
        (10**4200, 10**4200 + 1),
        # Nor what divides by all of these; looking for it took seconds.
        tuple(range((1 << 39) + 1, (1 << 39) + 2001, 2)),
    ],
    ids=["long", "many"],
)
def test_sizes_of_groups_that_no_weights_have_are_refused_or_left_out(sizes: tuple[int, ...]) -> None:
    """The weights of one model may be anybody's: they must not end the plans of all others."""
    groups = [{**group(4, "int", "group"), "weights": {**WEIGHTS, "group_size": size}} for size in sizes]
    answer = plan("1.24.1", model_config=stored("pack-quantized", *groups), tensor_parallel_size=2, max_model_len=8192)
    assert answer.get("refused_id") in (None, "scales_not_divisible")
    assert len(answer.get("refused", "")) < 600


def test_experts_of_the_common_width_are_shared_by_whole_blocks() -> None:
    # MiniMax-M2: experts as wide as intermediate_size says.
    config = {**MIXTRAL, "intermediate_size": 1536, "quantization_config": BLOCKS}
    eight = plan("1.24.1", model_config=config, tensor_parallel_size=8, max_model_len=8192)
    assert eight["refused_id"] == "expert_width_not_divisible"
    assert "refused" not in plan("1.24.1", model_config=config, tensor_parallel_size=4, max_model_len=8192)
    spread: dict[str, Any] = {"tensor_parallel_size": 8, "enable_expert_parallel": True}
    assert "refused" not in plan("1.24.1", model_config=config, max_model_len=8192, **spread)


def test_experts_in_modelopt_are_refused_where_the_plugin_raises() -> None:
    said = {"quant_method": "modelopt", "quant_algo": "FP8"}
    dense = plan("1.24.1", model_config={**LLAMA_70B, "quantization_config": said}, tensor_parallel_size=8)
    assert "refused" not in dense
    experts = plan("1.24.1", model_config={**MIXTRAL, "quantization_config": said}, tensor_parallel_size=8)
    assert experts["refused_id"] == "unsupported_quantization"
