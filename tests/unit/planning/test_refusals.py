"""Rules beyond the scripts: each with its refusal, its warning, or both sides of its limit."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.absent import NEURON, OFFLINE, TPU, TWO_NODES, MissingFeature
from ansible.module_utils.gaudi.calibration import run as calibration
from ansible.module_utils.gaudi.model.headers import Weights
from ansible.module_utils.gaudi.pages.page import page
from ansible.module_utils.gaudi.planning.arguments import FIXED, OPTIONS, OWNED, SECRETS, media_limits
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.planning.network import Network, read_addresses
from ansible.module_utils.gaudi.planning.network import network as network_of_script

from plugin_utils import releases
from tests.golden import canonical_plans
from tests.golden.serving_cases import vendor

LLAMA_70B = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
}
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "max_position_embeddings": 32768,
    "vocab_size": 32000,
}
GIB = 1 << 30


def plan(release: str = "1.22", where: str = "oam8", files: Weights | None = None, **options: Any) -> dict[str, Any]:
    model = options.get("model")
    request = options if model else {"weights": "/models/something", **options}
    answers: list[dict[str, Any]] = plan_all(
        [vendor.said_openly(request)],
        vendor.catalogue(release, model if model in vendor.MODELS else None),
        vendor.topology(where),
        weights_root="/data/models",
        read_weights=(lambda _path: files) if files is not None else None,
    )
    return answers[0]


def sentence(*words: str, **given: Any) -> None:
    """The plan is refused, in one sentence with these words."""
    answer = plan(**given)
    assert "refused" in answer, answer.get("warnings")
    for word in words:
        assert word in answer["refused"], answer["refused"]


def argument(answer: dict[str, Any], name: str) -> str:
    """The value of an argument of the plan."""
    assert "refused" not in answer, answer["refused"]
    words: list[str] = answer["arguments"]
    return words[words.index(name) + 1]


def warned(answer: dict[str, Any], *words: str) -> bool:
    assert "refused" not in answer, answer
    return any(all(word in text for word in words) for text in answer["warnings"])


def test_cards_divide_the_attention_heads() -> None:
    sentence("tensor_parallel_size is 3", "64", "1, 2, 4 or 8", model_config=LLAMA_70B, tensor_parallel_size=3)
    assert "refused" not in plan(model_config=LLAMA_70B, tensor_parallel_size=4)
    # Nothing is known of the model: nothing is refused.
    assert "refused" not in plan(tensor_parallel_size=3)


def test_every_card_has_a_key_value_head() -> None:
    config = {**LLAMA_70B, "num_attention_heads": 48, "num_key_value_heads": 6}
    sentence("tensor_parallel_size is 8", "num_key_value_heads", "6", model_config=config, tensor_parallel_size=8)
    assert "refused" not in plan(model_config=config, tensor_parallel_size=6)
    # Phi-4 has ten key-value heads.
    phi = {**LLAMA_70B, "num_attention_heads": 40, "num_key_value_heads": 10}
    sentence("10 key-value heads", "to 1 or 2.", model_config=phi, tensor_parallel_size=4)
    assert "refused" not in plan(model_config=phi, tensor_parallel_size=5)
    # Eight cards have four heads twice.
    assert "refused" not in plan(model_config={**LLAMA_70B, "num_key_value_heads": 4}, tensor_parallel_size=8)


@pytest.mark.parametrize("release", ["1.16", "1.18", "1.21", "1.24.1"])
def test_old_releases_have_attention_for_some_sizes_of_heads(release: str) -> None:
    config = {**LLAMA_70B, "hidden_size": 3840, "num_attention_heads": 32}
    answer = plan(release, model_config=config, tensor_parallel_size=8, max_model_len=2048)
    old = release in ("1.16", "1.18")
    assert (answer.get("refused_id") == "unsupported_head_size") is old, answer.get("refused")
    named = {**config, "head_dim": 128}
    assert "refused" not in plan(release, model_config=named, tensor_parallel_size=8, max_model_len=2048)


def test_latent_attention_is_not_divided() -> None:
    answer = plan("deepseek-r1", model="deepseek-r1-0528")
    assert "refused" not in answer


@pytest.mark.parametrize("release", ["1.21", "1.22", "1.22-2025.11"])
def test_the_model_length_holds_input_and_output(release: str) -> None:
    ranges: dict[str, Any] = {"input_range": [4, 6000], "output_range": [4, 2000], "max_num_batched_tokens": 16384}
    sentence("max_model_len", "6000 + 2000 = 8000", release=release, max_model_len=7000, **ranges)
    assert not warned(plan(release, max_model_len=9000, **ranges), "chat template")
    exact: dict[str, Any] = {**ranges, "input_range": [4, 6192]}
    assert warned(plan(release, max_model_len=8192, **exact), "chat template")


def test_default_ranges_above_a_given_length_are_only_a_warning() -> None:
    assert warned(plan("1.21", max_model_len=8192), "18432")


def test_the_models_own_limit() -> None:
    config = {**LLAMA_70B, "max_position_embeddings": 8192}
    sentence("max_model_len is 16384", "8192", model_config=config, max_model_len=16384)
    assert "refused" not in plan(model_config=config, max_model_len=8192)
    stretched = plan(model_config=config, max_model_len=16384, extra_args=["--rope-scaling", '{"factor":4.0}'])
    assert "refused" not in stretched


@pytest.mark.parametrize("release", ["1.22", "1.22-2025.11"])
@pytest.mark.parametrize("wish", [{"max_model_len": 1000}, {"input_range": [4, 900], "output_range": [4, 100]}])
def test_rounding_does_not_go_beyond_the_models_own_limit(release: str, wish: dict[str, Any]) -> None:
    """The server refuses to start above it; buckets are whole blocks all the same."""
    config = {**LLAMA_70B, "max_position_embeddings": 1000}
    answer = plan(release, model_config=config, **wish)
    assert argument(answer, "--max-model-len") == "1000"
    assert argument(answer, "--max-num-batched-tokens") == "2048"
    assert all(length % 128 == 0 for length in answer["buckets"]["prompt_seq"])
    assert answer["buckets"]["prompt_seq"][-1] >= 900
    # Where there is room, the length is whole blocks as ever.
    roomy = plan(release, model_config={**config, "max_position_embeddings": 1024}, **wish)
    assert argument(roomy, "--max-model-len") == "1024"
    sentence("1001 (1024 in whole blocks)", "1000", release=release, model_config=config, max_model_len=1001)


@pytest.mark.parametrize(
    ("model", "most", "beyond"),
    [("bge-reranker-large", 512, 513), ("bge-reranker-large", 512, 514), ("bge-m3", 8192, 8194)],
)
def test_two_positions_of_a_roberta_are_not_for_tokens(model: str, most: int, beyond: int) -> None:
    assert argument(plan(model=model, max_model_len=most), "--max-model-len") == str(most)
    sentence(f"max_model_len is {beyond}", f"made for {most} positions", model=model, max_model_len=beyond)
    config = {**LLAMA_70B, "model_type": "xlm-roberta", "max_position_embeddings": 514}
    sentence("max_model_len is 514", "made for 512 positions", model_config=config, max_model_len=514)


def test_the_limit_of_deepseek_is_the_models() -> None:
    config = {**LLAMA_70B, "model_type": "deepseek_v3", "num_attention_heads": 128, "num_key_value_heads": 128}
    for known in ({"model_config": config}, {"weights": "/models/DeepSeek-R1-0528"}):
        for release in ("1.21", "1.22", "1.22-2025.11", "deepseek-r1"):
            tokens = {"max_num_batched_tokens": 65536} if release == "1.21" else {}
            sentence("max_model_len is 40064", "32768 tokens", release=release, max_model_len=40064, **tokens, **known)
    distilled = "/models/DeepSeek-R1-Distill-Qwen-1.5B"
    assert "refused" not in plan(weights=distilled, max_model_len=40064)


@pytest.mark.parametrize("release", ["deepseek-r1", "deepseek-r1-2025.11"])
def test_deepseek_on_one_node(release: str) -> None:
    assert "refused" not in plan(release, max_model_len=32768)
    sentence("max_model_len is 32769", "32768", release=release, max_model_len=32769)
    sentence("tensor_parallel_size is 4", "8 cards", release=release, tensor_parallel_size=4)
    assert plan(release, tensor_parallel_size=8)["environment"]["HABANA_VISIBLE_DEVICES"] == "ALL"


def test_what_vllm_would_refuse_after_loading() -> None:
    sentence("max_num_batched_tokens is 4096", "8192", release="1.21", max_model_len=8192, max_num_batched_tokens=4096)
    sentence("max_num_batched_tokens is 20480", "40960", release="1.21", max_model_len=40960)
    sentence("max_num_seqs 4096", max_num_seqs=4096, max_model_len=128)


@pytest.mark.parametrize("release", [name for name in releases.names() if name != "1.21"])
def test_float16_is_refused_where_it_is_not_served_as_such(release: str) -> None:
    sentence("float16", "bfloat16", release=release, dtype="float16")


def test_float16_is_passed_on_by_the_script_of_1_21() -> None:
    made = plan(release="1.21", dtype="float16")
    assert made["arguments"][made["arguments"].index("--dtype") + 1] == "float16"
    assert made["memory"] == plan(release="1.21", dtype="bfloat16")["memory"]
    sentence("half", "float16", release="1.21", dtype="half")


def test_experts_decide_about_expert_parallelism() -> None:
    assert "--enable-expert-parallel" in plan(model_config=MIXTRAL, tensor_parallel_size=2)["arguments"]
    assert "--enable-expert-parallel" not in plan(model_config=LLAMA_70B, tensor_parallel_size=4)["arguments"]
    named: dict[str, Any] = {
        "weights": "/models/Mixtral-of-nothing",
        "model_config": LLAMA_70B,
        "tensor_parallel_size": 4,
    }
    assert "--enable-expert-parallel" not in plan(**named)["arguments"]
    assert "--enable-expert-parallel" in plan()["arguments"]


@pytest.mark.parametrize(
    ("release", "config", "value"),
    [
        ("1.22", {"hidden_size": 3584, "num_hidden_layers": 28}, "true"),
        ("1.22", {"hidden_size": 5120, "num_hidden_layers": 64}, None),
        ("1.21", {"hidden_size": 5120, "num_hidden_layers": 64}, "false"),
        ("1.21", {"hidden_size": 5120, "num_hidden_layers": 48}, "false"),
        ("1.21", {"hidden_size": 3584, "num_hidden_layers": 28}, None),
        ("1.21", {"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36}, "false"),
        ("1.21", {"model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36}, None),
        ("1.21", {"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48}, "false"),
        ("1.21", {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32}, "false"),
        # Llama 2 has the shape of Llama 3.1 8B, but no grouped heads.
        (
            "1.21",
            {
                "model_type": "llama",
                "hidden_size": 4096,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 32,
            },
            None,
        ),
    ],
)
def test_softmax_by_type_and_size(release: str, config: dict[str, Any], value: str | None) -> None:
    shape = {**LLAMA_70B, "model_type": "qwen2", **config}
    answer = plan(release, model_config=shape, weights="/models/called-anything")
    assert answer["environment"].get("VLLM_FP32_SOFTMAX") == value
    asked = plan(release, model_config=shape, fp32_softmax=value != "true")
    assert asked["environment"]["VLLM_FP32_SOFTMAX"] == ("false" if value == "true" else "true")


def test_a_multimodal_configuration_is_read_where_it_is() -> None:
    inner = {key: value for key, value in MIXTRAL.items() if key != "model_type"}
    config = {"model_type": "some_vl", "text_config": {**inner, "num_local_experts": None, "num_experts": 64}}
    assert "--enable-expert-parallel" in plan(model_config=config)["arguments"]
    thinker = {"model_type": "some_omni", "thinker_config": {"text_config": inner}}
    assert "--enable-expert-parallel" in plan(model_config=thinker)["arguments"]


def test_weights_that_do_not_fit() -> None:
    heavy = Weights(bytes=140 * GIB)
    sentence("140.0 GiB of weights per card", "Set tensor_parallel_size to 2, 4 or 8.", files=heavy)
    answer = plan(files=heavy, tensor_parallel_size=2)
    assert answer["memory"]["weights_gib_per_card"] == 70.0
    assert answer["memory"]["fits"] is True
    sentence("more or larger cards", files=Weights(bytes=4000 * GIB))


def test_a_kv_cache_too_small_for_one_request() -> None:
    tight: dict[str, Any] = {"files": Weights(bytes=92 * GIB), "model_config": {**LLAMA_70B, "num_key_value_heads": 64}}
    sentence("KV cache would hold", "max_model_len 16384", max_model_len=16384, **tight)
    assert "refused" not in plan(max_model_len=128, **tight)


def test_calibrated_fp8_halves_what_lies_on_the_card() -> None:
    read = Weights(bytes=140 * GIB, parameters={"BF16": 70 * GIB})
    answer = plan(files=read, tensor_parallel_size=1, quantization_config="/calib/q.json")
    assert answer["memory"]["weights_gib_per_card"] == 70.0


def test_missing_shards_are_named() -> None:
    read = Weights(missing=tuple(f"model-{number}.safetensors" for number in range(5)))
    sentence("model-0.safetensors", "and 2 more", "Fetch", files=read)


def test_unconverted_fp8_is_not_served_on_gaudi2() -> None:
    raw = Weights(bytes=600 * GIB, parameters={"F8_E4M3": 600 * GIB})
    sentence("fp8.json", "Convert", release="deepseek-r1", model="deepseek-r1-0528", files=raw)
    done = Weights(bytes=600 * GIB, parameters={"F8_E4M3": 600 * GIB}, converted=True)
    assert "refused" not in plan("deepseek-r1", model="deepseek-r1-0528", files=done)


@pytest.mark.parametrize("release", ["1.22", "1.22-2025.11"])
def test_converted_weights_are_not_scaled_twice(release: str) -> None:
    variable = "VLLM_HPU_CONVERT_TO_FP8UZ"
    parameters = {"F8_E4M3": GIB, "BF16": 100}
    raw, done = (Weights(bytes=GIB, parameters=parameters, converted=converted) for converted in (False, True))
    assert plan(release, weights="/m/x", files=done)["environment"][variable] == "false"
    # The server has to scale these itself.
    assert variable not in plan(release, weights="/m/x", files=raw)["environment"]
    said = plan(release, weights="/m/x", files=done, extra_environment={variable: "true"})
    assert said["environment"][variable] == "true"


@pytest.mark.parametrize("release", ["1.22", "1.22-2025.11"])
@pytest.mark.parametrize(
    ("card", "converted"), [("HL-225", True), ("HL-288", True), ("HL-288E", True), ("HL-325", False)]
)
def test_the_coder_is_served_with_1_22_and_scaled_once(release: str, card: str, *, converted: bool) -> None:
    topology = json.loads(json.dumps(vendor.topology("oam8")).replace("HL-225", card))
    request = vendor.said_openly({"model": "qwen3-coder-480b-a35b-instruct-fp8"})
    (answer,) = plan_all([request], vendor.catalogue(release, request["model"]), topology, weights_root="/data/models")
    environment = answer["environment"]
    assert environment.get("VLLM_HPU_CONVERT_TO_FP8UZ") == ("false" if converted else None)
    assert environment["VLLM_DISABLE_MARK_SCALES_AS_CONST"] == "true"
    assert answer["requires"]["weights_path"].endswith("-G2") is converted
    assert answer["requires"]["measurements"]["files"] == 24


def test_a_release_that_scales_nothing_is_told_nothing() -> None:
    done = Weights(bytes=600 * GIB, parameters={"F8_E4M3": 600 * GIB}, converted=True)
    assert "VLLM_HPU_CONVERT_TO_FP8UZ" not in plan("deepseek-r1", model="deepseek-r1-0528", files=done)["environment"]


def test_a_release_that_may_not_scale_is_spoken_of() -> None:
    raw = Weights(bytes=GIB, parameters={"F8_E4M3": GIB, "BF16": 100})
    assert warned(plan("1.21", weights="/m/x", files=raw), "not known to scale")
    assert not warned(plan("1.22", weights="/m/x", files=raw), "not known to scale")
    assert not warned(plan("1.21", weights="/m/x", files=Weights(parameters={"BF16": 100})), "not known to scale")


def test_measurements_that_were_made_for_another_factor_are_refused() -> None:
    half = Weights(bytes=600 * GIB, parameters={"F8_E4M3": 600 * GIB}, converted=True, fits_published=False)
    sentence("another factor than 240/448", "--exact-half", release="deepseek-r1", model="deepseek-r1-0528", files=half)
    # Without measurement files it does not matter.
    small = Weights(bytes=GIB, parameters={"F8_E4M3": GIB}, converted=True, fits_published=False)
    assert "refused" not in plan("1.22", weights="/m/x", files=small)


def test_what_was_measured_on_gaudi3_is_looked_for_under_its_name() -> None:
    gaudi2 = vendor.topology("oam8")
    gaudi3 = json.loads(json.dumps(gaudi2).replace("HL-225", "HL-325L"))
    for release in ("1.21", "1.22", "1.22-2025.11"):
        for topology, name in ((gaudi2, "g2"), (gaudi3, "g3")):
            wish = [{"weights": "/m/x", "dtype": "fp8"}]
            (answer,) = plan_all(wish, vendor.catalogue(release), topology, weights_root="/w")
            assert answer["environment"]["QUANT_CONFIG"].endswith(f"/maxabs_quant_{name}.json"), answer
            options = calibration.Options(512, "", "/opt/vllm-hpu-extension/calibration")
            measured = calibration.describe({**answer, "instance": "x"}, options)
            assert measured["written"] == [f"maxabs_quant_{name}.json"]
            assert measured["expected"][0].startswith(f"{name}/inc_output_hooks_maxabs_0_")


def test_published_fp8_is_refused_on_gaudi2_and_served_on_gaudi3() -> None:
    raw = Weights(bytes=30 * GIB, parameters={"F8_E4M3": 30 * GIB})
    name = "qwen3-vl-30b-a3b-instruct-fp8-g2-dynamic"
    gaudi2 = vendor.topology("oam8")
    gaudi3 = json.loads(json.dumps(gaudi2).replace("HL-225", "HL-325L"))
    found = vendor.catalogue("1.22-2025.11", name)
    for topology, refused in ((gaudi2, True), (gaudi3, False)):
        (answer,) = plan_all([{"model": name}], found, topology, weights_root="/w", read_weights=lambda _path: raw)
        assert ("holds FP8 weights without .gaudi-serving/fp8.json" in answer.get("refused", "")) == refused, answer


@pytest.mark.parametrize("where", ["pcie8", "gaudi2e-doc"])
@pytest.mark.parametrize("options", [{"tensor_parallel_size": 8}, {"modules": [3, 4]}])
def test_pcie_cards_of_two_groups_talk_over_the_host_or_over_verified_nics(where: str, options: Any) -> None:
    without = vendor.plan_request("1.22", {"weights": "/models/x", **options}, where)
    assert without["requires"]["host_nics"] is False
    assert warned(without, "about 18 GB/s", "fabric_check_host_nics")
    over = vendor.plan_request("1.22", {"weights": "/models/x", **options}, where, host_nics=True)
    assert over["requires"]["host_nics"] is True
    assert warned(over, "libfabric")


@pytest.mark.parametrize("where", ["pcie8", "gaudi2e-doc", "oam8"])
def test_cards_of_one_group_have_their_own_links(where: str) -> None:
    request = {"weights": "/models/x", "tensor_parallel_size": 8 if where == "oam8" else 4}
    for host_nics in (True, False):
        answer = vendor.plan_request("1.22", request, where, host_nics=host_nics)
        assert answer["requires"]["host_nics"] is False
        assert not warned(answer, "groups only")


@pytest.mark.parametrize("card", ["HL-225", "HL-288E", "HL-325"])
@pytest.mark.parametrize("host_nics", [True, False])
def test_fp8_above_300_b_needs_host_nics_on_pcie_cards_only(card: str, host_nics: bool) -> None:
    name = "qwen3-coder-480b-a35b-instruct-fp8"
    found = vendor.catalogue("1.24.1", name)
    answer = plan_all(
        [{"model": name}], found, canonical_plans.topology(card), weights_root="/data/models", host_nics=host_nics
    )[0]
    assert answer["requires"]["host_nics"] is (card == "HL-288E")
    # With the option set there is nothing left to warn of.
    assert warned(answer, "300 B") is (card == "HL-288E" and not host_nics)


@pytest.mark.parametrize("release", ["1.16", "1.18"])
@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"dtype": "fp8"}, "quantisation"),
        ({"dtype": "awq"}, "quantisation"),
        ({"quantization_config": "/calib/q.json"}, "quantisation"),
        ({"kv_cache_dtype": "fp8"}, "quantisation"),
        ({"extra_args": ["--quantization", "gptq"]}, "quantisation"),
        ({"model_config": {**LLAMA_70B, "quantization_config": {"quant_method": "fp8"}}}, "quantisation"),
        ({"extra_args": ["--enable-lora"]}, "LoRA"),
        ({"extra_args": ["--lora-modules", "a=b"]}, "LoRA"),
        ({"extra_args": ["--enable_chunked_prefill"]}, "chunked prefill"),
        ({"extra_args": ["--use-beam-search"]}, "beam search"),
    ],
)
def test_what_the_old_releases_do_not_support(release: str, options: dict[str, Any], word: str) -> None:
    sentence(word, release=release, **options)


def stored(method: object) -> dict[str, Any]:
    return {"model_config": {**LLAMA_70B, "quantization_config": {"quant_method": method}}}


@pytest.mark.parametrize("release", ["1.16", "1.18"])
@pytest.mark.parametrize("method", ["awq", "gptq", "bitsandbytes", "fp8", "compressed-tensors", "AWQ"])
def test_quantised_weights_where_quantisation_is_not_supported(release: str, method: str) -> None:
    sentence("stored quantised", method.lower(), release=release, **stored(method))
    sentence("stored quantised", "awq", release=release, weights="/models/Llama-2-7B-AWQ")


@pytest.mark.parametrize(
    ("release", "method", "served"),
    [
        ("1.21", "bitsandbytes", False),
        # supported_quantization of its platform names it, and its tests load it.
        ("1.22", "bitsandbytes", True),
        ("1.22", "aqlm", False),
        ("1.22", "fbgemm_fp8", False),
        ("1.22", "compressed_tensors", True),
        ("1.21", "fp8", True),
        ("deepseek-r1", "compressed-tensors", False),
        ("deepseek-r1", "awq", False),
    ],
)
def test_a_release_serves_the_methods_it_has(release: str, method: str, served: bool) -> None:
    if served:
        assert "refused" not in plan(release, **stored(method))
    else:
        sentence(f"stored in {method}", release, release=release, **stored(method))


@pytest.mark.parametrize("release", ["1.21", "1.22", "1.22-2025.11"])
@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_the_data_type_goes_with_the_weights(release: str, method: str) -> None:
    other = {"awq": "gptq", "gptq": "awq"}[method]
    wishes: tuple[dict[str, Any], ...] = ({}, {"dtype": method})
    for wish in wishes:
        assert argument(plan(release, **stored(method), **wish), "--quantization") == f"{method}_hpu"
    assert argument(plan(release, weights=f"/models/Qwen2.5-32B-{method}-Int4"), "--quantization") == f"{method}_hpu"
    for dtype in ("bfloat16", "auto", "fp8"):
        sentence(f"stored in {method}", f"dtype is {dtype}", release=release, **stored(method), dtype=dtype)
    sentence(f"dtype is {other}", f"stored as {method}", release=release, **stored(method), dtype=other)
    sentence(f"dtype is {method}", "without quantisation", release=release, model="qwen3-8b", dtype=method)
    sentence(f"dtype is {method}", "without quantisation", release=release, model_config=LLAMA_70B, dtype=method)


@pytest.mark.parametrize("config", ["awq", {"bits": 4}, {"quant_method": 4}])
def test_a_quantisation_nobody_can_read(config: object) -> None:
    sentence("quantization_config", "quant_method", model_config={**LLAMA_70B, "quantization_config": config})


def test_awq_needs_an_argument_that_the_deepseek_script_does_not_pass() -> None:
    sentence("dtype is awq", "deepseek-r1", release="deepseek-r1", dtype="awq")


@pytest.mark.parametrize("release", ["1.21", "1.22", "1.22-2025.11", "deepseek-r1", "deepseek-r1-2025.11"])
@pytest.mark.parametrize("argument", ["--enable-chunked-prefill", "--enable_chunked_prefill", "--use-beam-search"])
def test_what_the_later_releases_do_not_support_either(release: str, argument: str) -> None:
    sentence("not supported by this release", release=release, extra_args=[argument])
    assert "refused" not in plan(release, extra_args=["--no-enable-chunked-prefill"])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"extra_args": ["--data-parallel-address", "10.0.0.2"]}, TWO_NODES),
        ({"extra_args": ["--nnodes", "2"]}, TWO_NODES),
        ({"tensor_parallel_size": 16}, TWO_NODES),
        ({"extra_environment": {"RAY_ADDRESS": "10.0.0.2:6379"}}, TWO_NODES),
        ({"extra_args": ["run-batch", "-i", "x"]}, OFFLINE),
        ({"extra_args": ["--override-neuron-config", "{}"]}, NEURON),
        ({"extra_args": ["--device=tpu"]}, TPU),
        ({"extra_environment": {"VLLM_TARGET_DEVICE": "tpu"}}, TPU),
    ],
)
def test_what_the_manuals_have_and_nobody_built_is_said(options: dict[str, Any], part: MissingFeature) -> None:
    sentence(part.sentence, **options)


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_a_server_may_be_kept_from_asking_a_hub(variable: str) -> None:
    assert plan(extra_environment={variable: "1"})["environment"][variable] == "1"


def test_more_than_one_node_is_offered_to_nobody() -> None:
    longer = {"model": "deepseek-r1-0528", "release": "deepseek-r1", "max_model_len": 65536}
    sentence(
        f"32768 tokens at most (the help of the DeepSeek releases' own script). {TWO_NODES.sentence}",
        "Set max_model_len to 32768.",
        **longer,
    )
    for argument in ("--pipeline-parallel-size", "--data-parallel-size"):
        sentence("Use the option tensor_parallel_size", extra_args=[argument, "2"])


def test_alibi_on_1_16_only() -> None:
    bloom = {**LLAMA_70B, "model_type": "bloom"}
    sentence("ALiBi", release="1.16", model_config=bloom, tensor_parallel_size=8, max_model_len=2048)
    assert "refused" not in plan("1.18", model_config=bloom, tensor_parallel_size=8, max_model_len=2048)
    # Nothing is known but the name.
    for name in ("bloom-7b1", "BLOOMZ-560m", "mpt-7b"):
        sentence("ALiBi", release="1.16", weights=f"/models/{name}", max_model_len=2048)
    assert "refused" not in plan("1.16", weights="/models/prompt-guard", max_model_len=2048)


@pytest.mark.parametrize(
    ("release", "options"),
    [
        ("1.18", {"input_range": [1, 2]}),
        ("1.18", {"padding_limit": 0.25}),
        ("1.21", {"padding_limit": 0.25}),
        ("1.22", {"partial_warmup": {"max_num_seqs": 1, "max_seq_len": 128}}),
        ("deepseek-r1", {"input_range": [1, 2]}),
        ("deepseek-r1", {"scheduler_steps": 2}),
    ],
)
def test_an_option_without_effect_is_refused(release: str, options: dict[str, Any]) -> None:
    sentence(next(iter(options)), "without effect", release=release, **options)


@pytest.mark.parametrize("release", ["1.16", "1.18", "deepseek-r1"])
@pytest.mark.parametrize("words", [["--num-scheduler-steps", "4"], ["--num_scheduler_steps=4"]])
def test_an_option_without_effect_is_refused_as_an_argument_too(release: str, words: list[str]) -> None:
    sentence("scheduler_steps", "without effect", release=release, extra_args=words)


def test_no_reason_denies_what_another_model_is_served_with() -> None:
    """Qwen3-Coder-480B is served by measurement files on 1.22."""
    for release in ("1.22", "1.22-2025.11"):
        coder = vendor.plan_request(release, {"model": "qwen3-coder-480b-a35b-instruct-fp8"})
        assert coder["requires"]["measurements"]["files"] == 24
        reasons = [vendor.content("models", model).get("unsupported", {}).get(release, "") for model in vendor.MODELS]
        assert not [reason for reason in reasons if "no measurement files" in reason]


@pytest.mark.parametrize(
    ("model", "release", "why"),
    [
        ("deepseek-r1-0528", "1.22", "does not read VLLM_REQUANT_FP8_INC"),
        ("deepseek-r1-671b", "1.22-2025.11", "does not read VLLM_REQUANT_FP8_INC"),
        ("qwen3-coder-480b-a35b-instruct-fp8", "deepseek-r1", "has no Qwen3MoeForCausalLM"),
        ("qwq-32b-long-context", "1.22", "partial warm-up"),
        ("qwen3-vl-30b-a3b-instruct-fp8-g2-dynamic", "1.22", "reads no quant_scheme and takes the scales for those"),
    ],
)
def test_a_release_a_model_is_known_to_fail_with(model: str, release: str, why: str) -> None:
    title = vendor.content("models", model)["title"]
    sentence(f"{title} is not served with release {release}", why, release=release, model=model)


def test_a_release_nobody_tried_a_model_with_is_the_first_warning() -> None:
    answer = plan("1.21", model="bge-m3", max_num_batched_tokens=20480)
    known = "The model bge-m3 is known to be served with release 1.22, 1.22-2025.11"
    assert answer["warnings"][0] == f"{known}; nobody is known to have tried 1.21."
    assert not warned(plan("1.22", model="bge-m3"), "known to be served")


def test_no_release_is_both_tried_and_known_to_fail(subtests: pytest.Subtests) -> None:
    for model in sorted(vendor.MODELS):
        with subtests.test(model=model):
            entry = vendor.content("models", model)
            assert not set(entry["releases"]) & set(entry.get("unsupported", {}))


@pytest.mark.parametrize(
    ("partial", "word"),
    [
        ({"max_num_seqs": 33, "max_seq_len": 4096}, "max_num_seqs"),
        ({"max_num_seqs": 8, "max_seq_len": 20000}, "max_seq_len"),
        ({"max_num_seqs": 8}, "max_seq_len"),
        ({"max_num_seqs": 8, "max_seq_len": 4096, "x": 1}, "x"),
    ],
)
def test_a_partial_warm_up_stays_within_the_service(partial: dict[str, int], word: str) -> None:
    sentence("partial_warmup", word, release="1.21", partial_warmup=partial)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_num_seqs": 0}, ["max_num_seqs", "1 to 4096"]),
        ({"tensor_parallel_size": "two"}, ["tensor_parallel_size", "'two'"]),
        ({"port": 70000}, ["port", "65535"]),
        ({"port": ""}, ["port"]),
        ({"host": "8000"}, ["host", "address"]),
        ({"host": "10.99.0.1"}, ["host", "10.20.0.11 (eth0)"]),
        ({"node_address": "0.0.0.0"}, ["node_address"]),
        ({"node_address": "10.99.0.1"}, ["node_address", "10.20.0.11 (eth0)"]),
        ({"max_seq_len_to_capture": 2047}, ["max_seq_len_to_capture", "2048"]),
        ({"gpu_memory_utilization": 1.1}, ["gpu_memory_utilization", "1.0"]),
        ({"padding_limit": 0.6}, ["padding_limit", "0.5"]),
        ({"padding_limit": ".5"}, ["padding_limit", "0.25"]),
        ({"input_range": [800, 4]}, ["input_range", "Swap"]),
        ({"input_range": [0, 4]}, ["input_range", "1 to"]),
        ({"max_model_len": 0}, ["max_model_len"]),
        ({"dtype": "int3"}, ["dtype", "bfloat16"]),
        ({"instance": "Has_Capitals"}, ["instance"]),
        ({"recipe_cache": {"size": 5}}, ["recipe_cache", "directory"]),
        ({"recipe_cache": "relative/path"}, ["recipe_cache", "absolute"]),
        ({"weights": "no-slash"}, ["weights", "hub id"]),
        ({"extra_args": "--seed 1"}, ["extra_args", "list"]),
        ({"extra_args": ["--no-such-option"]}, ["--no-such-option", "1.22"]),
        ({"extra_args": ["x"]}, ["extra_args", "no option"]),
        ({"extra_args": ["--pipeline-parallel-size", "2"]}, ["--pipeline-parallel-size", "tensor_parallel_size"]),
        ({"extra_args": ["-pp", "2"]}, ["-pp", "tensor_parallel_size"]),
        ({"extra_args": ["--data_parallel_size=2"]}, ["--data-parallel-size", "tensor_parallel_size"]),
        ({"extra_args": ["--seed", "1", "-dp=2"]}, ["-dp", "tensor_parallel_size"]),
        ({"extra_args": ["--device", "cuda"]}, ["--device", "hpu"]),
        ({"extra_args": ["--headless"]}, ["--headless", "one server"]),
        ({"extra_args": ["--quantization", "awq"]}, ["--quantization", "option dtype"]),
        ({"extra_args": ["-q", "awq"]}, ["-q", "option dtype"]),
        ({"extra_args": ["--seed"]}, ["--seed", "without a value"]),
        ({"extra_args": ["--seed", "--enable-lora"]}, ["--seed", "without a value"]),
        ({"extra_args": ["--seed", "abc"]}, ["--seed 'abc'", "a whole number"]),
        ({"extra_args": ["--seed="]}, ["--seed ''", "a whole number"]),
        ({"extra_args": ["--swap-space", "much"]}, ["--swap-space", "a number"]),
        ({"extra_args": ["--enable-lora", "yes"]}, ["--enable-lora", "takes none"]),
        ({"model": "no-such-model"}, ["no-such-model", "catalog/models"]),
        ({"dtype": "awq", "quantization_config": "/calib/q.json"}, ["quantization_config", "awq"]),
        ({"lazy_mode": "maybe"}, ["lazy_mode", "true or false"]),
        ({"extra_environment": {"PT_HPU_LAZY_MODE": "2"}}, ["PT_HPU_LAZY_MODE", "0, 1"]),
        ({"extra_environment": {"VLLM_PROMPT_SEQ_BUCKET_MAX": "x"}}, ["VLLM_PROMPT_SEQ_BUCKET_MAX", "number"]),
        ({"extra_environment": {"VLLM_PROMPT_SEQ_BUCKET_MAX": "64"}}, ["VLLM_PROMPT_SEQ_BUCKET_MIN is 128"]),
        ({"extra_environment": {"VLLM_DECODE_BS_BUCKET_LIMIT": "0.7"}}, ["VLLM_DECODE_BS_BUCKET_LIMIT", "0.5"]),
    ],
)
def test_every_option_has_a_type_and_a_range(options: dict[str, Any], words: list[str]) -> None:
    sentence(*words, **options)


@pytest.mark.parametrize(
    "words",
    [
        ["--seed", "7"],
        ["--seed=7"],
        ["--swap-space", "0.5"],
        ["--enable-lora", "--max-lora-rank", "64"],
        ["--no-enable-prefix-caching"],
        ["--use-padding-aware-scheduling", "true"],
        ["--tool-call-parser", "hermes", "--enable-auto-tool-choice"],
    ],
)
def test_arguments_of_the_right_shape_are_passed_on(words: list[str]) -> None:
    answer = plan(extra_args=words)
    assert "refused" not in answer, answer
    assert answer["arguments"][-len(words) :] == words


def test_a_quantisation_as_an_argument_does_not_replace_fp8() -> None:
    options = {"model": "qwq-32b", "dtype": "fp8", "extra_args": ["--quantization", "awq"]}
    sentence("--quantization", "option dtype", release="1.21", **options)


def test_execution_modes() -> None:
    assert plan()["execution_mode"] == "HPU graphs"
    assert plan(enforce_eager=True)["execution_mode"] == "PyTorch lazy mode"
    assert plan(lazy_mode=False)["execution_mode"] == "torch.compile"
    assert plan(lazy_mode=False, enforce_eager=True)["execution_mode"] == "PyTorch eager mode"
    assert warned(plan("1.18", lazy_mode=False), "experimental")
    assert "--enforce-eager" in plan(enforce_eager=True)["arguments"]


def test_the_knobs_of_the_documentation() -> None:
    environment = plan(
        "1.21",
        graph_reserved_mem=0.4,
        graph_prompt_ratio=0.2,
        graph_prompt_strategy="max_bs",
        graph_decode_strategy="min_tokens",
        exponential_bucketing=True,
        log_step_graph_compilation=True,
        log_step_graph_compilation_all=True,
        log_step_cpu_fallbacks=True,
        log_step_cpu_fallbacks_all=False,
        metrics_gc_details=True,
    )["environment"]
    expected = {
        "VLLM_GRAPH_RESERVED_MEM": "0.4",
        "VLLM_GRAPH_PROMPT_RATIO": "0.2",
        "VLLM_GRAPH_PROMPT_STRATEGY": "max_bs",
        "VLLM_GRAPH_DECODE_STRATEGY": "min_tokens",
        "VLLM_EXPONENTIAL_BUCKETING": "true",
        "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION": "true",
        "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION_ALL": "true",
        "VLLM_HPU_LOG_STEP_CPU_FALLBACKS": "true",
        "VLLM_HPU_LOG_STEP_CPU_FALLBACKS_ALL": "0",
        "PT_HPU_METRICS_GC_DETAILS": "1",
    }
    assert {name: environment[name] for name in expected} == expected


@pytest.mark.parametrize("release", ["1.22", "1.22-2025.11"])
@pytest.mark.parametrize(
    ("option", "value"),
    [("graph_prompt_ratio", 0.2), ("graph_prompt_strategy", "max_bs"), ("graph_decode_strategy", "min_tokens")],
)
def test_a_knob_that_a_release_took_away_is_refused_by_its_name(release: str, option: str, value: Any) -> None:
    variable = f"VLLM_{option.upper()}"
    sentence(f"{option} is without effect on release {release}", variable, release=release, **{option: value})
    # Whoever sets the variable itself is told that it is left out, as of any other that is not read.
    answer = plan(release, extra_environment={variable: str(value)})
    assert variable not in answer["environment"]
    assert warned(answer, f"extra_environment sets {variable}", "does not read")
    assert "refused" not in plan("1.21", **{option: value})


@pytest.mark.parametrize("option", ["graph_reserved_mem", "graph_prompt_ratio"])
def test_a_knob_that_a_release_does_not_have_yet_is_refused_by_its_name(option: str) -> None:
    sentence(f"{option} is without effect on release 1.16", release="1.16", max_model_len=4096, **{option: 0.2})


def test_a_server_without_buckets_is_promised_none() -> None:
    answer = plan("1.16", max_model_len=4096)
    # capture_model of vllm/worker/habana_model_runner.py at 14f489ea6: 20 of its batches are within 256 sequences, and
    # its lengths up to 2048 tokens are 1, 2, 4, 6, ... 16 blocks.
    assert answer["buckets"] == {
        "warmup": "graphs of decoding alone; prompts are not warmed up",
        "strategy": "none: release 1.16 has no buckets",
        "decode_bs": [1, 2, 4, 8, *range(16, 257, 16)],
        "decode_block": [1, 2, 4, 6, 8, 10, 12, 14, 16],
        "prompt_graphs": 0,
        "decode_graphs": 180,
        "graphs": 180,
    }
    (why,) = (item for item in answer["explain"] if item["value"] == "buckets")
    assert why["rule"] == "no-buckets"
    assert why["source"] == "vllm-fork 14f489ea6 vllm/worker/habana_model_runner.py capture_model"
    text = page([answer], None)
    assert "none: release 1.16 has no buckets" in text
    assert "graphs of decoding alone; prompts are not warmed up" in text
    assert plan("1.18", max_model_len=4096)["buckets"]["strategy"] == "linear"


@pytest.mark.parametrize(
    ("options", "graphs"),
    [
        ({"max_num_seqs": 4}, 3 * 9),
        # The longest of its lengths within 1000 tokens is 768: 1, 2, 4 and 6 blocks.
        ({"max_model_len": 1000}, 20 * 4),
        ({"max_seq_len_to_capture": 2048}, 20 * 9),
        ({"enforce_eager": True}, 0),
    ],
)
def test_what_a_server_without_buckets_captures(options: dict[str, Any], graphs: int) -> None:
    buckets = plan("1.16", **{"max_model_len": 4096, **options})["buckets"]
    assert (buckets["prompt_graphs"], buckets["decode_graphs"], buckets["graphs"]) == (0, graphs, graphs)
    assert ("skipped" in buckets["warmup"]) == (graphs == 0)


def test_the_development_endpoints_are_off_unless_asked_for() -> None:
    assert plan("1.22-2025.11")["environment"]["VLLM_SERVER_DEV_MODE"] == "0"
    asked = plan("1.22-2025.11", extra_environment={"VLLM_SERVER_DEV_MODE": "1"})
    assert asked["environment"]["VLLM_SERVER_DEV_MODE"] == "1"


def test_a_thinking_model_keeps_its_parser_on_the_deepseek_releases() -> None:
    thinking = plan("deepseek-r1", model="deepseek-r1-0528")["arguments"]
    assert thinking[thinking.index("--reasoning-parser") + 1] == "deepseek_r1"
    assert "--reasoning-parser" not in plan("deepseek-r1", weights="/models/DeepSeek-Coder-V2")["arguments"]


def with_parser(release: str) -> dict[str, Any]:
    """The plan of a model whose file names a parser."""
    entry = {**vendor.content("models", "qwq-32b"), "reasoning_parser": "deepseek_r1"}
    found = Catalogue.from_mappings(
        vendor.content("releases", release), {"qwq-32b": entry}, vendor.content("", "cards")
    )
    answers: list[dict[str, Any]] = plan_all(
        [{"model": "qwq-32b"}], found, vendor.topology("oam8"), weights_root="/data/models"
    )
    return answers[0]


@pytest.mark.parametrize("release", ["1.21", "1.22", "1.22-2025.11"])
def test_the_parser_of_a_models_file_counts_on_every_release_that_has_one(release: str) -> None:
    answer = with_parser(release)
    assert argument(answer, "--reasoning-parser") == "deepseek_r1"
    assert "--enable-reasoning" in answer["arguments"]
    # Nobody said that these think.
    silents: tuple[dict[str, Any], ...] = (
        {"model": "qwq-32b"},
        {"weights": "/models/DeepSeek-R1-Distill-Qwen-7B"},
    )
    for silent in silents:
        assert "--reasoning-parser" not in plan(release, **silent)["arguments"]


def test_a_release_without_parsers_says_so() -> None:
    answer = with_parser("1.18")
    assert warned(answer, "1.18 has no reasoning parser")
    assert "--reasoning-parser" not in answer["arguments"]


def test_a_config_goes_with_weights_only() -> None:
    sentence("model_config", "'qwen3-8b'", "catalog/models", model="qwen3-8b", model_config=LLAMA_70B)
    # Weights of one's own under a model's name may bring their own.
    both: dict[str, Any] = {"model": "qwen3-8b", "weights": "/models/tuned", "model_config": LLAMA_70B}
    assert "refused" not in plan(**both)


def test_a_port_the_container_cannot_bind() -> None:
    assert warned(plan(port=80), "port is 80", "1024")
    assert warned(plan(port=1023), "port is 1023")
    assert not warned(plan(port=1024), "port is")


def called(name: str, **options: Any) -> dict[str, Any]:
    """A plan for the cards of oam8 under another name."""
    topology = json.loads(json.dumps(vendor.topology("oam8")).replace("HL-225", name))
    answers: list[dict[str, Any]] = plan_all(
        [{"model": "qwen3-8b", **options}], vendor.catalogue("1.22", "qwen3-8b"), topology, weights_root="/w"
    )
    return answers[0]


def test_a_card_nobody_knows_is_named() -> None:
    unknown = called("HL-999")
    assert warned(unknown, "'HL-999' is no card of catalog/cards.yml")
    assert warned(unknown, "The size of the cards is not known")
    assert warned(called("hl-225"), "'hl-225' is no card", "Did you mean HL-225?")
    assert not warned(called("HL-225"), "card of catalog")
    assert warned(plan(), "The size of the weights is not known")


def test_a_first_generation_card_is_not_what_the_releases_ask_for() -> None:
    assert warned(called("HL-205"), "HL-205 is a gaudi1 card", "gaudi2 or gaudi3")
    for name in ("HL-288E", "HL-325"):
        assert not warned(called(name), "is a gaudi")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"instance": "chat", "weights": "/m/x", "max_model_len": 64, "input_range": [4, 64]}, "chat: "),
        ({"model": "qwen3-8b", "extra_args": ["--seed"]}, "qwen3-8b: "),
        ({"weights": "/models/QwQ-32B/", "extra_args": ["--seed"]}, "QwQ-32B: "),
        ({"weights": "Qwen/Qwen3-8B", "extra_args": ["--seed"]}, "Qwen3-8B: "),
        # The sentence has the name already.
        (
            {"model": "qwen3-8b", "tensor_parallel_size": 16},
            "qwen3-8b asks for 16 cards, but the node has 8 (modules 0,1,2,3,4,5,6,7). One",
        ),
        ({"model": "qwen3-8b", "port": 0}, "Request 'qwen3-8b': port"),
        ({"model": "bge-m3", "share_card_with": "x"}, "Request 'bge-m3': share_card_with"),
    ],
)
def test_a_refusal_says_which_request_it_is_about(request_: dict[str, Any], words: str) -> None:
    model = request_.get("model")
    refused = vendor.plan_request("1.22", request_)["refused"]
    assert refused.startswith(words), (model, refused)


@pytest.mark.parametrize("release", ["1.22", "1.22-2025.11"])
def test_a_refusal_shows_the_length_that_was_typed(release: str) -> None:
    sentence(
        "max_model_len is 100000 (100096 in whole blocks)", release=release, model="qwen3-8b", max_model_len=100000
    )
    ranges: dict[str, Any] = {"input_range": [4, 6000], "output_range": [4, 2000]}
    sentence("max_model_len is 7000 (7040 in whole blocks)", release=release, max_model_len=7000, **ranges)
    sentence("max_model_len is 4096, but", release=release, max_model_len=4096, **ranges)
    few = {"max_model_len": 5000, "max_num_batched_tokens": 4096}
    sentence("max_model_len 5000 (5120 in whole blocks)", release=release, **few)


@pytest.mark.parametrize(
    ("name", "meant"), [("tensor_paralel_size", "tensor_parallel_size"), ("max_model_length", "max_model_len")]
)
def test_a_misspelled_option_is_answered_with_the_one_that_is_meant(name: str, meant: str) -> None:
    sentence(f"does not know '{name}'. Did you mean {meant}?", **{name: 1})
    sentence("does not know 'colour'. Known: async_scheduling", colour="red")


@pytest.mark.parametrize("modules", ["AUTO", ["auto"], {}])
def test_what_modules_may_be(modules: Any) -> None:
    sentence("modules (auto, all or a list of module ids)", modules=modules)


def network(addresses: list[list[str]], release: str = "1.21", **options: Any) -> dict[str, Any]:
    topology = {**vendor.topology("oam8"), "addresses": addresses}
    answers: list[dict[str, Any]] = plan_all(
        [vendor.said_openly({"weights": "/m/x", **options})],
        vendor.catalogue(release),
        topology,
        weights_root="/data/models",
    )
    return answers[0]


def scripts(addresses: list[list[str]], family: str = "first", host: str = "127.0.0.1") -> Network:
    """What a release's script takes, which counts where cards talk over host NICs."""
    found: Network = network_of_script(family, host, None, None, read_addresses(addresses))
    return found


