"""Bucket files: what the plugin reads is read, and what it dies at is refused before."""

from __future__ import annotations

import time

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.plugin_buckets.from_file import shapes
from ansible.module_utils.gaudi.plugin_buckets.made import WarmupBuckets, buckets
from ansible.module_utils.gaudi.plugin_buckets.server import ServerSettings
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.plugin_buckets.test_cases import FILES

GOOD = FILES["%FILE%"]
SERVER = ServerSettings(16, 4096, 2048, 128, 3000)
ENVIRONMENT = {"VLLM_BUCKETING_FROM_FILE": "buckets.txt"}


def of_file(text: str, plugin: str = "0.26.0", **more: str) -> WarmupBuckets:
    return buckets(plugin, SERVER, {**ENVIRONMENT, **more}, text)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("(1, 256, 8)", [(1, 256, 8)]),
        ("  1, 256, 8  # no brackets, and a comment", [(1, 256, 8)]),
        ("(1, [256, 512], 8)", [(1, 256, 8), (1, 512, 8)]),
        ("([1, 2], range(128, 385, 128), 0)", [(b, q, 0) for b in (1, 2) for q in (128, 256, 384)]),
        ("(1, 256, range(9, 3, -3))", [(1, 256, 6), (1, 256, 9)]),
        # What int() of Python takes, the plugin takes.
        ("(1, '256', 8.9)", [(1, 256, 8)]),
        ("(1, 0x100, 1_0)", [(1, 256, 10)]),
        ("(1, [], 8)", []),
        # Beside an empty list nothing is read as a number.
        ("(1, [], [[8]])", []),
        ("({1}, 2, range(8, 8))", []),
        ("# (1, 2)", []),
        ("", []),
    ],
)
def test_a_line_is_read_as_the_plugin_reads_it(line: str, read: list[tuple[int, int, int]]) -> None:
    prompt, decode = shapes(f"(7, 128, 7)\n{line}\n(1, 1, 64)\n")
    assert prompt == sorted([(7, 128, 7), *read])
    assert decode == [(1, 1, 64)]


# Each was given to the plugin's own code of all three versions, which ended at it.
DEADLY = [
    "(1, 2)",
    "(1, 2, 3, 4)",
    "[1, 2, 3]",
    "(1, 2, x)",
    "(1,, 2)",
    "(1, range(5), 2)",
    "(1, range(1, 5, 0), 2)",
    "(1, range(1, 20000), 2)",
    "(None, 1, 2)",
    "((1, 2), 3, 4)",
    "({1}, 2, 3)",
    "('a', 1, 2)",
    "(1, 1e999, 3)",
    "(1, 2j, 3)",
    "import os",
    "({[]: 1}, 1, 2)",
    "(1, [[1]], 2)",
    "(1, 1, 64",
    ";",
]


@pytest.mark.parametrize("line", [*DEADLY, "(" * 5000 + ")" * 5000, "(" + "-" * 50_000 + "1, 1, 1)", "(1, 1, \0)"])
def test_a_line_that_kills_the_server_is_refused_with_its_number(subtests: pytest.Subtests, line: str) -> None:
    for place in [0, 3, 7]:
        with subtests.test(place=place):
            lines = GOOD.splitlines()
            lines.insert(place, line)
            with pytest.raises(Refusal, match=rf"\b{place + 1}\b") as refused:
                of_file("\n".join(lines))
            assert refused.value.id == "bucket_file_line"


def test_a_range_of_long_numbers_costs_nothing() -> None:
    """Written out it is ten thousand numbers of four thousand digits: 10 s and 170 MB for each of eleven in a line."""
    begun = time.process_time()
    with pytest.raises(Refusal) as refused:
        of_file(f"(range(1{'0' * 4200}, 1{'0' * 4196}9999), 1, 1)")
    assert refused.value.id == "bucket_file_line"
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    "text",
    [
        # One line of some kilobytes, and many of which none gives a shape.
        f"([{', '.join(['range(0, 10000)'] * 200)}], 1, 0)",
        "(range(0, 10000), [], 1)\n" * 1000,
    ],
)
def test_ranges_cost_no_more_than_shapes_do(text: str) -> None:
    """A node reports this text: written out it took gigabytes of the controller."""
    begun = time.process_time()
    with pytest.raises(Refusal) as refused:
        of_file(text)
    assert refused.value.id == "bucket_file_line"
    assert time.process_time() - begun < 10


@given(st.text(alphabet="()[]123, range#'x\n", max_size=60))
def test_whatever_stands_there_is_read_or_refused(text: str) -> None:
    try:
        prompt, decode = shapes(f"(1, 128, 0)\n(1, 1, 64)\n{text}")
    except Refusal as refused:
        assert refused.id in ("bucket_file_line", "too_many_graphs")
    else:
        assert all(len(shape) == 3 and shape[1] != 1 for shape in prompt)
        assert all(shape[1] == 1 for shape in decode)


@pytest.mark.parametrize(
    ("left", "phase"), [("(1, 256, 0)", "decode"), ("(1, 1, 256)", "prompt"), ("# none", "prompt")]
)
def test_a_file_without_one_phase_is_refused(left: str, phase: str) -> None:
    with pytest.raises(Refusal, match=f"no {phase} shape") as refused:
        of_file(left)
    assert refused.value.id == "bucket_file_without_phase"


def test_shapes_that_cannot_occur_are_left_out_and_named() -> None:
    found = of_file(GOOD)
    assert (1, 4096, 0) in found.left_out
    assert (1, 4096, 0) not in found.prompt
    # More sequences than blocks cannot be, unless the blocks are contiguous.
    assert (64, 1, 32) in of_file(GOOD + "(64, 1, 32)\n").left_out
    assert (64, 1, 32) in of_file(GOOD + "(64, 1, 32)\n", VLLM_CONTIGUOUS_PA="true").decode


def test_one_token_at_least_is_no_context() -> None:
    """34 full blocks and one token: a context of 34 blocks leaves a token for the query, one of 35 does not."""
    server = ServerSettings(16, 34 * 128 + 1, 2048, 128, 3000)
    found = buckets("0.26.0", server, ENVIRONMENT, "(1, 128, [34, 35])\n(1, 1, 64)\n")
    assert (found.prompt, found.left_out) == ([(1, 128, 34)], [(1, 128, 35)])


def test_a_file_of_shapes_that_cannot_occur_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        of_file("(1, 8192, 0)\n(1, 1, 64)\n")
    assert refused.value.id == "no_buckets"


def test_too_many_shapes_are_refused_before_they_are_made() -> None:
    with pytest.raises(Refusal, match="1000000000000 shapes") as refused:
        of_file("(range(0, 10000), range(0, 10000), range(0, 10000))\n")
    assert refused.value.id == "too_many_graphs"
    lines = "(1, range(2, 9002), 0)\n" * 30
    with pytest.raises(Refusal, match="shapes") as refused:
        of_file(lines)
    assert refused.value.id == "too_many_graphs"
