"""Plans that public reports ask for: reported.json has each with its address and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all

from action_plugins.serving_plan import read_topology
from plugin_utils import releases
from tests.golden import canonical_plans
from tests.golden.serving_cases import vendor

ROOT = Path(__file__).resolve().parents[3]
CASES = {case["id"]: case for case in json.loads(Path(__file__).with_name("reported.json").read_text("utf-8"))}


def topology(name: str) -> Any:
    """A described machine; of first-generation cards the project describes none."""
    if name == "hl205":
        return canonical_plans.topology("HL-205")
    return read_topology(str(ROOT / "docs" / "examples" / "topologies" / f"{name}.yml"))


# Models of the kinds that were reported, with other cards and spellings: what becomes of each, as the id of its refusal
# and words of that or of a warning, such as the releases that are named. As in the reported cases, figures are
# approximate.
QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 5120,
    "num_hidden_layers": 64,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "intermediate_size": 27648,
    "max_position_embeddings": 32768,
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "max_position_embeddings": 163840,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
SPARSE = {**DEEPSEEK, "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_topk": 2048}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "intermediate_size": 2880,
    "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "mxfp4"},
}
NEXT = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 512,
    "moe_intermediate_size": 512,
    "full_attention_interval": 4,
    "max_position_embeddings": 262144,
}


def packed(bits: int, activations: int | None, form: str) -> dict[str, Any]:
    """Whole numbers of compressed-tensors."""
    weights = {"num_bits": bits, "type": "int", "strategy": "channel" if activations else "group", "group_size": 128}
    inputs = {"num_bits": activations, "type": "int", "strategy": "token", "dynamic": True} if activations else None
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}}


FP8 = ("unsupported_quantization", "1.23, 1.24 or 1.24.1")
NONE = ("unsupported_quantization", "No other release")
OAM2, OAM3, PCIE = "hl-225-two-sockets", "hl-325l-two-sockets", "hl-288e-mixed-slots"
VARIATIONS = (
    ("1.22", OAM2, {**QWEN, "quantization_config": packed(8, 8, "int-quantized")}, "unsupported_quantization", "1.24"),
    ("1.21", PCIE, {**QWEN, "compression_config": packed(8, 8, "int-quantized")}, "unsupported_quantization", "1.24"),
    (
        "1.22",
        OAM3,
        {**QWEN, "quantization_config": packed(4, None, "pack-quantized")},
        "unsupported_quantization",
        "1.23",
    ),
    ("1.23", OAM3, {**QWEN, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, None, ""),
    ("1.22", OAM2, {**QWEN, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, *FP8),
    ("1.24.1", OAM3, {**QWEN, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, *NONE),
    ("1.23", OAM3, SPARSE, "unsupported_feature", "1.24.1"),
    ("1.24", OAM2, SPARSE, "unsupported_feature", "1.24.1"),
    ("1.24.1", OAM3, SPARSE, None, "dense attention takes its place"),
    ("1.23", PCIE, NEXT, "unsupported_feature", "1.24.1"),
    ("1.24", PCIE, NEXT, None, ""),
    ("1.24.1", OAM2, GPT_OSS, "unsupported_generation", ""),
    ("1.24.1", OAM3, GPT_OSS, None, ""),
    ("1.22", OAM2, {**DEEPSEEK, "model_type": "kimi_k2"}, None, "Use release 1.24 or 1.24.1."),
    ("deepseek-r1", OAM2, DEEPSEEK, None, "may not know, and no code"),
)


@pytest.mark.parametrize(("release", "cards", "config", "refused", "words"), VARIATIONS)
def test_models_of_a_reported_kind_become_what_the_reported_one_does(
    release: str, cards: str, config: dict[str, Any], refused: str | None, words: str
) -> None:
    catalogue = Catalogue.from_mappings(
        releases.read(release),
        {},
        vendor.content("", "cards"),
        [releases.read(name) for name in releases.names() if name != release],
    )
    options = {"tensor_parallel_size": 4 if config is NEXT else 8, "max_model_len": 8192}
    (answer,) = plan_all(
        [{"weights": "/data/models/X", "model_config": config, **options}],
        catalogue,
        topology(cards),
        weights_root="/data/models",
    )
    assert answer.get("refused_id") == refused, answer.get("refused")
    assert words in (answer["refused"] if refused else " ".join(answer["warnings"]))


@pytest.mark.parametrize("words", [["--pipeline_parallel_size=2"], ["-pp", "2"], ["-n", "2"], ["--nnodes", "2"]])
def test_an_instance_over_two_nodes_is_refused_by_any_spelling(words: list[str]) -> None:
    made = vendor.plan_request("1.24.1", {"model": "llama-3.3-70b-instruct", "extra_args": words})
    assert "an instance over two nodes is only planned" in made["refused"]


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_reported_plan_becomes_what_the_pinned_code_makes_of_it(name: str) -> None:
    case = CASES[name]
    request, expected = case["request"], case["expected"]
    catalogue = vendor.catalogue(case["release"], request.get("model"))
    (answer,) = plan_all(
        [vendor.said_openly(request)], catalogue, topology(case["topology"]), weights_root="/data/models"
    )
    assert answer.get("refused_id") == expected.get("refused"), answer.get("refused", answer.get("warnings"))
    if "refused" in expected:
        return
    assert expected.get("warned", "") in " ".join(answer["warnings"])
    option, value = expected.get("argument", ("--not-asked", None))
    assert vendor.options(answer["arguments"]).get(option.replace("_", "-")) == value
    variable, value = expected.get("variable", (None, None))
    assert answer["environment"].get(variable) == value
