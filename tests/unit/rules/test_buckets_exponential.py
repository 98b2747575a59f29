"""The exponential strategy: what the vendor's own code made of the same numbers, and what a plan says of it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.rules import buckets
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.serving_cases import vendor

# Printed in pull request 371 of vllm-hpu-extension: prefill 8, length 32768, 256 sequences, 16384 blocks.
PRINTED = [
    ((1, 2, 8), False, [1, 2, 4, 8]),
    (
        (128, 128, 32768),
        True,
        [128, 256, 384, 512, 640, 1024, 1408, 2048, 5888, 9728, 13568, 17408, 21248, 25088, 28928, 32768],
    ),
    ((1, 2, 256), False, [1, 2, 4, 8, 16, 32, 64, 128, 256]),
    (
        (128, 128, 16384),
        False,
        [128, 256, 384, 512, 640, 768, 1024, 1536, 2048, 2944, 4096, 5888, 8192, 11648, 16384],
    ),
]


@pytest.mark.parametrize(("range_", "long_context", "printed"), PRINTED)
def test_the_lists_its_authors_printed(range_: tuple[int, int, int], long_context: bool, printed: list[int]) -> None:
    count = buckets.doublings(range_[2])
    assert buckets.exponential(*range_, count, long_context=long_context) == printed


# What the functions of vllm-hpu-extension returned, called with these numbers.
RECORDED_122 = {
    # Prefill, length, sequences, KV cache blocks.
    (8, 4096, 50, 777): {
        "prompt_bs": [1, 2, 4, 8],
        "prompt_seq": [128, 256, 384, 512, 640, 768, 896, 1024, 1408, 1792, 2304, 3072, 4096],
        "decode_bs": [1, 2, 4, 8, 14, 28, 50],
        # Off the grid only where contiguous caches make it the last one; here the grid is full before.
        "decode_block": [128, 256, 384, 512, 640, 768],
    },
    (1, 16384, 128, 3000): {
        "prompt_bs": [1],
        "prompt_seq": [
            *(128, 256, 384, 512, 640, 768, 1152, 3072, 4992, 6912, 8832, 10752, 12672, 14592, 16384),
        ],
        "decode_bs": [1, 2, 4, 8, 16, 32, 64, 128],
        "decode_block": [128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1408, 1792, 2432, 3000],
    },
}


@pytest.mark.parametrize("numbers", RECORDED_122)
def test_what_83df42692_returns(numbers: tuple[int, int, int, int]) -> None:
    prefill, length, seqs, blocks = numbers
    expected = RECORDED_122[numbers]
    assert buckets.exponential(1, 2, prefill, buckets.doublings(prefill)) == expected["prompt_bs"]
    seq = buckets.exponential(128, 128, length, buckets.doublings(length), long_context=length >= 8192)
    assert seq == expected["prompt_seq"]
    assert buckets.exponential(1, 2, seqs, buckets.doublings(seqs)) == expected["decode_bs"]
    assert buckets.exponential(128, 128, blocks, buckets.doublings(blocks)) == expected["decode_block"]


def planned(release: str, request: dict[str, Any]) -> dict[str, Any]:
    plan = vendor.plan_request(release, {**request, "exponential_bucketing": True})
    assert "refused" not in plan, plan
    assert plan["environment"]["VLLM_EXPONENTIAL_BUCKETING"] == "true"
    assert plan["buckets"]["strategy"] == "exponential"
    return plan


def test_a_plan_of_1_22_goes_up_to_the_blocks_of_its_kv_cache() -> None:
    plan = planned("1.22", {"model": "qwen3-8b", "input_range": [4, 1024], "output_range": [4, 2048]})
    assert plan["buckets"]["prompt_seq"] == [128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1408, 1920, 2432, 3072]
    assert plan["buckets"]["decode_block"][-1] == plan["memory"]["kv_cache_blocks"]
    made = plan["buckets"]
    # Every batch with every number of blocks: this strategy leaves none out.
    assert made["decode_graphs"] == len(made["decode_bs"]) * len(made["decode_block"])
    assert any("reads none of the VLLM_*_BUCKET_*" in sentence for sentence in plan["warnings"])
    assert not any("is not known" in sentence and "blocks" in sentence for sentence in plan["warnings"])
    (why,) = (item for item in plan["explain"] if item["value"] == "buckets")
    assert why["source"] == "vllm-hpu-extension 83df42692 vllm_hpu_extension/bucketing/exponential.py"
    assert why["inputs"]["kv_cache_blocks"] == plan["memory"]["kv_cache_blocks"]


def test_where_the_kv_cache_is_not_known_a_whole_batch_stands_for_it() -> None:
    plan = planned("1.22", {"weights": "/m/x", "max_num_seqs": 32, "max_model_len": 4096})
    assert plan["buckets"]["decode_block"][-1] == 32 * 4096 // 128
    assert any("1024" in sentence and "is not known" in sentence for sentence in plan["warnings"])


def test_a_plan_of_1_21_steps_by_one_sequence() -> None:
    plan = planned("1.21", {"weights": "/m/x", "max_num_seqs": 32, "max_model_len": 20480})
    # What the functions of 8afd25348 returned for 32 sequences and a length of 20480.
    assert plan["buckets"]["prompt_bs"] == [1, 2, 4, 9, 17, 32]
    assert plan["buckets"]["decode_bs"] == [1, 2, 4, 9, 17, 32]
    assert plan["buckets"]["prompt_seq"] == [
        *(128, 256, 384, 512, 640, 768, 1024, 1408, 1920, 2816, 3840, 5376, 7424, 10496, 14720, 20480),
    ]
    assert plan["buckets"]["prompt_graphs"] == 61


@pytest.mark.parametrize("release", ["1.16", "1.18", "deepseek-r1", "deepseek-r1-2025.11"])
def test_a_release_without_the_strategy_refuses_it(release: str) -> None:
    refused = vendor.plan_request(release, {"weights": "/m/x", "exponential_bucketing": True})["refused"]
    assert "exponential_bucketing is without effect" in refused


def test_a_variable_counts_as_its_release_reads_it() -> None:
    request = {"weights": "/m/x", "extra_environment": {"VLLM_EXPONENTIAL_BUCKETING": "1"}}
    assert vendor.plan_request("1.22-2025.11", request)["buckets"]["strategy"] == "exponential"
    # 1.21 knows one word, and reads every other one as off.
    assert "VLLM_EXPONENTIAL_BUCKETING" in vendor.plan_request("1.21", request)["refused"]


def test_sliced_attention_leaves_long_buckets_out() -> None:
    request = {
        "weights": "/m/x",
        "max_model_len": 16384,
        "padding_limit": 0,
        "extra_environment": {"PT_HPU_SDPA_QKV_SLICE_MODE_FWD": "1"},
    }
    sizes = vendor.plan_request("1.22-2025.11", request)["buckets"]["prompt_seq"]
    assert 8064 in sizes
    assert [size for size in sizes if size >= 8192] == list(range(8192, 16385, 1024))


def test_the_linear_strategy_is_named_as_well() -> None:
    for release, strategy, rule in (
        ("1.21", "linear", "buckets-linear"),
        ("1.22", "linear with padding limit", "buckets-with-limit"),
    ):
        plan = vendor.plan_request(release, {"weights": "/m/x"})
        assert plan["buckets"]["strategy"] == strategy
        assert [note["rule"] for note in plan["explain"] if note["value"] == "buckets"] == [rule]


@pytest.mark.parametrize("release", ["1.18", "1.21", "1.22", "1.22-2025.11", "deepseek-r1"])
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"skip_warmup": True}, "skip_warmup"),
        ({"extra_environment": {"VLLM_SKIP_WARMUP": "true"}}, "skip_warmup"),
        ({"enforce_eager": True}, "enforce_eager"),
        ({"extra_args": ["--enforce-eager"], "skip_warmup": True}, "enforce_eager"),
    ],
)
def test_a_warm_up_that_is_not_done_has_no_graphs(release: str, options: dict[str, Any], why: str) -> None:
    request = {"weights": "/m/x", "max_model_len": 4096}
    if release == "1.21":
        request["input_range"] = [4, 2048]
    warmed = vendor.plan_request(release, request)["buckets"]
    cold = vendor.plan_request(release, {**request, **options})["buckets"]
    assert warmed["warmup"] == "all graphs"
    assert warmed["graphs"] > 0
    assert cold["warmup"] == f"skipped, no graphs ({why})"
    assert [cold[key] for key in ("prompt_graphs", "decode_graphs", "graphs")] == [0, 0, 0]
    # Requests are padded to the same shapes.
    assert all(cold[key] == warmed[key] for key in ("prompt_bs", "prompt_seq", "decode_bs", "decode_block"))


def test_options_about_graphs_have_no_effect_without_graphs() -> None:
    options = {"weights": "/m/x", "graph_reserved_mem": 0.4, "graph_prompt_ratio": 0.3}
    said = "graph_reserved_mem, graph_prompt_ratio has no effect with enforce_eager"
    eager = vendor.plan_request("1.21", {**options, "enforce_eager": True})
    assert any(said in text for text in eager["warnings"])
    assert not any("no effect" in text for text in vendor.plan_request("1.21", options)["warnings"])
    # What the release or the model's file says is nobody's wish.
    multimodal = vendor.plan_request("1.22", {"model": "qwen2.5-vl-7b-instruct", "enforce_eager": True})
    assert not any("no effect" in text for text in multimodal["warnings"])


@given(st.integers(1, 4096), st.sampled_from([1, 2]))
def test_batches_rise_to_the_largest(most: int, step: int) -> None:
    sizes = buckets.exponential(1, step, most, buckets.doublings(most))
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == most
    assert len(sizes) <= buckets.doublings(most)
