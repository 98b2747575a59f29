"""Buckets and warm-up lines: the counts and forms of the vendor's own code."""

from __future__ import annotations

import re

import pytest
from gaudi_simulated import warmup
from hypothesis import given
from hypothesis import strategies as st

LINE = re.compile(r"\[Warmup\]\[(?P<phase>[^]]+)\]\[(?P<i>\d+)/(?P<n>\d+)\] batch_size:\d+ .*free_mem:[0-9.]+ GiB$")


@pytest.mark.parametrize(
    ("low", "step", "high", "linear", "limited"),
    [
        # Counts found by running the vendor's functions.
        (896, 128, 4096, 26, [896, 1152, 1536, 2048, 2688, 3584, 4096]),
        (128, 128, 16384, 128, 18),
        (1, 2, 32, 17, [1, 2, 4, 6, 8, 10, 14, 18, 24, 32]),
        (1, 8, 128, 19, 13),
        (128, 128, 1536, 12, 9),
        (1, 1, 1, 1, [1]),
    ],
)
def test_sizes_are_the_vendors(low: int, step: int, high: int, linear: int, limited: list[int] | int) -> None:
    assert len(warmup.Range(low, step, high).values()) == linear
    found = warmup.Range(low, step, high, 0.25).values()
    assert found == limited or len(found) == limited


@given(st.integers(1, 512), st.integers(1, 256), st.integers(0, 4096), st.floats(0, 1))
def test_limited_sizes_ascend_from_the_lowest_to_the_highest(low: int, step: int, more: int, limit: float) -> None:
    sizes = warmup.Range(low, step, low + more, limit).values()
    assert sizes == sorted(set(sizes))
    assert sizes[0] == low
    assert sizes[-1] == low + more


def test_a_minimum_above_the_maximum_is_the_servers_assertion() -> None:
    with pytest.raises(warmup.BucketError, match=r"AssertionError: Min\. batch size cannot be greater"):
        warmup.Range(256, 128, 128).values()


ENVIRONMENT = {
    "VLLM_PROMPT_BS_BUCKET_MAX": "1",
    "VLLM_PROMPT_SEQ_BUCKET_MIN": "896",
    "VLLM_PROMPT_SEQ_BUCKET_MAX": "4096",
    "VLLM_PROMPT_SEQ_BUCKET_LIMIT": "0.25",
    "VLLM_DECODE_BS_BUCKET_STEP": "2",
    "VLLM_DECODE_BS_BUCKET_MAX": "32",
    "VLLM_DECODE_BS_BUCKET_LIMIT": "0.25",
    "VLLM_DECODE_BLOCK_BUCKET_MAX": "1536",
    "VLLM_DECODE_BLOCK_BUCKET_LIMIT": "0.25",
}
LIMITS = warmup.Limits(6144, 6144, 32, 1)


def test_a_start_of_qwq_32b_on_1_22() -> None:
    work = warmup.buckets(ENVIRONMENT, LIMITS, padding_limits=True)
    assert len(work.prompt) == 7
    assert len(work.decode) == 10 * 9
    lines = list(warmup.lines("1.22", work, 54.6))
    assert lines[0] == "[Warmup][Graph/prompt][1/7] batch_size:1 query_len:4096 num_blocks:0 free_mem:54.6 GiB"
    assert lines[7].startswith("[Warmup][Graph/decode][1/90] batch_size:32 query_len:1 num_blocks:1536 free_mem:")
    assert len(lines) == 97
    assert (
        "Prompt bucket config (min, step, max_warmup) bs:[1, 32, 1], seq:[896, 128, 4096, 0.25]" in work.configuration
    )


def test_the_same_start_on_1_21_has_four_phases_and_no_limit() -> None:
    work = warmup.buckets(ENVIRONMENT, LIMITS, padding_limits=False)
    assert len(work.prompt) == 26
    phases = [match["phase"] for line in warmup.lines("1.21", work, 54.6) if (match := LINE.match(line))]
    assert list(dict.fromkeys(phases)) == ["Prompt", "Decode", "Graph/Prompt", "Graph/Decode"]
    assert phases.count("Prompt") == phases.count("Graph/Prompt") == 26


def test_prompts_beyond_the_token_budget_are_left_out() -> None:
    work = warmup.buckets({}, warmup.Limits(1024, 2048, 4, 4), padding_limits=False)
    assert max(bs * seq for bs, seq in work.prompt) == 2048
    # Fewer blocks than sequences cannot be: no such bucket.
    many = warmup.buckets({}, warmup.Limits(128, 2048, 256, 1), padding_limits=False)
    assert (256, 256) in many.decode
    assert (256, 128) not in many.decode


@pytest.mark.parametrize("release", ["1.21", "1.22", "deepseek-r1"])
@given(sequences=st.integers(1, 32), length=st.integers(1, 64).map(lambda n: n * 128), prefill=st.integers(1, 4))
def test_every_phase_counts_from_one_to_its_total(release: str, sequences: int, length: int, prefill: int) -> None:
    work = warmup.buckets({}, warmup.Limits(length, max(length, 2048), sequences, prefill), padding_limits=True)
    counted: dict[str, list[int]] = {}
    totals: dict[str, set[int]] = {}
    for line in warmup.lines(release, work, 50.0):
        match = LINE.match(line)
        assert match, line
        counted.setdefault(match["phase"], []).append(int(match["i"]))
        totals.setdefault(match["phase"], set()).add(int(match["n"]))
    for phase, numbers in counted.items():
        assert totals[phase] == {len(numbers)}
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("name", ["VLLM_PROMPT_BS_BUCKET_MIN", "VLLM_DECODE_BLOCK_BUCKET_LIMIT"])
def test_a_value_that_is_no_number_ends_the_start(name: str) -> None:
    with pytest.raises(warmup.BucketError, match="ValueError"):
        warmup.buckets({name: "many"}, LIMITS, padding_limits=True)
