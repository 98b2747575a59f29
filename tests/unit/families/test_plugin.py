"""vLLM with its plugin: requests in vLLM's own words, and what becomes of those that were written for the fork."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible.module_utils.gaudi.catalogue.entries import Successor
from ansible.module_utils.gaudi.model.headers import Weights
from ansible.module_utils.gaudi.planning.many import plan_all
from ansible.module_utils.gaudi.planning.moved import moved
from ansible.module_utils.gaudi.request.options import InstanceRequest
from ansible.module_utils.gaudi.rules.draft import Draft, RuleOrigin

from tests.golden.serving_cases import vendor

RELEASES = ("1.23", "1.24", "1.24.1")
MODEL = {"model": "qwen3-8b", "instance": "x"}
UPSTREAM = "vault.habana.ai/gaudi-docker/1.24.1/ubuntu24.04/habanalabs/vllm-0.26.0-ptupstream-2.11.0:1.24.1-482"


def plan(release: str, **options: Any) -> dict[str, Any]:
    made = vendor.plan_request(release, {**MODEL, **options})
    assert "refused" not in made, made["refused"]
    return made


def refused(release: str, **options: Any) -> str:
    return str(vendor.plan_request(release, {**MODEL, **options})["refused"])


def said(made: dict[str, Any], option: str) -> str | None:
    words = made["arguments"]
    return words[words.index(option) + 1] if option in words else None


@pytest.mark.parametrize("release", RELEASES)
def test_what_vllm_is_asked_for_is_passed(release: str) -> None:
    made = plan(
        release,
        max_model_len=8192,
        max_num_seqs=64,
        max_num_batched_tokens=4096,
        num_gpu_blocks_override=3000,
        enable_chunked_prefill=True,
        enable_prefix_caching=False,
        async_scheduling=True,
        enable_lora=True,
        max_lora_rank=16,
        lora_modules={"law": "/data/adapters/law"},
        structured_outputs_config={"backend": "xgrammar"},
        tool_call_parser="hermes",
        reasoning_parser="qwen3",
        gpu_memory_utilization=0.8,
        graph_reserved_mem=0.2,
    )
    assert said(made, "--max-model-len") == "8192"
    assert said(made, "--max-num-batched-tokens") == "4096"
    assert said(made, "--num-gpu-blocks-override") == "3000"
    assert said(made, "--structured-outputs-config") == '{"backend":"xgrammar"}'
    assert said(made, "--lora-modules") == "law=/data/adapters/law"
    assert said(made, "--tool-call-parser") == "hermes"
    assert said(made, "--reasoning-parser") == "qwen3"
    flags = {"--enable-chunked-prefill", "--no-enable-prefix-caching", "--async-scheduling", "--enable-lora"}
    assert flags | {"--enable-auto-tool-choice"} <= set(made["arguments"])
    assert "--enable-reasoning" not in made["arguments"]
    assert {"source": "/data/adapters/law", "target": "/data/adapters/law", "read_only": True} in made["container"][
        "mounts"
    ]
    assert made["environment"]["VLLM_GRAPH_RESERVED_MEM"] == "0.2"
    assert made["buckets"]["kv_blocks"] == 3000
    assert made["buckets"]["kv_blocks_from"] == "num_gpu_blocks_override"


@pytest.mark.parametrize(
    ("release", "default"),
    [("1.23", "0.9"), ("1.24", "0.92"), ("1.24.1", "0.92")],
)
def test_the_servers_own_defaults_are_said(release: str, default: str) -> None:
    made = plan(release, max_model_len=4096)
    assert said(made, "--gpu-memory-utilization") == default
    # A batch below the longest request: prompts are prefilled in chunks.
    assert said(made, "--max-num-batched-tokens") == "2048"
    assert made["execution_mode"] == "torch.compile"
    assert made["container"]["ulimits"]["memlock"] == -1
    whole = plan(release, max_model_len=4096, enable_chunked_prefill=False)
    assert said(whole, "--max-num-batched-tokens") == "4096"
    assert "below max_model_len" in refused(
        release, max_model_len=4096, enable_chunked_prefill=False, max_num_batched_tokens=2048
    )


@pytest.mark.parametrize(
    ("release", "strategy", "variables"),
    [
        ("1.23", "exponential", {"VLLM_EXPONENTIAL_BUCKETING": "true"}),
        ("1.23", "linear", {"VLLM_EXPONENTIAL_BUCKETING": "false"}),
        ("1.23", "unified", {"VLLM_UNIFIED_ATTN": "true"}),
        ("1.24", "exponential", {"VLLM_BUCKETING_STRATEGY": "exp"}),
        ("1.24", "linear", {"VLLM_BUCKETING_STRATEGY": "lin"}),
        ("1.24.1", "padding-aware", {"VLLM_BUCKETING_STRATEGY": "pad"}),
    ],
)
def test_a_strategy_is_asked_for_as_the_release_reads_it(
    release: str, strategy: str, variables: dict[str, str]
) -> None:
    made = plan(release, bucketing_strategy=strategy)
    names = ("VLLM_EXPONENTIAL_BUCKETING", "VLLM_BUCKETING_STRATEGY", "VLLM_UNIFIED_ATTN")
    assert {name: made["environment"][name] for name in names if name in made["environment"]} == variables
    assert made["buckets"]["strategy"] == strategy


@pytest.mark.parametrize(("release", "strategy"), [("1.23", "padding-aware"), ("1.24", "unified")])
def test_a_strategy_that_the_release_lacks_is_refused(release: str, strategy: str) -> None:
    assert f"bucketing_strategy is {strategy}, but release {release} has exponential" in refused(
        release, bucketing_strategy=strategy
    )


def test_a_bucket_file_is_mounted_and_wins() -> None:
    made = plan("1.24", bucketing_file="/data/buckets/mine.txt")
    assert made["environment"]["VLLM_BUCKETING_FROM_FILE"] == "/data/buckets/mine.txt"
    assert made["buckets"]["strategy"] == "file"
    assert "/data/buckets" in [mount["target"] for mount in made["container"]["mounts"]]
    assert "go together" in refused("1.24", bucketing_strategy="file")
    assert "go together" in refused("1.24", bucketing_strategy="linear", bucketing_file="/data/buckets/mine.txt")


def test_an_inventory_of_the_fork_is_told_line_by_line_what_changes() -> None:
    made = plan(
        "1.24",
        input_range=[800, 1024],
        output_range=[400, 512],
        max_num_prefill_seqs=4,
        exponential_bucketing=False,
        extra_args=["--disable-log-requests", "--enable-reasoning", "--seed", "7"],
        extra_environment={"VLLM_REGIONAL_COMPILATION": "false", "VLLM_USE_V1": "1"},
    )
    assert made["changes"] == [
        "VLLM_REGIONAL_COMPILATION=false: VLLM_T_COMPILE_REGIONAL_COMPILATION=false",
        "VLLM_USE_V1=1: left out, V1 is the only engine",
        "--disable-log-requests: left out, requests are logged only with --enable-log-requests",
        "--enable-reasoning: left out, a reasoning parser alone turns it on",
        "input_range and output_range: max_model_len 1536, the ends of both together",
        "max_num_prefill_seqs 4: VLLM_PROMPT_BS_BUCKET_MAX=4",
        "exponential_bucketing false: bucketing_strategy linear",
    ]
    assert said(made, "--max-model-len") == "1536"
    assert made["arguments"][-2:] == ["--seed", "7"]
    assert made["environment"]["VLLM_T_COMPILE_REGIONAL_COMPILATION"] == "false"
    assert "VLLM_USE_V1" not in made["environment"]


def test_an_argument_that_became_another_keeps_its_value() -> None:
    entry = vendor.catalogue("1.24.1").release
    arguments = {"--old-seed": Successor(becomes="--seed"), "--device": entry.successors["--device"]}
    draft = Draft(RuleOrigin("vllm-gaudi"))
    wanted = InstanceRequest.from_mapping(
        {"extra_args": ["--old-seed", "7", "--old-seed=8", "--device", "hpu", "--no-such"]}
    )
    found = moved(wanted, {}, replace(entry, successors=arguments), draft)
    assert found.extra_args == ("--seed", "7", "--seed=8", "--no-such")
    assert draft.changes == [
        "--old-seed: --seed",
        "--device: left out, the plugin brings the only device",
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_what_has_no_successor_is_refused_all_at_once(release: str) -> None:
    sentence = refused(
        release,
        scheduler_steps=4,
        zero_padding=True,
        extra_args=["--use-padding-aware-scheduling"],
        extra_environment={"VLLM_DELAYED_SAMPLING": "true"},
    )
    for part in ("scheduler_steps: ", "zero_padding: ", "VLLM_DELAYED_SAMPLING: ", "--use-padding-aware-scheduling"):
        assert part in sentence


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"extra_environment": {"VLLM_GRAPH_RESERVD_MEM": "0.2"}}, "looks like VLLM_GRAPH_RESERVED_MEM"),
        ({"extra_environment": {"VLLM_PROMPT_BS_BUCKET_MAX": "four"}}, "reads a whole number there"),
        ({"extra_environment": {"VLLM_SKIP_WARMUP": "perhaps"}}, "reads true or false there"),
        ({"extra_args": ["--kv-cache-memory-bytes", "much"]}, "it takes a whole number"),
        ({"extra_args": ["--attention-config", "{"]}, "it takes JSON"),
        ({"extra_args": ["--scheduling-policy", "best"]}, "it takes one of"),
        ({"extra_args": ["--enable-log-requests", "yes"]}, "it takes none"),
        ({"contiguous_pa": True, "enable_prefix_caching": True}, "are both on"),
        ({"speculative_config": {"method": "medusa"}}, "medusa is no speculative method"),
        ({"lora_modules": {"a": "relative"}}, "lora_modules.a"),
        ({"quantization": "modelopt_fp4"}, "quantization is 'modelopt_fp4', but --quantization of release"),
        ({"quantization": "fp8_e5m2"}, "takes one of awq_hpu, compressed-tensors, fp8"),
        ({"enable_lora": True, "max_lora_rank": 24}, "takes one of 1, 8, 16, 32, 64, 128, 256, 320, 512"),
    ],
)
def test_bad_input_is_refused(release: str, options: dict[str, Any], words: str) -> None:
    assert words in refused(release, **options)


@pytest.mark.parametrize(
    ("quantised", "served"),
    [
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, RELEASES),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ()),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, RELEASES),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, ()),
        ({"quant_method": "compressed-tensors", "format": "int-quantized"}, ("1.24", "1.24.1")),
        ({"quant_method": "compressed-tensors"}, RELEASES),
    ],
)
@pytest.mark.parametrize("release", RELEASES)
def test_weights_in_a_format_without_code_are_refused(
    release: str, quantised: dict[str, str], served: tuple[str, ...]
) -> None:
    config = {"model_type": "llama", "max_position_embeddings": 8192, "quantization_config": quantised}
    request = {"weights": "/data/models/H", "model_config": config, "instance": "x"}
    made = vendor.plan_request(release, request)
    assert ("refused" not in made) == (release in served), made.get("refused")
    if release not in served:
        assert made["refused_id"] == "unsupported_quantization"
        assert f"is stored in {quantised['quant_method']} as " in made["refused"]


def test_a_name_like_no_other_is_left_out_with_a_warning() -> None:
    made = plan("1.24", extra_environment={"VLLM_NOBODY_HAS_THIS": "1"})
    assert "VLLM_NOBODY_HAS_THIS" not in made["environment"]
    assert any("VLLM_NOBODY_HAS_THIS" in sentence for sentence in made["warnings"])


def test_contiguous_attention_turns_prefix_caching_off() -> None:
    for options in ({"contiguous_pa": True}, {"extra_environment": {"VLLM_CONTIGUOUS_PA": "true"}}):
        made = plan("1.24", **options)
        assert made["environment"]["VLLM_CONTIGUOUS_PA"] == "true"
        assert "--no-enable-prefix-caching" in made["arguments"]


def test_ngram_is_warned_of_where_it_was_seen_to_fail() -> None:
    config = {"method": "ngram", "num_speculative_tokens": 3}
    warned = {release: plan(release, speculative_config=config)["warnings"] for release in RELEASES}
    assert any("end the warm-up" in sentence for sentence in warned["1.24.1"])
    assert not any("end the warm-up" in sentence for sentence in warned["1.24"])


def test_async_scheduling_is_warned_of_with_gated_delta_nets() -> None:
    def hangs(**wish: Any) -> bool:
        return any("the first request was seen to hang" in line for line in hybrid(GDN, 60, **wish)["warnings"])

    assert hangs(async_scheduling=True)
    assert not hangs(async_scheduling=False)
    assert not hangs()
    assert not any("seen to hang" in line for line in plan("1.24.1", async_scheduling=True)["warnings"])


@pytest.mark.parametrize("release", RELEASES)
def test_lazy_mode_needs_the_vendors_pytorch(release: str) -> None:
    assert plan(release, lazy_mode=True)["execution_mode"] == "HPU graphs"
    sentence = vendor.plan_request(release, {**MODEL, "lazy_mode": True}, image={"ref": UPSTREAM})["refused"]
    assert "lazy_mode is on, but the image is" in sentence
    assert "refused" not in vendor.plan_request(release, MODEL, image={"ref": UPSTREAM})


@pytest.mark.parametrize("release", RELEASES)
def test_a_ready_image_of_another_vllm_is_warned_of(release: str) -> None:
    entry = vendor.catalogue(release).release
    planned = entry.build.version if entry.build is not None else None
    for ready in entry.ready_images:
        image = {"ref": f"vault.habana.ai/{ready.path}:{ready.tag or 'sha'}"}
        warned = [text for text in vendor.plan_request(release, MODEL, image=image)["warnings"] if "in it, and" in text]
        assert [f"has vLLM {ready.vllm} in it" in text for text in warned] == [True] * (ready.vllm != planned)
    assert [ready.vllm for ready in entry.ready_images] == {
        "1.23": [],
        "1.24": ["0.17.1", "0.17.1", "0.19.0"],
        "1.24.1": ["0.24.0", "0.26.0"],
    }[release]


@pytest.mark.parametrize("option", ["num_gpu_blocks_override", "bucketing_strategy", "contiguous_pa"])
def test_the_forks_releases_have_none_of_it(option: str) -> None:
    value = {"num_gpu_blocks_override": 9, "bucketing_strategy": "linear", "contiguous_pa": True}[option]
    assert f"{option} is without effect on release 1.22" in refused("1.22", **{option: value})


def test_a_pooling_model_is_asked_for_in_the_words_of_the_release() -> None:
    embed = vendor.plan_request("1.24", {"model": "bge-m3", "instance": "x"})
    assert (said(embed, "--runner"), said(embed, "--convert")) == ("pooling", "embed")
    score = vendor.plan_request("1.24", {"model": "bge-reranker-v2-m3", "instance": "x"})
    assert said(score, "--convert") == "classify"


def test_the_pairs_are_those_of_the_plugins_own_dockerfiles() -> None:
    pairs = {
        name: (content["pins"]["vllm_gaudi"]["reference"], content["pins"]["vllm"]["reference"])
        for name in RELEASES
        for content in [vendor.content("releases", name)]
    }
    assert pairs == {
        "1.23": ("v0.17.1", "v0.17.1"),
        "1.24": ("v0.21.0", "v0.21.0"),
        "1.24.1": ("v0.26.0", "v0.26.0"),
    }


def test_the_memory_of_the_plugin_is_that_of_its_worker() -> None:
    made = plan("1.24", max_model_len=4096)
    memory = made["memory"]
    # determine_available_memory: usable is what is free times the utilisation, graphs are a tenth of it.
    assert memory["usable_gib"] == pytest.approx(memory["free_gib"] * 0.92, abs=0.01)
    assert memory["graphs_gib"] == pytest.approx(memory["usable_gib"] * 0.1, abs=0.01)
    # One block of 36 layers, two cards' share of 8 heads of 128, keys and values in bfloat16.
    block = 36 * 2 * 4 * 128 * 2 * 128
    kept = (memory["usable_gib"] - memory["graphs_gib"]) * 2**30 - block
    assert memory["kv_cache_blocks"] == pytest.approx(kept / block, abs=2)
    assert memory["longest_requests_at_once"] == round(memory["kv_cache_tokens"] / 4096, 2)
    eager = plan("1.24", max_model_len=4096, enforce_eager=True)["memory"]
    assert eager["graphs_gib"] == 0


def test_more_blocks_than_fit_are_warned_of() -> None:
    fit = plan("1.24")["memory"]["kv_cache_blocks"]
    assert not any("num_gpu_blocks_override" in line for line in plan("1.24", num_gpu_blocks_override=fit)["warnings"])
    more = plan("1.24", num_gpu_blocks_override=fit + 1)
    assert any(f"num_gpu_blocks_override is {fit + 1}" in line for line in more["warnings"])


GDN_TEXT: dict[str, Any] = {
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "num_hidden_layers": 40,
    "hidden_size": 2048,
    "head_dim": 256,
    "max_position_embeddings": 262144,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
}
GDN: dict[str, Any] = {"model_type": "qwen3_5_moe", "text_config": GDN_TEXT}
MAMBA: dict[str, Any] = {
    "model_type": "granitemoehybrid",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 40,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
    "layer_types": ([*["mamba"] * 9, "attention"]) * 4,
    "mamba_n_heads": 128,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
}


def hybrid(config: dict[str, Any], gib: int, **options: Any) -> dict[str, Any]:
    """The plan of weights of which only config.json and the size are known."""
    request = {"instance": "x", "weights": "/data/models/H", "model_config": config, "max_model_len": 32768, **options}
    answers = plan_all(
        [request],
        vendor.catalogue("1.24.1", None),
        vendor.topology("oam8"),
        weights_root="/data/models",
        read_weights=lambda path: Weights(bytes=gib << 30),
    )
    return dict(answers[0])


def test_states_that_the_server_does_not_count_are_warned_of() -> None:
    few, many = (hybrid(GDN, 60, max_num_seqs=seqs) for seqs in (8, 256))
    # Keys and values of the ten layers with attention alone.
    explained = next(entry for entry in few["explain"] if entry["value"] == "memory")
    assert explained["inputs"]["kv_bytes_per_token"] == 10 * 2 * 2 * 256 * 2
    assert few["memory"]["kv_cache_blocks"] == many["memory"]["kv_cache_blocks"]
    assert few["memory"]["states_gib"] < 1 < many["memory"]["states_gib"]
    assert not any("states of" in line for line in few["warnings"])
    assert any("states of 256 sequences" in line and "inferred" in line for line in many["warnings"])


def test_mamba_shares_the_cache_and_has_blocks_of_its_own() -> None:
    made = hybrid(MAMBA, 60)
    assert said(made, "--block-size") == "528"
    memory = made["memory"]
    page, state = 2 * 8 * 128 * 2 * 528, 8448 * 3 * 2 + 128 * 64 * 128 * 2
    whole = memory["kv_cache_gib"] + memory["states_gib"]
    assert memory["kv_cache_gib"] == pytest.approx(whole * page / (page + state), abs=0.02)
    smaller = hybrid(MAMBA, 60, block_size=128)
    assert said(smaller, "--block-size") == "128"
    assert any("the server sets 528 for models of the type granitemoehybrid" in line for line in smaller["warnings"])
    # Prefix caching takes whole chunks of 256 tokens; contiguous paged attention turns it off.
    assert said(hybrid(MAMBA, 60, enable_prefix_caching=True), "--block-size") == "768"
    asked = {"extra_environment": {"VLLM_CONTIGUOUS_PA": "true"}}
    assert said(hybrid(MAMBA, 60, **asked), "--block-size") == "528"


def test_a_size_of_blocks_that_the_parser_lacks_is_left_to_the_server() -> None:
    """vLLM 0.17.1 takes seven sizes, and sets 528 by itself all the same."""
    wish = {"model_config": {**MAMBA, "mamba_chunk_size": 256}, "weights": "/data/models/H", "model": None}
    made = plan("1.23", **wish, max_model_len=4096, num_gpu_blocks_override=500)
    assert "--block-size" not in made["arguments"]
    explained = next(entry for entry in made["explain"] if entry["value"] == "buckets")
    assert explained["inputs"]["block_size"] == 528
    assert "takes 16, 32, 64, 128 or 256" in refused("1.23", block_size=512)
    assert said(plan("1.24", block_size=512), "--block-size") == "512"


def test_a_size_of_blocks_that_nobody_tried_is_warned_of() -> None:
    """Later parsers take any, and that the cards do not is proven by nobody."""
    odd = plan("1.24.1", block_size=384)
    assert said(odd, "--block-size") == "384"
    assert any("block_size is 384, which the server takes; nobody" in line for line in odd["warnings"])
    assert not any("nobody is known to have tried another" in line for line in plan("1.24.1")["warnings"])
    assert any("block_size is 8, which" in line for line in plan("1.23", block_size=8)["warnings"])


def test_blocks_of_gated_delta_nets_are_128_whatever_is_asked() -> None:
    assert any("the server sets 128" in line for line in hybrid(GDN, 60, block_size=256)["warnings"])
    assert not any("the server sets" in line for line in hybrid(GDN, 60, block_size=128)["warnings"])


def test_gated_delta_nets_in_lazy_mode_are_warned_of() -> None:
    words = "has gated delta nets, which were seen to end in lazy mode"
    assert any(words in line for line in hybrid(GDN, 60, lazy_mode=True)["warnings"])
    for made in (hybrid(GDN, 60), hybrid(MAMBA, 60, lazy_mode=True)):
        assert not any(words in line for line in made["warnings"])


def test_auto_takes_the_fewest_cards() -> None:
    made = plan("1.24", tensor_parallel_size="auto")
    assert made["requires"]["cards"] == 1
    large = vendor.plan_request(
        "1.24", {"model": "qwen2-72b-instruct", "tensor_parallel_size": "auto", "instance": "x"}
    )
    assert large["requires"]["cards"] == 2
    tried = next(entry for entry in large["explain"] if entry["value"] == "tensor_parallel_size")
    assert list(tried["inputs"]) == ["1"]
    assert "do not fit" in tried["inputs"]["1"]


def test_auto_says_why_no_number_will_do() -> None:
    sentence = hybrid(MAMBA, 900, tensor_parallel_size="auto")["refused"]
    assert "no number of cards will do. x: 112.5 GiB of weights per card" in sentence
    unknown = vendor.plan_request(
        "1.24", {"weights": "/data/models/H", "tensor_parallel_size": "auto", "instance": "x"}
    )
    assert "is not known" in unknown["refused"]


def test_published_fp8_is_served_as_it_is() -> None:
    wish = {"model": "qwen3-coder-480b-a35b-instruct-fp8", "instance": "x"}
    # Eight cards cut its experts, 2560 wide, across blocks of 128.
    cut = vendor.plan_request("1.24.1", {**wish, "enable_expert_parallel": False})
    assert "Set enable_expert_parallel" in cut["refused"]
    made = vendor.plan_request("1.24.1", wish)
    assert "--enable-expert-parallel" in made["arguments"]
    assert said(made, "--model") == "/data/models/Qwen3-Coder-480B-A35B-Instruct-FP8"
    assert made["requires"]["conversion"] is None
    assert any("convert_weights.yml is not needed" in line for line in made["changes"])
    assert made["memory"]["weights_gib_per_card"] > 50


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv_cache_dtype": "fp8_e5m2"}, "these cards take auto or fp8_inc"),
        ({"kv_cache_dtype": "fp8"}, "these cards take auto or fp8_inc"),
    ],
)
def test_a_format_that_the_cards_lack_is_refused(options: dict[str, Any], words: str) -> None:
    assert words in refused("1.24.1", **options)
    assert "refused" not in vendor.plan_request("1.24.1", {**MODEL, "kv_cache_dtype": "fp8_inc"})


def test_experts_have_to_divide() -> None:
    config = {
        "model_type": "qwen3_moe",
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "num_hidden_layers": 94,
        "hidden_size": 4096,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "num_experts": 128,
        "moe_intermediate_size": 1536,
    }
    eight: dict[str, Any] = {"tensor_parallel_size": 8}
    fp8 = {**config, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert "whole blocks of 128 (FP8)" in hybrid(fp8, 240, **eight)["refused"]
    # One scale for all of a matrix, or blocks that 192 is a multiple of.
    for scaled in ({}, {"weight_block_size": None}, {"weight_block_size": [64, 64]}):
        by = {**config, "quantization_config": {"quant_method": "fp8", **scaled}}
        assert "refused" not in hybrid(by, 240, **eight)
    assert "refused" not in hybrid(fp8, 240, **eight, enable_expert_parallel=True)
    assert "refused" not in hybrid(config, 440, **eight)
    assert "into whole parts" in hybrid({**config, "moe_intermediate_size": 1540}, 440, **eight)["refused"]


@pytest.mark.report("genaicomps-1557")
def test_the_engine_has_time_to_warm_up() -> None:
    made = plan("1.24")
    graphs = made["buckets"]["graphs"]
    assert int(made["environment"]["VLLM_ENGINE_READY_TIMEOUT_S"]) >= max(600, 2 * graphs)
    fewer = plan("1.24", max_num_seqs=1)
    assert fewer["buckets"]["graphs"] < graphs
    seconds = [int(each["environment"]["VLLM_ENGINE_READY_TIMEOUT_S"]) for each in (fewer, made)]
    assert seconds == sorted(seconds)
    # Nobody knows how many graphs a file has that cannot be read.
    unread = plan("1.24", bucketing_file="/srv/buckets/shapes.txt")
    assert unread["environment"]["VLLM_ENGINE_READY_TIMEOUT_S"] == "7200"
    # Nor how long weights take to load whose size nobody said.
    unsized = vendor.plan_request("1.24", {"weights": "/models/Large", "instance": "x", "max_model_len": 4352})
    assert unsized["memory"] is None
    assert unsized["environment"]["VLLM_ENGINE_READY_TIMEOUT_S"] == str(7200 + 20 * unsized["buckets"]["graphs"])
    said_so = plan("1.24", extra_environment={"VLLM_ENGINE_READY_TIMEOUT_S": "900"})
    assert said_so["environment"]["VLLM_ENGINE_READY_TIMEOUT_S"] == "900"
    assert "VLLM_ENGINE_READY_TIMEOUT_S" not in plan("1.22")["environment"]


def test_each_release_names_its_metrics() -> None:
    names = {
        release: set(vendor.content("releases", release).get("metrics", ())) for release in ("1.21", "1.22", *RELEASES)
    }
    for found in names.values():
        assert {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:generation_tokens_total"} <= found
    # The rename of vLLM 0.11, and what 0.13 removed.
    old = {"vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds"}
    new = {"vllm:kv_cache_usage_perc", "vllm:inter_token_latency_seconds"}
    for release, found in names.items():
        assert (old if release in ("1.21", "1.22") else new) <= found
        assert not (new if release in ("1.21", "1.22") else old) & found
    # vllm/v1/metrics/loggers.py of the three wheels.
    recomputed, reasons = "vllm:prompt_tokens_recomputed_total", "vllm:num_requests_waiting_by_reason"
    assert {recomputed, reasons} & names["1.23"] == {recomputed}
    assert {recomputed, reasons} & names["1.24"] == {recomputed, reasons} & names["1.24.1"] == {reasons}


def test_each_release_knows_the_classes_of_its_own_wheel() -> None:
    """vllm/model_executor/models/registry.py of 0.17.1, 0.21.0 and 0.26.0, and the routes of their entry points."""
    classes = {release: vendor.catalogue(release).release.architectures for release in RELEASES}
    for name, since in (("Gemma4ForConditionalGeneration", "1.24"), ("InklingForCausalLM", "1.24.1")):
        assert [name in classes[release] for release in RELEASES] == [release >= since for release in RELEASES]
    paths = {release: vendor.catalogue(release).release.paths for release in RELEASES}
    assert ["/v2/embed" in paths[release] for release in RELEASES] == [False, True, True]
    assert ["/generate" in paths[release] for release in RELEASES] == [True, True, False]


def test_copies_of_a_model_have_cards_of_their_own() -> None:
    one, two = (plan("1.24", tensor_parallel_size=2, data_parallel_size=copies) for copies in (1, 2))
    assert len(one["modules"]) == 2
    assert len(two["modules"]) == two["requires"]["cards"] == 4
    assert (said(two, "--tensor-parallel-size"), said(two, "--data-parallel-size")) == ("2", "2")
    # What a card holds is what it holds of one copy.
    assert two["memory"]["weights_gib_per_card"] == one["memory"]["weights_gib_per_card"]
    assert two["memory"]["kv_cache_blocks"] == one["memory"]["kv_cache_blocks"]
    assert "modules names 3 cards, but tensor_parallel_size is 2 and data_parallel_size 2, 4 cards" in refused(
        "1.24", tensor_parallel_size=2, data_parallel_size=2, modules=[0, 1, 2]
    )
    assert "asks for 16 cards, but the node has 8" in refused("1.24", tensor_parallel_size=8, data_parallel_size=2)
    assert "data_parallel_size is without effect on release 1.22" in refused("1.22", data_parallel_size=2)
    spread = vendor.plan_request("1.24", {**MODEL, "tensor_parallel_size": "auto", "data_parallel_size": 3})
    assert spread["requires"]["cards"] == 3


def test_a_sites_pins_of_the_fork_are_a_line_of_what_changes() -> None:
    site = {"build": True, "pins": {"vllm_fork": {"commit": "a" * 40}}}
    made = vendor.plan_request("1.24", MODEL, image=site)
    assert any(line.startswith("serving_image_pins.vllm_fork: take it out") for line in made["changes"])
    assert made["image"] == vendor.plan_request("1.24", MODEL, image={"build": True})["image"]
    assert "refused" in vendor.plan_request("1.24", MODEL, image={**site, "pins": {"vllm_frok": {"commit": "a" * 40}}})


@pytest.mark.parametrize("release", ["1.16", "1.18"])
def test_a_commit_for_other_releases_does_not_keep_a_plan_from_being_read(release: str) -> None:
    model = {"model": "llama-2-7b"}
    site = {"build": True, "pins": {"vllm_hpu_extension": {"commit": "a" * 40}}}
    made = vendor.plan_request(release, model, image=site)
    assert any(line.startswith("serving_image_pins.vllm_hpu_extension: take it out") for line in made["changes"])
    assert made["image"] == vendor.plan_request(release, model, image={"build": True})["image"]
    given = {"repository": "https://git.example/extension", "commit": "a" * 40}
    whole = vendor.plan_request(release, model, image={**site, "pins": {"vllm_hpu_extension": given}})
    assert whole["image"] != made["image"]


def test_arguments_that_buckets_and_checks_follow_from_are_read_as_their_options() -> None:
    speculation = {"method": "eagle", "model": "/data/models/eagle", "num_speculative_tokens": 2}
    options = {"num_gpu_blocks_override": 3000, "enable_expert_parallel": True, "enable_chunked_prefill": False}
    mixture = {"model": "qwen3-30b-a3b-instruct-2507", "max_model_len": 4096}
    arguments = ["--num_gpu_blocks_override=3000", "-ep", "--no-enable-chunked-prefill", "--speculative-config"]
    by_arguments = plan("1.24.1", extra_args=[*arguments, json.dumps(speculation), "--seed", "7"], **mixture)
    by_options = plan("1.24.1", speculative_config=speculation, extra_args=["--seed", "7"], **options, **mixture)
    assert by_arguments["arguments"] == by_options["arguments"]
    assert by_arguments["buckets"] == by_options["buckets"]
    assert by_arguments["buckets"]["kv_blocks_from"] == "num_gpu_blocks_override"
    assert "both on" in refused("1.24.1", contiguous_pa=True, extra_args=["--enable-prefix-caching"])
    assert "num_gpu_blocks_override is 40. Keep one" in refused(
        "1.24.1", num_gpu_blocks_override=40, extra_args=["--num-gpu-blocks-override", "50"]
    )
    assert "must be a mapping" in refused("1.24.1", extra_args=["--speculative-config", "ngram"])
    assert "Use the option speculative_config" in refused("1.24.1", extra_args=["--spec-tokens", "3"])


@pytest.mark.parametrize(
    ("speculation", "words"),
    [
        ({"num_speculative_token": 3}, "Did you mean num_speculative_tokens?"),
        ({"num_speculative_tokens": "3"}, "num_speculative_tokens '3'; it must be a whole number"),
        ({"num_speculative_tokens": True}, "it must be a whole number"),
        ({"num_speculative_tokens": 0}, "of at least 1"),
    ],
)
def test_a_length_of_speculation_that_the_buckets_cannot_follow_is_refused(
    speculation: dict[str, Any], words: str
) -> None:
    assert words in refused("1.24", speculative_config={"method": "eagle", **speculation})


@pytest.mark.parametrize("release", RELEASES)
def test_inc_without_measurements_is_refused(release: str) -> None:
    assert "quantization is inc, but neither" in refused(release, quantization="inc")
    for made in (
        plan(release, quantization="inc", quantization_config="/data/quantization/own.json"),
        plan(release, dtype="fp8"),
    ):
        assert said(made, "--quantization") == "inc"
        assert made["environment"]["QUANT_CONFIG"]


def test_too_few_blocks_that_were_asked_for_are_not_answered_with_more_memory() -> None:
    words = refused("1.24.1", max_model_len=4096, num_gpu_blocks_override=31)
    assert words.endswith("Raise num_gpu_blocks_override to 32 at least, leave it out, or lower max_model_len.")
    plan("1.24.1", max_model_len=4096, num_gpu_blocks_override=32)


def test_what_arguments_say_is_refused_with_the_rest_at_once() -> None:
    words = refused("1.24", extra_args=["--num-scheduler-steps=4", "--task=generate"], padding_limit=0.2)
    assert [name in words for name in ("scheduler_steps: ", "'--task': ", "padding_limit: ")] == [True] * 3
