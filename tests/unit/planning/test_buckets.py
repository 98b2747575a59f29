"""The buckets of a plan for a server of the plugin: the lists, the choice, and what is said about both."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.pages.page import page
from ansible.module_utils.gaudi.planning.many import plan_all
from ansible.module_utils.gaudi.plugin_buckets.made import buckets
from ansible.module_utils.gaudi.plugin_buckets.server import ServerSettings
from ansible.module_utils.gaudi.serving.last_start import LastStart, sized_by

from tests.golden.serving_cases import vendor

RELEASES = {"1.23": "0.17.1", "1.24": "0.21.0", "1.24.1": "0.26.0"}
CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "head_dim": 128,
    "max_position_embeddings": 40960,
}
NUMBERS = {"max_model_len": 4352, "max_num_seqs": 64, "max_num_batched_tokens": 2048, "num_gpu_blocks_override": 2000}
SERVER = ServerSettings(64, 4352, 2048, 128, 2000)


def plan(release: str, file: str | None = None, /, **more: Any) -> dict[str, Any]:
    request = {"weights": "/models/Qwen3-8B", "model_config": CONFIG, "instance": "asked", **NUMBERS, **more}
    (made,) = plan_all(
        [request],
        vendor.catalogue(release),
        vendor.topology("oam8"),
        weights_root="/data/models",
        read_file=lambda _path: file,
    )
    return made


def lists(shapes: Sequence[tuple[int, ...]]) -> list[list[int]]:
    return [list(shape) for shape in shapes]


@pytest.mark.parametrize("strategy", ["exponential", "linear", "padding-aware"])
@pytest.mark.parametrize("release", RELEASES)
def test_the_lists_are_those_of_the_releases_plugin(release: str, strategy: str) -> None:
    made = plan(release, bucketing_strategy=strategy, contiguous_pa=True)
    if (release, strategy) == ("1.23", "padding-aware"):
        assert made["refused_id"] == "unknown_choice"
        return
    part, environment = made["buckets"], made["environment"]
    found = buckets(RELEASES[release], SERVER, environment)
    assert part["strategy"] == found.strategy == strategy
    assert found.contiguous_pa
    assert (part["prompt"], part["decode"]) == (lists(found.prompt), lists(found.decode))
    counts = (part["prompt_graphs"], part["decode_graphs"], part["graphs"])
    assert counts == (len(found.prompt), len(found.decode), found.graphs)
    assert (part["kv_blocks"], part["kv_blocks_from"]) == (2000, "num_gpu_blocks_override")
    assert part["reason"] == "as it was asked for"


def test_unified_attention_has_shapes_of_its_own() -> None:
    made = plan("1.23", bucketing_strategy="unified")
    part = made["buckets"]
    assert part["unified"] == lists(buckets("0.17.1", SERVER, {"VLLM_UNIFIED_ATTN": "true"}).unified)
    assert (part["unified_graphs"], part["graphs"]) == (len(part["unified"]),) * 2
    assert not {"prompt", "decode", "compared"} & set(part)


@pytest.mark.parametrize("release", RELEASES)
def test_a_strategy_is_chosen_and_the_choice_explained(release: str) -> None:
    part = plan(release)["buckets"]
    assert part["strategy"] == "exponential"
    assert part["reason"].startswith(f"exponential: {part['graphs']} graphs, about ")
    by_name = {row["strategy"]: row for row in part["compared"]}
    assert by_name["exponential"]["graphs"] == part["graphs"]
    for strategy, row in by_name.items():
        asked = plan(release, bucketing_strategy=strategy)["buckets"]
        assert row["graphs"] == asked["graphs"]
    assert by_name["linear"]["graphs"] > 2 * part["graphs"]
    assert by_name["linear"]["padding_percent"]["prompt"] < by_name["exponential"]["padding_percent"]["prompt"]


def test_a_chosen_strategy_reaches_the_server() -> None:
    rough = {"VLLM_PROMPT_QUERY_BUCKET_STEP": "512", "VLLM_PROMPT_CTX_BUCKET_STEP": "3"}
    few = {"max_model_len": 2048, "max_num_seqs": 1, "num_gpu_blocks_override": 64}
    made = plan("1.24.1", extra_environment=rough, **few)
    assert made["buckets"]["strategy"] == "padding-aware"
    found = buckets("0.26.0", ServerSettings(1, 2048, 2048, 128, 64), made["environment"])
    assert (found.strategy, lists(found.prompt)) == ("padding-aware", made["buckets"]["prompt"])
    assert made["environment"]["VLLM_BUCKETING_STRATEGY"] == "pad"
    (why,) = [entry for entry in made["explain"] if entry["value"] == "environment.VLLM_BUCKETING_STRATEGY"]
    assert why["rule"] == "bucketing-choice"


@pytest.mark.parametrize(
    ("release", "variable", "words"),
    [
        ("1.23", "VLLM_BUCKETING_STRATEGY", "plugin 0.17.1 has no such choice"),
        ("1.24", "VLLM_UNIFIED_ATTN", "no unified attention"),
        ("1.24.1", "VLLM_UNIFIED_ATTN", "no unified attention"),
    ],
)
def test_a_variable_that_is_not_read_changes_no_list(release: str, variable: str, words: str) -> None:
    made = plan(release, extra_environment={variable: "lin"})
    assert words in made["buckets"]["without_effect"][variable]
    assert variable not in made["environment"]
    assert any(variable in warning for warning in made["warnings"])
    assert made["buckets"]["prompt"] == plan(release)["buckets"]["prompt"]


@pytest.mark.parametrize("name", ["DECODE_BS_BUCKET_PAD_MAX", "PROMPT_SEQ_BUCKET_PAD_PERCENT"])
def test_a_number_of_later_versions_is_no_slip_of_the_pen(name: str) -> None:
    made = plan("1.23", extra_environment={f"VLLM_{name}": "8"})
    assert made["buckets"]["without_effect"] == {f"VLLM_{name}": "plugin 0.17.1 does not read it"}
    assert f"VLLM_{name}" not in made["environment"]
    assert f"VLLM_{name}" in " ".join(made["warnings"])
    assert made["buckets"]["decode"] == plan("1.23")["buckets"]["decode"]
    mistyped = plan("1.23", extra_environment={"VLLM_DECODE_BS_BUCKET_MAXX": "8"})
    assert "it looks like VLLM_DECODE_BS_BUCKET_MAX" in mistyped["refused"]


def test_the_old_name_of_the_query_is_known() -> None:
    made = plan("1.24", bucketing_strategy="linear", extra_environment={"VLLM_PROMPT_SEQ_BUCKET_MAX": "1024"})
    assert made["environment"]["VLLM_PROMPT_SEQ_BUCKET_MAX"] == "1024"
    assert max(query for _, query, _ in made["buckets"]["prompt"]) == 1024
    ignored = plan("1.24", extra_environment={"VLLM_PROMPT_SEQ_BUCKET_MAX": "1024"})
    assert "VLLM_PROMPT_SEQ_BUCKET_MAX is without effect" in " ".join(ignored["warnings"])


def test_where_the_kv_blocks_come_from_is_said() -> None:
    weights = {"model": "qwen3-8b", "weights": None, "model_config": None, "num_gpu_blocks_override": None}
    wish = {key: value for key, value in {**NUMBERS, **weights}.items() if value is not None}
    (made,) = plan_all(
        [wish], vendor.catalogue("1.23", "qwen3-8b"), vendor.topology("oam8"), weights_root="/data/models"
    )
    part = made["buckets"]
    assert part["kv_blocks"] == made["memory"]["kv_cache_blocks"]
    assert part["kv_blocks_from"] == "the memory model"
    server = ServerSettings(64, 4352, 2048, 128, part["kv_blocks"])
    assert part["decode"] == lists(buckets("0.17.1", server, made["environment"]).decode)
    unknown = plan("1.24", num_gpu_blocks_override=None, contiguous_pa=True)
    assert unknown["buckets"]["kv_blocks"] == 64 * 34
    for depending in (made, unknown):
        assert "The buckets follow from the number of KV blocks" in " ".join(depending["warnings"])
    # Without contiguous paged attention 0.21.0 reaches what the sequences can have, whatever there is.
    for fixed in (plan("1.24", contiguous_pa=True), plan("1.24", num_gpu_blocks_override=None)):
        assert "number of KV blocks" not in " ".join(fixed["warnings"])


FILE = "(1, [128, 256], [0, 8])\n(1, 8192, 0)\n([1, 4], 1, [64, 128])\n"


def test_a_bucket_file_says_all_shapes() -> None:
    made = plan("1.24.1", FILE, bucketing_file="/srv/buckets/shapes.txt")
    part = made["buckets"]
    assert part["strategy"] == "file"
    assert part["prompt"] == [[1, 128, 0], [1, 128, 8], [1, 256, 0], [1, 256, 8]]
    assert [batch for batch, _, _ in part["decode"]] == [1, 4, 4]
    assert "1 shapes of bucketing_file cannot occur" in " ".join(made["warnings"])
    assert made["requires"]["files"] == ["/srv/buckets/shapes.txt"]


def test_a_bucket_file_that_kills_the_server_is_refused() -> None:
    made = plan("1.24.1", FILE + "(1, 2)\n", bucketing_file="/srv/buckets/shapes.txt")
    assert made["refused_id"] == "bucket_file_line"
    assert "Line 4 of the bucket file" in made["refused"]


def test_the_fewest_cards_read_the_bucket_file_as_well() -> None:
    made = plan("1.24.1", FILE + "(1, 2)\n", bucketing_file="/srv/buckets/shapes.txt", tensor_parallel_size="auto")
    assert made["refused_id"] == "bucket_file_line"


def test_a_bucket_file_that_nobody_can_read_leaves_the_lists_open() -> None:
    made = plan("1.24.1", None, bucketing_file="/srv/buckets/shapes.txt")
    assert made["buckets"]["strategy"] == "file"
    assert not {"prompt", "decode", "graphs"} & set(made["buckets"])
    assert "was not found" in " ".join(made["warnings"])


@pytest.mark.parametrize(
    ("wish", "word"), [({"enforce_eager": True}, "enforce_eager"), ({"skip_warmup": True}, "skip")]
)
def test_without_a_warm_up_the_lists_are_there_and_no_graph(wish: dict[str, bool], word: str) -> None:
    part = plan("1.24", **wish)["buckets"]
    assert word in part["warmup"]
    assert part["graphs"] == part["prompt_graphs"] == part["decode_graphs"] == 0
    assert part["prompt"] == plan("1.24")["buckets"]["prompt"]


def test_speculation_adds_decode_shapes() -> None:
    wish = {"speculative_config": {"method": "eagle3", "model": "/models/draft", "num_speculative_tokens": 3}}
    server = ServerSettings(64, 4352, 2048, 128, 2000, num_speculative_tokens=3)
    made = plan("1.24", **wish)
    assert made["buckets"]["decode"] == lists(buckets("0.21.0", server, made["environment"]).decode)


def test_the_page_counts_shapes_and_does_not_list_them() -> None:
    made = plan("1.24.1", bucketing_strategy="linear")
    text = page([made], None)
    count = len(made["buckets"]["prompt"])
    assert f"{count:,} shapes, (1, 128, 0) to" in " ".join(text.split())
    assert "as padding-aware" in text
    assert "[1, 128, 0]" not in text
    assert len(text.splitlines()) < 200


def test_thousands_of_graphs_are_warned_of() -> None:
    long = {"max_model_len": 131072, "max_num_batched_tokens": 8192, "num_gpu_blocks_override": 2000}
    config = {**CONFIG, "max_position_embeddings": 131072}
    made = plan("1.24", bucketing_strategy="linear", model_config=config, **long)
    assert made["buckets"]["graphs"] > 60_000
    assert f"compiles {made['buckets']['graphs']} graphs, which takes hours" in " ".join(made["warnings"])


GDN = {
    **CONFIG,
    "model_type": "qwen3_next",
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 9,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
MAMBA = {
    **CONFIG,
    "model_type": "granitemoehybrid",
    "layer_types": ["mamba"] * 32 + ["attention"] * 4,
    "mamba_n_heads": 64,
    "mamba_d_head": 64,
    "mamba_n_groups": 1,
    "mamba_d_state": 128,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 256,
}


def test_chunks_of_gated_delta_nets_divide_the_tokens() -> None:
    refused = plan("1.24", model_config=GDN, max_num_batched_tokens=2000)
    assert refused["refused_id"] == "tokens_not_in_chunks"
    assert "Set it to 2048" in refused["refused"]
    assert plan("1.23", model_config=GDN, max_num_batched_tokens=2000)["refused_id"] == "unsupported_feature"
    # Chunks that no configuration names round no query.
    assert plan("1.24", model_config=GDN)["buckets"]["prompt"] == plan("1.24")["buckets"]["prompt"]


@pytest.mark.parametrize("release", RELEASES)
def test_chunks_of_mamba_round_the_queries(release: str) -> None:
    part = plan(release, model_config=MAMBA)["buckets"]
    assert {query % 256 for _, query, _ in part["prompt"]} == {0}
    # Blocks of this kind of model have 528 tokens.
    server = ServerSettings(64, 4352, 2048, 528, 2000, mamba_chunk_size=256, mamba_chunk_named=True)
    assert part["decode"] == lists(buckets(RELEASES[release], server, {}).decode)
    unnamed = {name: value for name, value in MAMBA.items() if name != "mamba_chunk_size"}
    assert "chunk size of this Mamba model is not known" in " ".join(plan(release, model_config=unnamed)["warnings"])


def started(instance: str, digest: str, state_of: dict[str, Any]) -> dict[str, LastStart]:
    """What a node's supervisor wrote down, as it is read."""
    start = LastStart.from_state({"sized_by": digest, "memory": state_of})
    return {} if start is None else {instance: start}