def test_several_networks_are_said() -> None:
    found = scripts([["eth0", "10.1.2.3/24"], ["eth1", "10.9.2.3/24"]])
    assert "node_address" in found.warnings[0]


def test_a_container_bridge_is_no_network() -> None:
    bridges = [["lo", "127.0.0.1/8"], ["docker0", "172.17.0.1/16"], ["br-12ab", "172.18.0.1/16"]]
    found = scripts([*bridges, ["ens3", "10.1.2.3/24"]])
    assert (found.address, found.interface, found.warnings) == ("10.1.2.3", "ens3", ())
    # Nothing but bridges: the processes talk over loopback.
    assert scripts(bridges).interface == "lo"
    assert scripts([]).address == "127.0.0.1"


def test_link_local_and_broken_addresses_are_passed_over() -> None:
    addresses = [["eth0", "fe80::1/64"], ["eth1", "broken"], ["eth2", "10.1.2.3/24"], ["eth2", "2001:db8::1/64"]]
    assert scripts(addresses).address == "10.1.2.3"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_loopback_by_any_name(host: str) -> None:
    plan_ = network([["lo", "127.0.0.1/8"], ["eth0", "10.1.2.3/24"]], "1.22", host=host)
    assert plan_["environment"]["GLOO_SOCKET_IFNAME"] == "lo"
    assert plan_["listen"]["host"] == host


