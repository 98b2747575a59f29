"""The numbers that the documentation of release 1.18 prints, to the letter."""

from __future__ import annotations

import itertools

import pytest
from ansible.module_utils.gaudi.rules import buckets, memory
from hypothesis import given
from hypothesis import strategies as st

PROMPT_LENGTHS = [128, 256, 384, 512, 640, 768, 896, 1024]
DECODE_LENGTHS = [128 * step for step in range(1, 17)]


def test_its_24_prompt_buckets() -> None:
    sizes, lengths = buckets.linear(1, 32, 4), buckets.linear(128, 128, 1024)
    assert list(itertools.product(sizes, lengths)) == list(itertools.product([1, 2, 4], PROMPT_LENGTHS))
    assert buckets.prompt_graphs(sizes, lengths, None) == 24


def test_its_48_decode_buckets() -> None:
    sizes, lengths = buckets.linear(1, 128, 4), buckets.linear(128, 128, 2048)
    assert list(itertools.product(sizes, lengths)) == list(itertools.product([1, 2, 4], DECODE_LENGTHS))
    assert buckets.decode_graphs(sizes, lengths) == 48


def test_its_examples_of_the_ramp() -> None:
    assert buckets.linear(2, 32, 64) == [2, 4, 8, 16, 32, 64]
    assert buckets.linear(128, 128, 512) == [128, 256, 384, 512]


def test_its_walk_through_of_padding() -> None:
    sizes = [1, 2, 4]
    assert buckets.shape_for(3, 412, sizes, PROMPT_LENGTHS) == (4, 512)
    # Later a request ends, or the context outgrows 512 tokens.
    assert buckets.shape_for(2, 412, sizes, DECODE_LENGTHS) == (2, 512)
    assert buckets.shape_for(3, 513, sizes, DECODE_LENGTHS) == (4, 640)
    # Beyond the last bucket nothing is padded: the shape compiles at run time.
    assert buckets.shape_for(5, 2049, sizes, DECODE_LENGTHS) == (None, None)


def test_its_memory_log() -> None:
    split = memory.split(79.16, 0.5, 0.4)
    assert (round(split.usable, 2), round(split.graphs, 2), round(split.kv_cache, 2)) == (39.58, 15.83, 23.75)
    # The log is of an 8B Llama 3: 32 layers, 8 key-value heads of 128, two bytes.
    per_token = memory.kv_bytes_per_token(
        layers=32, key_value_heads=8, head_dim=128, element_bytes=2, tensor_parallel_size=1
    )
    assert per_token * 128 == 16 * memory.MIB
    assert memory.blocks(split.kv_cache, per_token, 128) == 1519


def test_the_pinned_servers_defaults_of_the_twelve_variables() -> None:
    assert buckets.defaults("84922944d", 256, 128) == {
        "VLLM_PROMPT_BS_BUCKET_MIN": "1",
        "VLLM_PROMPT_BS_BUCKET_STEP": "32",
        "VLLM_PROMPT_BS_BUCKET_MAX": "64",
        "VLLM_PROMPT_SEQ_BUCKET_MIN": "128",
        "VLLM_PROMPT_SEQ_BUCKET_STEP": "128",
        "VLLM_PROMPT_SEQ_BUCKET_MAX": "1024",
        "VLLM_DECODE_BS_BUCKET_MIN": "32",
        "VLLM_DECODE_BS_BUCKET_STEP": "32",
        "VLLM_DECODE_BS_BUCKET_MAX": "256",
        "VLLM_DECODE_BLOCK_BUCKET_MIN": "128",
        "VLLM_DECODE_BLOCK_BUCKET_STEP": "128",
        "VLLM_DECODE_BLOCK_BUCKET_MAX": "4096",
    }
    assert buckets.defaults("84922944d", 4, 128)["VLLM_DECODE_BLOCK_BUCKET_MAX"] == "128"
    assert buckets.defaults("84922944d", 4, 128)["VLLM_PROMPT_BS_BUCKET_STEP"] == "4"


