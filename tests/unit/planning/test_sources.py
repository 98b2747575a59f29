"""Where a value comes from is said of the release that is planned, never of another."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.golden.serving_cases import vendor

from .test_releases import RELEASES

REQUESTS: list[dict[str, Any]] = [
    {"weights": "/models/QwQ-32B"},
    {"weights": "/models/QwQ-32B", "tensor_parallel_size": 2, "max_model_len": 8192, "max_num_batched_tokens": 8192},
    {"weights": "/models/QwQ-32B", "input_range": [4, 4096], "output_range": [4, 2048]},
    {"weights": "/models/QwQ-32B", "max_num_prefill_seqs": 4},
    {"weights": "/models/QwQ-32B", "max_num_prefill_seqs": "auto"},
    {"weights": "/models/Qwen3-32B", "dtype": "fp8"},
    {"weights": "/models/Qwen3-32B-AWQ", "dtype": "awq"},
    {"weights": "/models/QwQ-32B", "host": "0.0.0.0"},
    {"weights": "/models/QwQ-32B", "host": "10.20.0.11"},
    {"weights": "/models/QwQ-32B", "node_address": "10.20.0.11"},
    {"weights": "/models/QwQ-32B", "exponential_bucketing": True},
    {
        "weights": "/models/QwQ-32B",
        "profile": True,
        "zero_padding": False,
        "skip_warmup": True,
        "recipe_cache": "/data/c",
    },
    {"weights": "/models/QwQ-32B", "partial_warmup": {"max_num_seqs": 4, "max_seq_len": 1024}},
    {"weights": "/models/QwQ-32B", "padding_limit": 0.1},
    *({"model": model} for model in ("qwq-32b", "deepseek-r1-0528", "bge-m3", "qwen2-vl-7b-instruct", "llama-2-7b")),
]


def commits(plan: dict[str, Any]) -> set[tuple[str, str]]:
    """(repository, commit) of every source of a plan."""
    text = " ".join(item["source"] for item in plan["explain"])
    return set(re.findall(r"(vllm-fork|vllm-hpu-extension|vllm-gaudi) ([0-9a-f]{9})", text))


@pytest.mark.parametrize("release", RELEASES)
def test_every_source_is_of_the_release(release: str) -> None:
    pins = vendor.content("releases", release)["pins"]
    code = ("vllm_fork", "vllm_hpu_extension", "vllm_gaudi")
    own = {(name.replace("_", "-"), pins[name]["commit"][:9]) for name in code if name in pins}
    made = [plan for plan in (vendor.plan_request(release, item) for item in REQUESTS) if "refused" not in plan]
    assert len(made) >= 5
    assert set().union(*map(commits, made)) <= own
    # No source says a commit in another way, and none was left unresolved.
    other = re.compile(r"script:|\b[0-9a-f]{7,40}\b")
    sources = {item["source"] for plan in made for item in plan["explain"]}
    assert [source for source in sources if other.search(re.sub(r"vllm-[a-z-]+ [0-9a-f]{9}", "", source))] == []


def source(plan: dict[str, Any], value: str) -> str:
    (found,) = (item["source"] for item in plan["explain"] if item["value"] == value)
    return str(found)


def test_the_rule_a_releases_script_does_not_have_is_named_as_such() -> None:
    ranges, length = {"input_range": [4, 4096], "output_range": [4, 2048]}, {"max_model_len": 8192}
    script = {"1.22": "vllm-fork 4cd8c0613 scripts/utils.sh", "1.22-2025.11": "vllm-fork 17a7946f4 scripts/utils.sh"}
    value = "environment.VLLM_PROMPT_SEQ_BUCKET_MAX"
    for release, options, own in (
        ("1.22", ranges, True),
        ("1.22", length, False),
        ("1.22-2025.11", ranges, False),
        ("1.22-2025.11", length, True),
    ):
        plan = vendor.plan_request(release, {"weights": "/models/QwQ-32B", **options})
        said = source(plan, value)
        assert said == f"{script[release]} set_bucketing" if own else said.startswith("gaudi-serving: the ")
        # What both scripts have is the release's own either way.
        assert source(plan, "environment.VLLM_PROMPT_SEQ_BUCKET_STEP") == f"{script[release]} set_bucketing"
        assert source(plan, "arguments.--max-num-batched-tokens") == f"{script[release]} set_length"


def test_a_release_without_a_start_script_borrows_none() -> None:
    plan = vendor.plan_request("1.18", {"weights": "/models/QwQ-32B", "tensor_parallel_size": 2, "max_model_len": 8192})
    assert source(plan, "environment.PT_HPU_ENABLE_LAZY_COLLECTIVES").startswith("gaudi-serving")
    assert source(plan, "buckets").endswith("vllm/worker/habana_model_runner.py")


def test_the_deepseek_script_binds_no_cores_and_is_not_said_to() -> None:
    plan = vendor.plan_request("deepseek-r1", {"weights": "/models/DeepSeek-R1"})
    assert source(plan, "cpu_binding").startswith("gaudi-serving")
    assert source(plan, "buckets") == "vllm-hpu-extension 41f99de91 vllm_hpu_extension/bucketing.py"
