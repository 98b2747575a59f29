"""Sentences of the four manuals that were planned wrongly once, each as a plan.

000 is the manual Gaudi2E v1.21, 001 that of v1.22, 002 the manual on other accelerators (Gaudi 1.18), 004 the README of
1.16.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.planning.many import plan_all

from action_plugins.serving_plan import read_topology
from plugin_utils import releases
from tests.golden.serving_cases import vendor

MACHINES = Path(__file__).resolve().parents[3] / "docs" / "examples" / "topologies"
OAM, PCIE = "hl-225-two-sockets", "hl-288e-mixed-slots"
CODER = "qwen3-coder-480b-a35b-instruct-fp8"
QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 6144,
    "num_hidden_layers": 62,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "max_position_embeddings": 262144,
}
NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


def plan(release: str, machine: str, request: dict[str, Any]) -> dict[str, Any]:
    catalogue = vendor.catalogue(release, request.get("model"))
    topology = read_topology(str(MACHINES / f"{machine}.yml"))
    (answer,) = plan_all([vendor.said_openly(request)], catalogue, topology, weights_root="/data/models")
    return answer


@pytest.mark.parametrize(
    ("release", "machine", "request_", "words"),
    [
        pytest.param("1.22", PCIE, {"model": "qwen2.5-72b-instruct"}, "18 GB/s", id="001-1.2.1-upi"),
        pytest.param(
            "1.21", OAM, {"model": "qwen2-72b-instruct", "modules": [3, 4]}, "NUMA nodes 0 and 1", id="000-2.1"
        ),
        pytest.param("1.22", OAM, {"model": "qwen2-vl-7b-instruct"}, "exponential buckets", id="001-3.4.1-buckets"),
        pytest.param("1.18", OAM, {"model": "llama-2-7b"}, "compile at run time", id="002-beyond-the-last-bucket"),
        pytest.param(
            "1.18", OAM, {"model": "mixtral-8x7b-instruct-v0.1", "cards": 4}, "may or may not", id="004-cards"
        ),
        pytest.param("1.16", OAM, {"model": "llama-2-70b", "cards": 4}, "may or may not", id="004-cards-1.16"),
        pytest.param(
            "1.16", OAM, {"model": "mistral-7b-instruct-v0.3", "cards": 8}, "may or may not", id="004-cards-7b"
        ),
    ],
)
def test_what_a_manual_leaves_open_is_a_warning(
    release: str, machine: str, request_: dict[str, Any], words: str
) -> None:
    cards = request_.get("cards", len(request_.get("modules", range(8 if machine == PCIE else 1))))
    asked = {key: value for key, value in request_.items() if key != "cards"}
    answer = plan(release, machine, {**asked, "tensor_parallel_size": cards})
    assert "refused" not in answer, answer["refused"]
    assert any(words in warning for warning in answer["warnings"])


@pytest.mark.parametrize(
    ("release", "request_", "refusal", "words"),
    [
        pytest.param("deepseek-r1", {"model": CODER}, "unsupported_model", "no Qwen3MoeForCausalLM", id="001-3.3.2"),
        pytest.param(
            "deepseek-r1",
            {"weights": "/data/models/Coder", "model_config": QWEN3_MOE},
            "unsupported_architecture",
            "transformers does not know",
            id="001-3.3.2-same-weights",
        ),
        pytest.param(
            "1.22",
            {"model": "qwen2-vl-7b-instruct", "extra_args": ["--limit-mm-per-prompt", "video=x"]},
            "wrong_argument_value",
            "video=x",
            id="001-3.4.1-limits",
        ),
        pytest.param("1.22", {"model": "qwen3-8b", "offline": True}, "not_offered", "batch.yml", id="002-offline"),
        pytest.param("1.18", {"enable_lora": True}, "unsupported_feature", "its documentation", id="002-lora"),
        pytest.param(
            "1.22",
            {"extra_args": ["--lora-modules", "a=/data/a"]},
            "adapters_as_arguments",
            "lora_modules",
            id="002-lora-arguments",
        ),
        pytest.param(
            "1.21",
            {"extra_environment": {"VLLM_GRAPH_PROMPT_STRATEGY": "random"}},
            "wrong_variable_value",
            "max_bs, min_tokens",
            id="002-strategy",
        ),
        pytest.param(
            "1.18", {"extra_environment": {"VLLM_GRAPH_PROMPT_RATIO": "3"}}, "out_of_range", "1.0", id="002-ratio"
        ),
        pytest.param(
            "1.18",
            {"extra_environment": {"VLLM_SKIP_WARMUP": "maybe"}},
            "wrong_variable_value",
            "false or true",
            id="002-skip-warmup",
        ),
        pytest.param("1.16", {"enable_lora": True}, "unsupported_feature", "its documentation", id="004-lora"),
        pytest.param(
            "1.16", {"enable_chunked_prefill": True}, "unsupported_feature", "its documentation", id="004-chunks"
        ),
        pytest.param(
            "1.16", {"speculative_config": NGRAM}, "without_effect", "has no --speculative-config", id="004-guess"
        ),
    ],
)
def test_what_a_manual_does_not_offer_is_refused_with_the_reason(
    release: str, request_: dict[str, Any], refusal: str, words: str
) -> None:
    named = request_ if {"model", "weights"} & request_.keys() else {"model": "llama-2-7b", **request_}
    answer = plan(release, OAM, named)
    assert answer["refused_id"] == refusal, answer
    assert words in answer["refused"]


def test_float16_of_manual_v1_21_is_what_its_script_passes() -> None:
    answer = plan("1.21", OAM, {"model": "qwen2-72b-instruct", "tensor_parallel_size": 4, "dtype": "float16"})
    assert vendor.options(answer["arguments"])["--dtype"] == "float16"


def test_the_coder_of_manual_v1_22_is_served_by_its_own_branch_with_the_manuals_variable() -> None:
    for machine in (OAM, PCIE):
        answer = plan("1.22", machine, {"model": CODER})
        assert answer["environment"]["VLLM_DISABLE_MARK_SCALES_AS_CONST"] == "true"
        assert answer["environment"]["VLLM_HPU_CONVERT_TO_FP8UZ"] == "false"


def test_one_node_of_modules_needs_no_host_nics_for_deepseek_r1() -> None:
    needs = {
        machine: plan("deepseek-r1", machine, {"model": "deepseek-r1-0528"})["requires"] for machine in (OAM, PCIE)
    }
    assert [needs[machine]["host_nics"] for machine in (OAM, PCIE)] == [False, True]


def test_four_cards_of_the_manuals_machine_are_of_one_group() -> None:
    answer = plan("1.22", PCIE, {"model": "qwen2-72b-instruct", "tensor_parallel_size": 4})
    assert [module["module_id"] for module in answer["modules"]] == [0, 1, 2, 3]


@pytest.mark.parametrize(("model", "graphs"), [("llama-2-7b", 75), ("mistral-7b-instruct-v0.3", 224)])
def test_release_1_18_warms_up_what_its_pinned_server_does(model: str, graphs: int) -> None:
    answer = plan("1.18", OAM, {"model": model})
    assert answer["buckets"]["graphs"] == graphs
    assert not [name for name in answer["environment"] if "_BUCKET_" in name]


@pytest.mark.parametrize("release", ["1.16", "1.18", "1.22", "deepseek-r1"])
def test_a_log_that_is_switched_off_is_zero_for_the_forks(release: str) -> None:
    model = "deepseek-r1-0528" if release == "deepseek-r1" else "llama-2-7b"
    answer = plan(release, OAM, {"model": model, "log_step_graph_compilation": False})
    assert answer["environment"]["VLLM_HPU_LOG_STEP_GRAPH_COMPILATION"] == "0"


@pytest.mark.parametrize(
    ("printed", "release"),
    [
        ("1.16.0", "1.16"),
        ("1.18.0", "1.18"),
        ("1.21.3", "1.21"),
        ("1.22.2", "1.22"),
        ("v1.22", "1.22"),
        ("v1.22.2", "1.22"),
    ],
)
def test_versions_are_read_as_the_manuals_print_them(printed: str, release: str) -> None:
    assert releases.named(printed) == release