def test_the_blocks_of_the_last_start_count_as_long_as_what_they_follow_from_is_the_same() -> None:
    catalogue, node = vendor.catalogue("1.23", "qwen3-8b"), vendor.topology("oam8")

    def made(logged: dict[str, LastStart], **more: Any) -> dict[str, Any]:
        request = {"instance": "asked", "model": "qwen3-8b", "max_model_len": 4352, **more}
        (found,) = plan_all([request], catalogue, node, weights_root="/data/models", last_starts=logged)
        return found

    planned = made({})
    logged = started("asked", sized_by(planned), {"kv_cache_blocks": "1700"})
    counted = made(logged)
    part = counted["buckets"]
    assert (part["kv_blocks"], part["kv_blocks_from"]) == (1700, "this node's last start")
    server = ServerSettings(32, 4352, 2048, 128, 1700)
    found = buckets("0.17.1", server, counted["environment"])
    assert (part["prompt"], part["decode"]) == (lists(found.prompt), lists(found.decode))
    assert (part["decode_graphs"], part["graphs"]) == (len(found.decode), found.graphs)
    assert part["decode"] != planned["buckets"]["decode"]
    assert "number of KV blocks" in " ".join(planned["warnings"])
    assert "number of KV blocks" not in " ".join(counted["warnings"])
    assert "this node's last start" in page([counted], None)
    # What is started does not follow from how it started last: a second run restarts nothing.
    assert all(counted[key] == planned[key] for key in counted if key not in ("buckets", "explain", "warnings"))
    # Where clients ask is another matter; how memory is divided is not.
    assert made(logged, port=30009)["buckets"]["kv_blocks"] == 1700
    for other in ({"gpu_memory_utilization": 0.5}, {"max_num_seqs": 16}, {"extra_environment": {"VLLM_DEFRAG": "1"}}):
        assert made(logged, **other)["buckets"]["kv_blocks_from"] == "the memory model"
    assert made({"other": logged["asked"]})["buckets"]["kv_blocks_from"] == "the memory model"
    assert made(logged, num_gpu_blocks_override=900)["buckets"]["kv_blocks_from"] == "num_gpu_blocks_override"


