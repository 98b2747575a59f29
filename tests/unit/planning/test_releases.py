"""The release files: complete, pinned, and every plan within what its release knows."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ansible.module_utils.gaudi.families.registry import FAMILIES
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.request.options import OPTIONS, READERS
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.plan_checks import beyond_surface, entry, unexplained
from tests.golden.serving_cases import vendor

RELEASES = sorted(path.stem for path in (vendor.CATALOG / "releases").glob("*.yml"))
FORKS = {
    "1.16": "14f489ea6",
    "1.18": "84922944d",
    "1.21": "277a33cd9",
    "1.22": "4cd8c0613",
    "1.22-2025.11": "17a7946f4",
    "deepseek-r1": "687dd5bbd",
    "deepseek-r1-2025.11": "016b6bd20",
}


def test_the_releases_of_the_manuals_are_there() -> None:
    assert set(FORKS) <= set(RELEASES)


def test_pins_are_commits_and_images_are_builds(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            read = entry(release)
            assert read.name == release
            plugin = "vllm_gaudi" in read.pins
            assert plugin or read.pins["vllm_fork"].commit.startswith(FORKS.get(release, ""))
            for pin in read.pins.values():
                assert re.fullmatch(r"[0-9a-f]{40}", pin.commit)
            code = {"vllm_gaudi", "vllm"} if plugin else {"vllm_fork"}
            assert set(read.pins) >= {*code, "libfabric", "hccl_ofi_wrapper", "hccl_demo"}
            # The releases whose requirement files name branches of the other two of the triple.
            if release.startswith(("1.22", "deepseek")):
                assert set(read.pins) >= {"vllm_hpu_extension", "neural_compressor"}
            assert read.image["tag"] == read.software["driver"]
            assert str(read.software["release"]) in read.image["path"]
            assert read.image["path"].endswith(f"-{read.software['pytorch']}")
            assert read.fork_directory == ("/opt/vllm-gaudi" if plugin else "/opt/vllm-fork")
            assert read.rules in FAMILIES
            assert set(read.execution_modes) >= {"0 0", "0 1", "1 0", "1 1"}


@pytest.mark.parametrize(
    ("release", "key", "words"),
    [
        ("1.16", "kernel_minimum", ["5.4", "5.15"]),
        ("1.18", "kernel_minimum", ["5.4", "5.15"]),
        ("1.18", "graph_reserved_mem", ["0.4", "0.1"]),
    ],
)
def test_a_value_that_differs_from_its_manual_says_so(release: str, key: str, words: list[str]) -> None:
    (said,) = (source for source in entry(release).sources if source.startswith(f"{key}:"))
    assert all(word in said for word in words)


def test_a_tag_that_moves_is_refused() -> None:
    content = vendor.content("releases", "1.22")
    moved = {**content, "image": {**content["image"], "tag": "latest"}}
    with pytest.raises(Refusal, match="latest"):
        ReleaseEntry.from_mapping(moved)


def test_what_is_exported_is_read(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            read = entry(release)
            assert set(read.environment) <= read.variables
            for key in ("fp8_environment", "bfloat16_environment"):
                assert set(read.constants.get(key, {})) <= read.variables


def test_a_release_has_buckets_or_says_what_it_captures(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            read = entry(release)
            fixed = {"captured_batches", "captured_lengths"} & set(read.constants)
            assert read.constants["buckets"] == (release != "1.16") == (not fixed)
            # The variables of buckets are read where there are some.
            assert read.constants["buckets"] == ("VLLM_PROMPT_SEQ_BUCKET_MAX" in read.variables)


def test_the_documentation_of_another_release_proves_no_variable(subtests: pytest.Subtests) -> None:
    """The lists ``documentation`` are those of 1.18: a name counts where the code of the release reads it as well."""
    for release in RELEASES:
        with subtests.test(release=release):
            lists = vendor.content("releases", release)["variables"]
            code = set().union(*(names for place, names in lists.items() if place != "documentation"))
            assert set(lists.get("documentation", ())) <= code


flags = st.fixed_dictionaries(
    {},
    optional={
        "tensor_parallel_size": st.sampled_from([1, 2, 4, 8]),
        "dtype": st.sampled_from(["auto", "bfloat16", "float32", "fp8", "awq", "gptq"]),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8_inc"]),
        "skip_warmup": st.booleans(),
        "profile": st.booleans(),
        "zero_padding": st.booleans(),
        "fused_sdpa": st.booleans(),
        "fp32_softmax": st.booleans(),
        "enforce_eager": st.booleans(),
        "lazy_mode": st.booleans(),
        "graph_reserved_mem": st.sampled_from([0.1, 0.4]),
        "exponential_bucketing": st.booleans(),
        "log_step_graph_compilation": st.booleans(),
        "metrics_gc_details": st.booleans(),
        "limit_mm_per_prompt": st.sampled_from([{"image": 2}, {"image": 0, "video": 1}]),
        "mm_processor_kwargs": st.just({"max_pixels": 1003520}),
        "max_num_prefill_seqs": st.sampled_from([1, 4, "auto"]),
        "scheduler_steps": st.sampled_from([1, 4]),
        "trust_remote_code": st.booleans(),
        "recipe_cache": st.sampled_from([False, "/data/cache"]),
        "max_seq_len_to_capture": st.sampled_from([2048, 8192]),
    },
)


@settings(max_examples=250, deadline=None)
@given(flags, st.sampled_from(RELEASES), st.sampled_from(["/models/QwQ-32B", "/models/Qwen3-235B-A22B"]))
def test_drawn_requests_are_within_what_the_release_knows(options: dict[str, Any], release: str, path: str) -> None:
    plan = vendor.plan_request(release, {"weights": path, **options})
    assert "refused" in plan or [*beyond_surface(release, plan), *unexplained(plan)] == []


def test_every_option_is_read_and_documented() -> None:
    text = (vendor.ROOT / "library" / "serving_plan.py").read_text(encoding="utf-8")
    found = re.search(r'DOCUMENTATION = r"""(.*?)"""', text, re.DOTALL)
    assert found
    documented = yaml.safe_load(found.group(1))["options"]["requests"]["suboptions"]
    assert set(documented) == set(OPTIONS) == set(READERS)
    for family in FAMILIES.values():
        assert set(family.without_effect) | set(family.options_in_environment.values()) <= set(OPTIONS)


def test_cards() -> None:
    cards = CardType.table(vendor.content("", "cards"))
    assert {"HL-205", "HL-225", "HL-288", "HL-288E", "HL-325", "HL-325L", "HL-338"} <= set(cards)
    assert cards["HL-225"].memory_mib == 98304
    assert cards["HL-288E"].pci_ids == ("1da3:1021",)
    fabric = cards["HL-225"].fabric
    sample = fabric.sample("all_reduce", 8, 32 << 20) if fabric else None
    assert sample is not None
    assert sample.nw_gb_s == 258.209121
    assert {name for name, card in cards.items() if card.fp8_max == 240} >= {"HL-225", "HL-288", "HL-288E"}


@pytest.mark.parametrize("key", ["rules", "image", "constants", "arguments", "variables", "pins", "sources"])
def test_a_release_file_that_lacks_a_key_is_refused_by_name(key: str) -> None:
    content = vendor.content("releases", "1.22")
    with pytest.raises(Refusal, match=rf"catalog/releases/1\.22\.yml.*{key}"):
        ReleaseEntry.from_mapping({name: value for name, value in content.items() if name != key})
    with pytest.raises(Refusal, match=r"catalog/releases/1\.22\.yml.*surprise"):
        ReleaseEntry.from_mapping({**content, "surprise": 1})


@pytest.mark.parametrize("key", ["max_num_seqs", "port", "padding_limit", "decode_bs_step"])
def test_a_constant_that_is_missing_is_refused_by_name(key: str) -> None:
    content = vendor.content("releases", "1.22")
    constants = {name: value for name, value in content["constants"].items() if name != key}
    found = Catalogue.from_mappings({**content, "constants": constants}, {}, vendor.content("", "cards"))
    request = {"weights": "/models/x", "max_model_len": 1024}
    plan = plan_all([request], found, vendor.topology("oam8"), weights_root="/data/models")[0]
    assert key in plan["refused"]
    assert "catalog/releases/1.22.yml" in plan["refused"]


@pytest.mark.parametrize("key", ["name", "dtype", "directory", "sources"])
def test_a_model_file_that_lacks_a_key_is_refused_by_name(key: str) -> None:
    content = {name: value for name, value in vendor.content("models", "qwq-32b").items() if name != key}
    with pytest.raises(Refusal, match=key):
        ModelEntry.from_mapping(content)
    with pytest.raises(Refusal, match="surprise"):
        ModelEntry.from_mapping({**vendor.content("models", "qwq-32b"), "surprise": 1})


def test_only_a_model_that_chats_is_checked() -> None:
    embeds = {**vendor.content("models", "bge-m3"), "check": {"question": "Why?", "contains": ["x"]}}
    with pytest.raises(Refusal, match=r"bge-m3.yml: check is for a model that chats, and task is embed"):
        ModelEntry.from_mapping(embeds)