@pytest.mark.parametrize(
    ("minimum", "step", "maximum", "linear", "limited"),
    [
        (896, 128, 4096, 26, 7),
        (128, 128, 16384, 128, 18),
        (1, 2, 32, 17, 10),
        (1, 8, 128, 19, 13),
        (128, 128, 1536, 12, 9),
    ],
)
def test_counts_with_and_without_a_limit(minimum: int, step: int, maximum: int, linear: int, limited: int) -> None:
    assert len(buckets.linear(minimum, step, maximum)) == linear
    assert len(buckets.limited(minimum, step, maximum, 0.25)) == limited


# Printed in pull request 371 of vllm-hpu-extension for a limit of 0.25.
PRINTED_LIMITED = [
    ((1, 2, 8), [1, 2, 4, 6, 8]),
    ((1, 2, 256), [1, 2, 4, 6, 8, 10, 14, 18, 24, 32, 42, 56, 74, 98, 130, 174, 232, 256]),
    (
        (128, 128, 32768),
        [
            *(128, 256, 384, 512, 640, 768, 1024, 1280, 1664, 2176, 2816, 3712, 4864, 6400),
            *(8448, 11264, 14976, 19968, 26624, 32768),
        ],
    ),
]


@pytest.mark.parametrize(("range_", "printed"), PRINTED_LIMITED)
def test_the_limited_lists_their_author_printed(range_: tuple[int, int, int], printed: list[int]) -> None:
    assert buckets.limited(*range_, 0.25) == printed


def test_shapes_that_cannot_occur_are_not_warmed_up() -> None:
    # A batch of 256 needs 256 blocks at least.
    assert buckets.decode_graphs([1, 2, 256], [128, 256, 384]) == 3 + 3 + 2
    # A prompt batch stays within the token budget, unless not even the smallest does.
    assert buckets.prompt_graphs([1, 2, 4], [128, 256, 512], 512) == 3 + 2 + 1
    assert buckets.prompt_graphs([1, 2], [128, 256], 64) == 4


ranges = st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(0, 3000)).map(
    lambda drawn: (drawn[0], drawn[1], drawn[0] + drawn[2])
)


@given(ranges)
def test_linear_is_the_servers_own_ramp_and_walk(drawn: tuple[int, int, int]) -> None:
    minimum, step, maximum = drawn
    ramp = [minimum << power for power in range(12) if minimum << power < step and minimum << power <= maximum]
    walk = [value for value in range(step, maximum + 1, step) if value >= minimum]
    assert buckets.linear(minimum, step, maximum) == ramp + walk


@given(ranges, st.floats(0.0, 0.5))
def test_a_limited_list_keeps_the_limit_beyond_the_ramp(drawn: tuple[int, int, int], limit: float) -> None:
    minimum, step, maximum = drawn
    values = buckets.limited(minimum, step, maximum, limit)
    assert values == sorted(set(values))
    assert values[0] == minimum
    assert values[-1] == maximum
    for lower, higher in itertools.pairwise(values):
        # A request one above a bucket pads to the next; beyond one step apart that must stay within the limit.
        if lower > step and higher - lower > step and higher != maximum:
            assert (higher - 1 - lower) / (higher - 1) <= limit


@given(ranges, st.one_of(st.floats(0.0, 0.5), st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5])))
def test_a_limited_list_is_what_a_walk_step_by_step_keeps(drawn: tuple[int, int, int], limit: float) -> None:
    minimum, step, maximum = drawn
    walked, value = [minimum], minimum
    while value <= maximum:
        if value <= step:
            value = 2 * walked[-1]
            walked += [value] if value <= maximum else []
        else:
            # Left out, a request one short of the next step would be padded by this share.
            if value != walked[-1] and 1 - walked[-1] / (value + step - 1) > limit:
                walked.append(value)
            value += step
    assert buckets.limited(minimum, step, maximum, limit) == walked + [maximum] * (walked[-1] != maximum)


@given(ranges)
def test_a_limit_of_nothing_is_the_walk_itself(drawn: tuple[int, int, int]) -> None:
    minimum, _, maximum = drawn
    values = buckets.limited(minimum, 1, maximum, 0.0)
    assert set(values) >= {minimum, maximum}
    assert len(values) >= len(buckets.limited(minimum, 1, maximum, 0.5))