def test_a_host_name_decides_nothing_about_the_network() -> None:
    addresses = [["lo", "127.0.0.1/8"], ["eth0", "10.1.2.3/24"]]
    assert scripts(addresses, "listen", "node-1.example").address == "10.1.2.3"
    assert "node-1.example" in network(addresses, "1.22", host="node-1.example")["arguments"]


def test_an_interface_of_its_own() -> None:
    plan_ = network([["eth0", "10.1.2.3/24"], ["ens9", "10.9.2.3/24"]], "1.22", network_interface="ens9")
    assert plan_["environment"]["HCCL_SOCKET_IFNAME"] == "ens9"
    # A node whose addresses are not known may have any.
    assert network([], "1.22", network_interface="ens9")["environment"]["HCCL_SOCKET_IFNAME"] == "ens9"


@pytest.mark.parametrize("release", ["1.18", "1.21", "1.22", "1.22-2025.11", "deepseek-r1"])
def test_an_interface_that_is_not_there(release: str) -> None:
    addresses = [["lo", "127.0.0.1/8"], ["eth0", "10.1.2.3/24"]]
    refused = network(addresses, release, network_interface="ens9")["refused"]
    assert "network_interface is ens9" in refused
    assert "10.1.2.3 (eth0)" in refused
    both = network(addresses, release, network_interface="ens9", node_address="10.1.2.3")
    assert "network_interface is ens9" in both["refused"]


