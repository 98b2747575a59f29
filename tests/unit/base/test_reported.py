"""What a node reports and others receive: hostile reports end in a sentence, or are left out."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base import reported
from hypothesis import given, settings
from hypothesis import strategies as st

from filter_plugins.checked import reported as reported_filter

HOSTILE = [
    "../../etc/passwd",
    "a\0b",
    "\x1b]0;x\x07",
    "a\nb",
    "{{ 7 * 7 }}",
    "$(id)",
    "-e",
    "x" * 10_000,
    10**400,
    True,
]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(reported.CHECKS)), ANY_JSON)
def test_any_json_is_refused_in_a_sentence_or_becomes_plain_data(name: str, value: Any) -> None:
    with contextlib.suppress(AnsibleFilterError):
        json.dumps(reported_filter(value, name), allow_nan=False)


def test_an_id_of_an_image_is_a_checksum() -> None:
    assert reported_filter(f"sha256:{'0a' * 32}", "image_id") == f"sha256:{'0a' * 32}"


@given(ANY_JSON)
def test_what_is_no_reference_of_an_image_is_left_out(value: Any) -> None:
    good = "registry.example:5000/gaudi/vllm:1.22-0123456789ab"
    assert good in reported.images([value, good, *HOSTILE])
    assert not set(map(str, HOSTILE)) & set(reported.images([value, good, *HOSTILE]))


@pytest.mark.parametrize("count", [reported.MOST_ENTRIES + 1, 10**6])
def test_no_more_images_are_read_than_a_node_can_have(count: int) -> None:
    assert len(reported.images(["vllm:1"] * count)) == reported.MOST_ENTRIES
