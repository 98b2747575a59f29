"""The table of lengths and buckets again, written from the table and not from the planner, on drawn requests."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.serving_cases import vendor


def up(value: float, base: int = 128) -> int:
    return math.ceil(value / base) * base


def cdiv(value: int, by: int) -> int:
    return math.ceil(value / by)


def buckets(environment: dict[str, str]) -> dict[str, int]:
    return {
        name.removeprefix("VLLM_").replace("_BUCKET", ""): int(value)
        for name, value in environment.items()
        if "_BUCKET_" in name and not name.endswith("LIMIT")
    }


def arguments(plan: dict[str, Any]) -> dict[str, int]:
    names = {
        "L": "--max-model-len",
        "T": "--max-num-batched-tokens",
        "B": "--max-num-seqs",
        "P": "--max-num-prefill-seqs",
    }
    options = vendor.options(plan["arguments"])
    return {key: int(options[name] or 0) for key, name in names.items() if name in options}


batch = st.integers(1, 512)
lengths = st.tuples(st.integers(1, 20000), st.integers(0, 20000)).map(lambda pair: (pair[0], pair[0] + pair[1]))
model = st.sampled_from(["/models/QwQ-32B", "/models/Qwen3-8B", "/models/Mixtral-8x7B-Instruct-v0.1"])


@settings(max_examples=100, deadline=None)
@given(batch, lengths, lengths, st.integers(0, 5000), model)
def test_release_1_21(b: int, i: tuple[int, int], o: tuple[int, int], more: int, weights: str) -> None:
    length = i[1] + o[1] + more
    tokens = max(length, b)
    request = {
        "weights": weights,
        "max_num_seqs": b,
        "input_range": list(i),
        "output_range": list(o),
        "max_model_len": length,
        "max_num_batched_tokens": tokens,
    }
    plan = vendor.plan_request("1.21", request)
    step = min(cdiv(b, 16), 16)
    most = up(b, step)
    assert arguments(plan) == {"L": length, "T": tokens, "B": b}
    assert buckets(plan["environment"]) == {
        "PROMPT_BS_MIN": 1,
        "PROMPT_BS_STEP": 1,
        "PROMPT_BS_MAX": min(tokens // i[0], b),
        "PROMPT_SEQ_MIN": up(i[0]),
        "PROMPT_SEQ_STEP": 128,
        "PROMPT_SEQ_MAX": up(i[1]) + 128,
        "DECODE_BS_MIN": 1,
        "DECODE_BS_STEP": step,
        "DECODE_BS_MAX": most,
        "DECODE_BLOCK_MIN": up(cdiv(i[0], 128)),
        "DECODE_BLOCK_STEP": 128,
        "DECODE_BLOCK_MAX": up((cdiv(i[1] + o[1], 128) + 1) * most),
    }
    assert plan["environment"]["VLLM_ZERO_PADDING"] == ("false" if i[0] == i[1] else "true")


@settings(max_examples=100, deadline=None)
@given(batch, lengths, lengths, st.one_of(st.none(), st.just("auto"), st.integers(1, 64)), model)
def test_release_1_22_by_ranges(b: int, i: tuple[int, int], o: tuple[int, int], p: Any, weights: str) -> None:
    request = {"weights": weights, "max_num_seqs": b, "input_range": list(i), "output_range": list(o)}
    plan = vendor.plan_request("1.22", request if p is None else {**request, "max_num_prefill_seqs": p})
    expect_1_22(plan, b, i, o, p)
    if i[1] + o[1] > 2048:
        later = vendor.plan_request("1.22-2025.11", request if p is None else {**request, "max_num_prefill_seqs": p})
        assert buckets(later["environment"]) == buckets(plan["environment"])


def expect_1_22(plan: dict[str, Any], b: int, i: tuple[int, int], o: tuple[int, int], p: Any) -> None:
    tokens = up(max(i[1] + o[1], 2048))
    if b > tokens:
        assert "max_num_seqs" in plan["refused"]
        return
    prefill = {None: 1, "auto": max(1, 2048 // up(i[0]))}.get(p, p)
    prefill = min(prefill, b)
    step = min(cdiv(b, 16), 16)
    most = up(b, step)
    highest = up(cdiv(i[1] + o[1], 128) * most)
    lowest = max(cdiv(i[0], 128), 128)
    if lowest > highest:
        assert "BUCKET" in plan["refused"]
        return
    assert arguments(plan) == {"L": up(i[1] + o[1]), "T": tokens, "B": b, "P": prefill}
    assert buckets(plan["environment"]) == {
        "PROMPT_BS_MIN": 1,
        "PROMPT_BS_STEP": 1,
        "PROMPT_BS_MAX": prefill,
        "PROMPT_SEQ_MIN": up(i[0]),
        "PROMPT_SEQ_STEP": 128,
        "PROMPT_SEQ_MAX": up(i[1]),
        "DECODE_BS_MIN": 1,
        "DECODE_BS_STEP": step,
        "DECODE_BS_MAX": most,
        "DECODE_BLOCK_MIN": lowest,
        "DECODE_BLOCK_STEP": 128,
        "DECODE_BLOCK_MAX": highest,
    }


@settings(max_examples=100, deadline=None)
@given(batch, st.integers(1, 60000), st.sampled_from(["1.22", "1.22-2025.11"]), st.sampled_from([0.0, 0.1, 0.25, 0.5]))
def test_release_1_22_by_length(b: int, x: int, release: str, limit: float) -> None:
    request = {"weights": "/models/QwQ-32B", "max_num_seqs": b, "max_model_len": x, "padding_limit": limit}
    plan = vendor.plan_request(release, request)
    length = up(x)
    most = up(b, 2)
    assert arguments(plan) == {"L": length, "T": up(max(length, 2048)), "B": b, "P": 1}
    assert buckets(plan["environment"]) == {
        "PROMPT_BS_MIN": 1,
        "PROMPT_BS_STEP": 1,
        "PROMPT_BS_MAX": 1,
        "PROMPT_SEQ_MIN": 128,
        "PROMPT_SEQ_STEP": 128,
        "PROMPT_SEQ_MAX": length,
        "DECODE_BS_MIN": 1,
        "DECODE_BS_STEP": 2,
        "DECODE_BS_MAX": most,
        "DECODE_BLOCK_MIN": 128,
        "DECODE_BLOCK_STEP": 128,
        "DECODE_BLOCK_MAX": up(length // 128 * most),
    }
    limits = {name: value for name, value in plan["environment"].items() if name.endswith("_LIMIT")}
    assert len(limits) == 4
    assert set(limits.values()) == {str(limit)}
    assert plan["environment"]["VLLM_ZERO_PADDING"] == "true"


@settings(max_examples=100, deadline=None)
@given(batch, st.integers(512, 32768), st.sampled_from(["oam8", "pcie8"]), st.booleans())
def test_the_deepseek_releases(b: int, x: int, where: str, fp8: bool) -> None:
    for release in ("deepseek-r1", "deepseek-r1-2025.11"):
        request = {"weights": "/data/DeepSeek-R1-G2", "max_num_seqs": b, "max_model_len": x}
        plan = vendor.plan_request(release, {**request, "dtype": "fp8"} if fp8 else request, where)
        later = release.endswith("11")
        assert arguments(plan) == {"L": x, "T": x, "B": b, **({"P": 1} if later else {})}
        assert buckets(plan["environment"]) == {
            "PROMPT_BS_MIN": 1,
            "PROMPT_BS_STEP": 1 if later else min(b, 32),
            "PROMPT_BS_MAX": 1 if later else min(b, 64),
            "PROMPT_SEQ_MIN": 128,
            "PROMPT_SEQ_STEP": 128,
            "PROMPT_SEQ_MAX": x,
            "DECODE_BS_MIN": 1,
            "DECODE_BS_STEP": min(b, 8 if where == "oam8" else 2),
            "DECODE_BS_MAX": b,
            "DECODE_BLOCK_MIN": 128,
            "DECODE_BLOCK_STEP": 128,
            "DECODE_BLOCK_MAX": max(b * x // 128, 128),
        }
        short, long = (18432, "0.65") if later else (16384, "0.7")
        share = "0.85" if x <= short else long
        assert plan["environment"]["VLLM_GPU_MEMORY_UTILIZATION"] == share
        assert vendor.options(plan["arguments"])["--gpu-memory-utilization"] == share
        assert vendor.options(plan["arguments"])["--kv-cache-dtype"] == "fp8_inc"
        assert plan["environment"]["VLLM_MOE_N_SLICE"] == ("1" if fp8 else "8")
        assert ("QUANT_CONFIG" in plan["environment"]) == fp8


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 64), st.integers(128, 8192), st.integers(1, 4096))
def test_partial_warm_up(b: int, seq: int, out: int) -> None:
    request = {
        "weights": "/models/QwQ-32B",
        "max_num_seqs": 64,
        "input_range": [4, 8192],
        "output_range": [1, out],
        "max_model_len": 16384,
        "max_num_batched_tokens": 16384,
        "partial_warmup": {"max_num_seqs": b, "max_seq_len": seq},
        "extra_environment": {"VLLM_DECODE_BS_BUCKET_MAX": "7"},
    }
    environment = vendor.plan_request("1.21", request)["environment"]
    assert environment["VLLM_SKIP_LAZY_WARMUP"] == "true"
    assert environment["VLLM_PROMPT_SEQ_BUCKET_MAX"] == str(seq)
    assert environment["VLLM_DECODE_BS_BUCKET_MAX"] == str(b)
    assert environment["VLLM_DECODE_BLOCK_BUCKET_MAX"] == str(up((seq + out) * b // 128) or 128)


def test_partial_warm_up_rounds_down_before_it_rounds_up() -> None:
    request = {
        "weights": "/models/QwQ-32B",
        "input_range": [4, 8192],
        "output_range": [1, 1],
        "partial_warmup": {"max_num_seqs": 8, "max_seq_len": 2048},
    }
    # 2049 x 8 / 128 is a little more than 128 blocks: the script's shell arithmetic drops the little.
    assert vendor.plan_request("1.21", request)["environment"]["VLLM_DECODE_BLOCK_BUCKET_MAX"] == "128"
