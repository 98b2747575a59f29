"""Variables of bucketing: which are read, which are not, and what each version stops at."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.plugin_buckets.made import buckets
from ansible.module_utils.gaudi.plugin_buckets.server import ServerSettings
from hypothesis import given
from hypothesis import strategies as st

SERVER = ServerSettings(16, 4352, 2048, 128, 900)
LONG = ServerSettings(16, 16_384, 2048, 128, 900)
OLD, MIDDLE, NEW = "0.17.1", "0.21.0", "0.26.0"
FILE = "(1, 128, 0)\n(1, 1, 64)\n"

DIMENSIONS = ("PROMPT_BS", "PROMPT_QUERY", "PROMPT_SEQ", "PROMPT_CTX", "DECODE_BS", "DECODE_BLOCK")
PARAMETERS = ("MIN", "STEP", "MAX", "PAD_MAX", "PAD_PERCENT")
NUMBERS = [f"VLLM_{dimension}_BUCKET_{parameter}" for dimension in DIMENSIONS for parameter in PARAMETERS]


def without_effect(plugin: str, _server: ServerSettings | None = None, /, **environment: str) -> dict[str, str]:
    return dict(buckets(plugin, _server or SERVER, environment, FILE).without_effect)


def test_a_version_names_what_it_does_not_read() -> None:
    found = without_effect(OLD, VLLM_BUCKETING_STRATEGY="lin")
    assert list(found) == ["VLLM_BUCKETING_STRATEGY"]
    assert "plugin 0.17.1 has no such choice" in found["VLLM_BUCKETING_STRATEGY"]
    assert without_effect(NEW, VLLM_BUCKETING_STRATEGY="lin") == {}
    for plugin in (MIDDLE, NEW):
        found = without_effect(plugin, VLLM_UNIFIED_ATTN="1")
        assert "no unified attention" in found["VLLM_UNIFIED_ATTN"]
    assert without_effect(OLD, VLLM_UNIFIED_ATTN="1") == {}
    assert without_effect(OLD, VLLM_EXPONENTIAL_BUCKETING="false", VLLM_DECODE_BS_BUCKET_PAD_MAX="4") == {
        "VLLM_DECODE_BS_BUCKET_PAD_MAX": "plugin 0.17.1 does not read it"
    }


def test_the_exponential_strategy_reads_three_numbers() -> None:
    environment = dict.fromkeys(NUMBERS, "1")
    unread = set(without_effect(NEW, LONG, **environment))
    read = {"VLLM_PROMPT_BS_BUCKET_MAX", "VLLM_PROMPT_QUERY_BUCKET_MIN", "VLLM_PROMPT_CTX_BUCKET_MAX"}
    assert set(environment) - unread == read
    # The context only of long prompts, and no other minimum of a query than 1.
    assert set(environment) - set(without_effect(NEW, **environment)) == read - {"VLLM_PROMPT_CTX_BUCKET_MAX"}
    assert "VLLM_PROMPT_QUERY_BUCKET_MIN" in without_effect(NEW, VLLM_PROMPT_QUERY_BUCKET_MIN="256")


def test_the_old_name_of_the_query_is_read_where_the_new_one_is_not_set() -> None:
    linear = {"VLLM_BUCKETING_STRATEGY": "lin"}
    assert without_effect(NEW, **linear, VLLM_PROMPT_SEQ_BUCKET_MAX="1024") == {}
    found = buckets(NEW, SERVER, {**linear, "VLLM_PROMPT_SEQ_BUCKET_MAX": "1024"})
    assert max(query for _, query, _ in found.prompt) == 1024
    unread = without_effect(NEW, **linear, VLLM_PROMPT_SEQ_BUCKET_MAX="1024", VLLM_PROMPT_QUERY_BUCKET_MAX="512")
    assert list(unread) == ["VLLM_PROMPT_SEQ_BUCKET_MAX"]


@given(
    st.sampled_from([OLD, MIDDLE, NEW]),
    st.sampled_from([SERVER, LONG]),
    st.sampled_from(
        [
            {},
            {"VLLM_EXPONENTIAL_BUCKETING": "true"},
            {"VLLM_EXPONENTIAL_BUCKETING": "false"},
            {"VLLM_BUCKETING_STRATEGY": "pad"},
            {"VLLM_BUCKETING_STRATEGY": "lin", "VLLM_EXPONENTIAL_BUCKETING": "1"},
            {"VLLM_BUCKETING_FROM_FILE": "file"},
            {"VLLM_UNIFIED_ATTN": "1"},
            {"VLLM_ENABLE_BUCKETING": "no"},
            {"VLLM_MERGED_PREFILL": "yes", "VLLM_EXPONENTIAL_BUCKETING": "false"},
            {"VLLM_MERGED_PREFILL": "yes"},
        ]
    ),
    st.dictionaries(st.sampled_from(NUMBERS), st.sampled_from(["1", "2", "16", "32"]), max_size=6),
)
def test_what_is_without_effect_has_none(
    plugin: str, server: ServerSettings, switches: dict[str, str], numbers: dict[str, str]
) -> None:
    environment = {**switches, **numbers}
    try:
        found = buckets(plugin, server, environment, FILE)
    except Refusal:
        return
    rest = {name: text for name, text in environment.items() if name not in found.without_effect}
    without = buckets(plugin, server, rest, FILE)
    assert (without.prompt, without.decode, without.unified) == (found.prompt, found.decode, found.unified)


@pytest.mark.parametrize(
    ("plugin", "environment", "id_"),
    [
        (NEW, {"VLLM_BUCKETING_STRATEGY": "foo"}, "unknown_choice"),
        (MIDDLE, {"VLLM_BUCKETING_STRATEGY": ""}, "unknown_choice"),
        # It stops at any number that is none, used or not.
        (NEW, {"VLLM_DECODE_BS_BUCKET_MIN": "many"}, "not_a_whole_number"),
        (NEW, {"VLLM_PROMPT_BS_BUCKET_MAX": "0"}, "out_of_range"),
        (NEW, {"VLLM_BUCKETING_STRATEGY": "lin", "VLLM_PROMPT_CTX_BUCKET_STEP": "0"}, "out_of_range"),
        (NEW, {"VLLM_BUCKETING_STRATEGY": "lin", "VLLM_PROMPT_CTX_BUCKET_MIN": "-1"}, "out_of_range"),
        (NEW, {"VLLM_BUCKETING_STRATEGY": "pad", "VLLM_PROMPT_CTX_BUCKET_PAD_PERCENT": "51"}, "out_of_range"),
        (NEW, {"VLLM_BUCKETING_STRATEGY": "lin", "VLLM_PROMPT_QUERY_BUCKET_MIN": "4096"}, "range_backwards"),
        (NEW, {"VLLM_BUCKETING_STRATEGY": "lin", "VLLM_PROMPT_CTX_BUCKET_MAX": "9999999"}, "too_many_graphs"),
        (OLD, {"VLLM_UNIFIED_ATTN": "1", "VLLM_CONTIGUOUS_PA": "false"}, "unified_needs_both"),
        (OLD, {"VLLM_UNIFIED_ATTN": "1", "VLLM_MERGED_PREFILL": "false"}, "unified_needs_both"),
        (NEW, {"PT_HPU_SDPA_QKV_SLICE_MODE_FWD": "true", "PT_HPU_SDPA_BC_FACTOR": "0"}, "out_of_range"),
        (NEW, {"PT_HPU_SDPA_QKV_SLICE_MODE_FWD": "true", "PT_HPU_SDPA_BC_FACTOR": "big"}, "not_a_whole_number"),
        ("0.18.0", {}, "bucket_rules_unknown"),
    ],
)
def test_what_a_server_stops_at_is_refused(plugin: str, environment: dict[str, str], id_: str) -> None:
    with pytest.raises(Refusal) as refused:
        buckets(plugin, SERVER, environment)
    assert refused.value.id == id_


@pytest.mark.parametrize(
    ("server", "environment", "id_"),
    [
        (ServerSettings(0, 4352, 2048, 128, 900), {}, "out_of_range"),
        (ServerSettings(16, 4352, 2048, 128, 0), {}, "out_of_range"),
        (ServerSettings(1, 4352, 1, 128, 900), {}, "out_of_range"),
        (ServerSettings(16, 4352, 2000, 128, 900, mamba_chunk_size=256), {}, "tokens_not_in_chunks"),
        (ServerSettings(1, 4352, 2048, 128, 900), {"VLLM_UNIFIED_ATTN": "1"}, "unified_one_sequence"),
        # A step beyond the only query there is: the plugin ends with 0 prompt buckets.
        (
            SERVER,
            {"VLLM_EXPONENTIAL_BUCKETING": "false", "VLLM_PROMPT_QUERY_BUCKET_STEP": "4096"},
            None,
        ),
        (
            SERVER,
            {
                "VLLM_EXPONENTIAL_BUCKETING": "false",
                "VLLM_PROMPT_BS_BUCKET_MAX": "64",
                "VLLM_PROMPT_BS_BUCKET_MIN": "64",
            },
            "no_buckets",
        ),
    ],
)
def test_numbers_a_server_stops_at_are_refused(
    server: ServerSettings, environment: dict[str, str], id_: str | None
) -> None:
    if id_ is None:
        assert buckets(OLD, server, environment).prompt
        return
    with pytest.raises(Refusal) as refused:
        buckets(OLD, server, environment)
    assert refused.value.id == id_


def test_without_bucketing_there_are_no_shapes_and_nothing_to_stop_at() -> None:
    server = ServerSettings(16, 4352, 2000, 128, 900, mamba_chunk_size=256)
    found = buckets(NEW, server, {"VLLM_ENABLE_BUCKETING": "off"})
    assert (found.strategy, found.graphs) == ("off", 0)


def test_contiguous_pa_is_what_the_plugin_takes_it_for() -> None:
    def contiguous(plugin: str, **environment: str) -> bool:
        return buckets(plugin, SERVER, environment).contiguous_pa

    assert not contiguous(NEW)
    assert contiguous(NEW, VLLM_CONTIGUOUS_PA="YES")
    assert not contiguous(NEW, VLLM_CONTIGUOUS_PA="enabled")
    assert contiguous(NEW, VLLM_PREFIX_CACHING="false")
    assert not contiguous(NEW, VLLM_PREFIX_CACHING="false", VLLM_CONTIGUOUS_PA="0")
    assert contiguous(OLD, VLLM_UNIFIED_ATTN="1")


def test_long_prompts_fill_whole_slices() -> None:
    sliced = {"PT_HPU_SDPA_QKV_SLICE_MODE_FWD": "true", "VLLM_FUSEDSDPA_SLIDE_THLD": "1024"}
    lists = [{query for _, query, blocks in buckets(NEW, SERVER, env).prompt if not blocks} for env in ({}, sliced)]
    assert lists[1] == {query for query in lists[0] if query < 1024 or query % 1024 == 0} != lists[0]
