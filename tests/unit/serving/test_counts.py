"""What is counted while a server serves: shapes without a warm-up in every release's words, and its own metrics."""

from __future__ import annotations

import re

import pytest
from ansible.module_utils.gaudi.base.documents import misfit
from ansible.module_utils.gaudi.serving import counts
from ansible.module_utils.gaudi.serving.counts import Counts, shape_of
from ansible.module_utils.gaudi.serving.load import Load
from hypothesis import given
from hypothesis import strategies as st

from plugin_utils import releases

V0 = "WARNING 04-28 07:43:17 [hpu_model_runner.py:1013] "
WORKER = "(Worker_TP3 pid=812) WARNING 11-24 08:00:00 [hpu_model_runner.py:3588] "


@pytest.mark.parametrize(
    ("line", "key"),
    [
        # vllm-fork of 1.18, and deepseek_r1.
        (
            "WARNING 11-24 08:00:00 habana_model_runner.py:1812] Configuration: (prompt, 1, 36864) {}",
            "prompt 1 36864 0",
        ),
        (f"{V0}Configuration: (decode, 8, 640) {{}}", "decode 8 1 640"),
        (f"{V0}Configuration: (prefix_prefill, 2, 512, 16) {{}}", "prompt 2 512 16"),
        # 1.21 and 1.22 without prefix caching. Models with an encoder of 1.22 name the blocks of a batch twice.
        (f"{V0}Configuration: ('prompt', 16, 896) {{}}", "prompt 16 896 0"),
        (f"{V0}Configuration: ('decode', 32, 1664, 1664) {{}}", "decode 32 1 1664"),
        # The plugin.
        (f"{WORKER}Configuration: ('decode', 40, 1, 128) {{}}", "decode 40 1 128"),
        (f"{WORKER}Configuration: ('prompt', 1, 3200, 0) {{}}", "prompt 1 3200 0"),
        # Its unified attention.
        (f"{WORKER}Configuration: (query, shared_blocks, unique_blocks) (64, 8, 3), (causal) {{}}", "unified 64 8 3"),
        (f"{WORKER}Configuration: ('c-u', 64, 8, 3, 16) {{}}", "unified 64 8 3"),
    ],
)
def test_shape_of_each_release_is_read(line: str, key: str) -> None:
    shape = shape_of(line.format("was not warmed-up!"))
    assert shape is not None
    assert shape.key == key


@pytest.mark.parametrize(
    "line",
    [
        f"{WORKER}Configuration: ('prompt', 1, many, 0) was not warmed-up!",
        f"{WORKER}Configuration: ('prompt', 1, 3200, 0) was warmed up",
        f"{WORKER}Configuration: ('decode', 1) was not warmed-up!",
        f"{WORKER}Configuration: ('c-u', 64, 8) was not warmed-up!",
        # A prompt in a line of its own, as servers log requests when asked to.
        "INFO 11-24 08:00:00 [logger.py:1] Received request: 'Configuration: (prompt, 1, 128) was not warmed-up!'",
        f"{WORKER}Configuration: (my secret, 1, 128) was not warmed-up!",
        f"{WORKER}Prompt bucket for (1, 2108, 0) was not prepared. Adding new bucket: (1, 3200, 0)",
    ],
)
def test_shape_of_other_lines_is_none(line: str) -> None:
    assert shape_of(line) is None


def test_catalogue_names_the_line_that_is_read() -> None:
    """The form in the catalogue, with a shape put in."""
    for release in ("1.23", "1.24", "1.24.1"):
        line = releases.read(release)["log_formats"]["not_warmed_up"].replace("<shapes>", "'prompt', 1, 3200, 0")
        assert shape_of(line) is not None


def test_commonest_is_the_most_frequent_then_the_largest() -> None:
    heard = Counts()
    assert heard.commonest is None
    for shape in ("'prompt', 1, 3200, 0", "'prompt', 1, 6400, 0", "'decode', 4, 1, 128", "'decode', 4, 1, 128"):
        heard.hear(f"{WORKER}Configuration: ({shape}) was not warmed-up!")
    assert str(heard.commonest) == "decode: batch 4, 128 blocks"
    heard.shapes = dict.fromkeys(heard.shapes, 1)
    assert str(heard.commonest) == "prompt: batch 1, 6400 tokens"


def test_counts_of_many_shapes_stay_bounded() -> None:
    heard = Counts()
    for number in range(counts.MOST_SHAPES + 5):
        heard.hear(f"{WORKER}Configuration: ('prompt', 1, {number}, 0) was not warmed-up!")
    heard.hear(f"{WORKER}Configuration: ('prompt', 1, 0, 0) was not warmed-up!")
    assert (len(heard.shapes), heard.others, heard.shapes["prompt 1 0 0"]) == (counts.MOST_SHAPES, 5, 2)


@given(st.text(max_size=200))
def test_counts_keep_nothing_but_numbers_and_phases(text: str) -> None:
    heard = Counts()
    heard.hear(f"Configuration: {text} was not warmed-up!")
    heard.hear(f"{WORKER}Configuration: ({text}) was not warmed-up!")
    assert all(re.fullmatch(r"(prompt|decode|unified)( [0-9]{1,9}){3}", key) for key in heard.shapes)


def test_checks_of_an_idle_server_change_nothing() -> None:
    heard = Counts()
    heard.check(Load(0, 0, None, None))
    assert heard == Counts()
    heard.check(Load(2, 3, None, None, preemptions=1, finished=8, cut=2))
    heard.check(Load(2, 0, None, None, preemptions=4, finished=9, cut=2))
    assert heard == Counts(checks=2, waited=1, most_waiting=3, preemptions=4, finished=9, cut=2)


def test_counts_are_written_and_read_again() -> None:
    heard = Counts({"prompt 1 3200 0": 2}, checks=3)
    assert misfit(heard.document(), counts.FORM) is None
    assert Counts.from_document(heard.document()) == heard
    damaged = {**heard.document(), "shapes": {"my secret": 1, "decode 1 1 8": 1}}
    assert Counts.from_document(damaged).shapes == {"decode 1 1 8": 1}
    # What is written does not change with what is counted later.
    written = heard.document()
    heard.hear(f"{WORKER}Configuration: ('prompt', 1, 64, 0) was not warmed-up!")
    assert written["shapes"] == {"prompt 1 3200 0": 2}