def test_an_address_and_the_interface_it_is_not_on() -> None:
    addresses = [["eth0", "10.1.2.3/24"], ["eth1", "10.9.2.3/24"]]
    answer = network(addresses, "1.22", node_address="10.1.2.3", network_interface="eth1")
    assert warned(answer, "10.1.2.3 is on eth0", "network_interface is eth1")
    assert answer["environment"]["HCCL_SOCKET_IFNAME"] == "eth1"
    agreed = network(addresses, "1.22", node_address="10.1.2.3", network_interface="eth0")
    assert not warned(agreed, "network_interface")


@pytest.mark.parametrize("share", ["abc", "nan", "7", "-0.1", "1.0", ""])
def test_a_graph_reserve_that_is_no_share_is_refused_under_its_name(share: str) -> None:
    sentence("RESERVED_MEM", share, model="qwen3-8b", extra_environment={"VLLM_GRAPH_RESERVED_MEM": share})


@pytest.mark.parametrize("release", ["1.16", "1.18", "1.21", "1.22", "1.22-2025.11", "deepseek-r1"])
def test_variables_of_the_forks_have_types(release: str) -> None:
    """Each of these ends the server after it has loaded, or is read as something else without a word."""
    variables = vendor.catalogue(release).release.typed_variables
    wrong = {
        "VLLM_SKIP_WARMUP": "maybe",
        "VLLM_GRAPH_PROMPT_RATIO": "abc",
        "VLLM_GRAPH_PROMPT_STRATEGY": "random",
        "VLLM_HPU_LOG_STEP_CPU_FALLBACKS": "false",
        "VLLM_ENGINE_ITERATION_TIMEOUT_S": "a minute",
        "VLLM_USE_MODELSCOPE": "1",
    }
    for name, value in wrong.items():
        if name in variables:
            sentence(name, repr(value), release=release, extra_environment={name: value}, tensor_parallel_size="auto")
    assert {"VLLM_HPU_LOG_STEP_CPU_FALLBACKS", "VLLM_ENGINE_ITERATION_TIMEOUT_S"} <= set(variables)


