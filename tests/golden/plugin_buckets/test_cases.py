"""The cases that the plugin's own bucketing code made, whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.plugin_buckets.made import WarmupBuckets, buckets
from ansible.module_utils.gaudi.plugin_buckets.server import ServerSettings

DOCUMENT = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))
MORE = json.loads((Path(__file__).parent / "more_cases.json").read_text(encoding="utf-8"))
CASES = {case["name"]: case for case in [*DOCUMENT["cases"], *MORE["cases"]]}
VERSIONS = ("0.17.1", "0.21.0", "0.26.0")
FILES = {"%FILE%": DOCUMENT["bucketing_file"], "%BADFILE%": DOCUMENT["bad_bucketing_file"]}

# What the plugin ended with, and the id that stands for it here.
ENDS = {
    "ValueError: max_num_batched_tokens": "tokens_not_in_chunks",
    "AssertionError: Min. batch size cannot be greater than max": "range_backwards",
    "RuntimeError: bucketing_strategy: foo is not in allowed options": "unknown_choice",
    "ZeroDivisionError: ": "unified_one_sequence",
    "AttributeError: 'functools._lru_cache_wrapper' object has no attribute 'warning'": "bucket_file_line",
}


def server_of(config: dict[str, Any]) -> ServerSettings:
    return ServerSettings(
        config["max_num_seqs"],
        config["max_model_len"],
        config["max_num_batched_tokens"],
        config["block_size"],
        config["num_hpu_blocks"],
        config["num_speculative_tokens"],
        config["mamba_chunk_size"],
        config["mamba_explicit"],
    )


def result_of(case: dict[str, Any], version: str) -> dict[str, Any]:
    """What a case says of a version, through what it says is the same."""
    result = case["results"][f"v{version}"]
    same = result.get("same_as", result.get("same_buckets_as"))
    named: dict[str, Any] = case["results"][same] if same else result
    return named


def made(case: dict[str, Any], version: str) -> WarmupBuckets:
    file = FILES.get(case["env"].get("VLLM_BUCKETING_FROM_FILE", ""), "")
    return buckets(version, server_of(case["config"]), case["env"], file)


def differences(name: str, version: str) -> list[str]:
    """Where the buckets made here, or the refusal, are not what the plugin of a version made of a case."""
    result = result_of(CASES[name], version)
    try:
        found = made(CASES[name], version)
    except Refusal as refusal:
        expected = [id_ for start, id_ in ENDS.items() if result.get("error", "").startswith(start)]
        return [] if expected == [refusal.id] else [f"refused with {refusal.id}, expected {expected}"]
    if "error" in result:
        return [f"not refused; the plugin ends with {result['error']}"]
    phases = (("prompt", "prompt_buckets"), ("decode", "decode_buckets"), ("unified", "unified_buckets"))
    wrong = [key for phase, key in phases if [list(shape) for shape in getattr(found, phase)] != result.get(key, [])]
    same = found.contiguous_pa is result.get("use_contiguous_pa", found.contiguous_pa)
    return wrong if same else [*wrong, "use_contiguous_pa"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_case_is_made_exactly(version: str) -> None:
    found = {name: differences(name, version) for name in CASES}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_all_cases_are_there() -> None:
    assert len(DOCUMENT["cases"]) == 44
    assert len(CASES) == 44 + len(MORE["cases"])
    assert DOCUMENT["source"].items() >= MORE["source"].items()