def test_what_a_server_logs_keeps_nobody_from_planning_it_again() -> None:
    """It may be of anybody's making, or read from an image's own words."""
    catalogue, node = vendor.catalogue("1.24.1", "qwen3-8b"), vendor.topology("oam8")
    wish = {"bucketing_strategy": "linear", "extra_environment": {"VLLM_CONTIGUOUS_PA": "true"}}
    request = {"instance": "asked", "model": "qwen3-8b", "max_model_len": 4352, **wish}

    def made(logged: dict[str, LastStart]) -> dict[str, Any]:
        (found,) = plan_all([request], catalogue, node, weights_root="/data/models", last_starts=logged)
        return found

    planned = made({})
    again = made(started("asked", sized_by(planned), {"kv_cache_blocks": "9999999999"}))
    assert "refused" not in again
    assert again["buckets"] == planned["buckets"]
    assert "logged 9999999999 KV blocks" in " ".join(again["warnings"])


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"sized_by": "1"},
        {"sized_by": "1", "memory": None},
        {"sized_by": "1", "memory": {"kv_cache_blocks": "0"}},
        {"sized_by": "1", "memory": {"kv_cache_blocks": "12 blocks"}},
        {"sized_by": "1", "memory": {"kv_cache_blocks": "9" * 40}},
        {"sized_by": 7, "memory": {"kv_cache_blocks": "12"}},
        {"memory": {"kv_cache_blocks": "12"}},
    ],
)
def test_a_state_without_a_number_is_no_last_start(state: dict[str, Any]) -> None:
    assert LastStart.from_state(state) is None


RECORDED = Path(__file__).parents[1] / "serving/recorded"


@pytest.mark.parametrize(
    ("log", "server"),
    [
        ("start__0.26.0_gaudi2_tp8__qwen3-235b.txt", ServerSettings(64, 32768, 8192, 128, 5268)),
        # Attention blocks have 1,152 tokens there; buckets are counted in blocks of 128.
        ("start__0.26.0_gaudi2_tp1__qwen3.6-35b-a3b_compile_mode.txt", ServerSettings(128, 2048, 8192, 128, 591)),
    ],
)
def test_the_lists_are_those_of_servers_of_an_owner(log: str, server: ServerSettings) -> None:
    text = (RECORDED / log).read_text(encoding="utf-8")
    printed = {
        phase: json.loads(shapes.replace("(", "[").replace(")", "]"))
        for phase, shapes in re.findall(r"Generated \d+ (prompt|decode) buckets [^:]*: (\[.*\])", text)
    }
    found = buckets("0.26.0", server, {})
    assert {"prompt": lists(found.prompt), "decode": lists(found.decode)} == printed