@pytest.mark.parametrize("release", ["1.18", "1.21"])
def test_a_share_in_a_variable_has_the_range_of_its_option(release: str) -> None:
    sentence("VLLM_GRAPH_PROMPT_RATIO", "3", release=release, extra_environment={"VLLM_GRAPH_PROMPT_RATIO": "3"})


def test_graphs_cannot_have_all_the_memory() -> None:
    sentence("graph_reserved_mem", "below 1", model="qwen3-8b", graph_reserved_mem=1.0)


@pytest.mark.parametrize("argument", sorted(FIXED))
def test_an_argument_that_nobody_may_choose_is_refused_with_its_reason(argument: str) -> None:
    said = plan("1.22", extra_args=[argument, "x"])
    assert said["refused_id"] == "argument_fixed"
    assert f"extra_args has {argument}, but {FIXED[argument]}. Leave it out." in said["refused"]


@pytest.mark.parametrize("argument", ["--ssl-keyfile=/x", "--ssl_certfile", "--middleware=a.b", "--config=/x"])
def test_however_it_is_written(argument: str) -> None:
    assert plan("1.22", extra_args=[argument])["refused_id"] == "argument_fixed"


def test_every_argument_of_a_release_that_moves_the_server_or_opens_it_is_refused() -> None:
    """Where it listens, with what, as which model, behind which code: each is decided by one option, or by nobody."""
    moving = re.compile(
        r"--(host|port|uds|fd|grpc|api-key|served-model-name|models?|config|middleware|ssl-.*|enable-ssl-.*)"
    )
    known = {name for release in releases.names() for name in vendor.catalogue(release).release.arguments}
    found = {name for name in known if moving.fullmatch(name)}
    assert {"--host", "--port", "--grpc", "--api-key", "--config", "--middleware", "--ssl-keyfile"} < found
    assert found - {*FIXED, *OWNED, *OPTIONS, *SECRETS} == set()


def test_every_variable_that_puts_another_server_in_the_place_of_the_guarded_one_is_refused() -> None:
    known = {name for release in releases.names() for name in vendor.catalogue(release).release.variables}
    found = {name for name in known if "FRONTEND" in name}
    assert "VLLM_USE_RUST_FRONTEND" in found
    for name in found:
        assert plan("1.24.1", guarded=True, extra_environment={name: "1"})["refused_id"] == "variable_denied"


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        ([], {}),
        (["--port", "1"], {}),
        (["--limit-mm-per-prompt", '{"image":5,"video":2}'], {"image": 5, "video": 2}),
        (["--limit_mm_per_prompt=audio=5,image=1"], {"audio": 5, "image": 1}),
        (["--limit-mm-per-prompt", '{"image":5}', "--limit-mm-per-prompt", "image=0,video=1"], {"video": 1}),
        (["--limit-mm-per-prompt"], {}),
        (["--limit-mm-per-prompt", "{"], {}),
        (["--limit-mm-per-prompt", '{"image":{"count":5}}'], {}),
    ],
)
def test_what_a_prompt_may_have_is_read_of_the_command_line(words: list[str], limits: dict[str, int]) -> None:
    assert media_limits(words) == limits
