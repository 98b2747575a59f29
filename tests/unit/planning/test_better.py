"""Where the vendor's result is wrong, ours is right: one test a case, with what is right written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden.serving_cases import vendor
from tests.golden.serving_cases.test_vendor_cases import compare

CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in vendor.CASES["cases"] if case["policy"] == "deviate"}
LOOPBACK = {"VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "HCCL_SOCKET_IFNAME": "lo"}
OUTSIDE = {"VLLM_HOST_IP": "10.20.0.11", "GLOO_SOCKET_IFNAME": "eth0", "HCCL_SOCKET_IFNAME": "eth0"}


def planned(name: str) -> dict[str, Any]:
    plan = vendor.plan_case(CASES[name])
    assert "refused" not in plan, plan
    return plan


def refused(name: str) -> str:
    plan = vendor.plan_case(CASES[name])
    assert "refused" in plan
    return str(plan["refused"])


def differences(name: str, plan: dict[str, Any]) -> set[str]:
    return {line.split(":")[0] for line in compare(CASES[name], plan)}


def test_every_deviation_has_a_test() -> None:
    tested = {name for name in CASES if name in Path(__file__).read_text(encoding="utf-8")}
    assert tested == set(CASES)


@pytest.mark.parametrize("name", ["m122-qwen3-coder-480b", "m122-qwen3-coder-480b-head"])
def test_a_coder_model_gets_no_reasoning_parser(name: str) -> None:
    plan = planned(name)
    assert differences(name, plan) == {"--enable-reasoning", "--reasoning-parser"}
    assert not {"--enable-reasoning", "--reasoning-parser"} & set(plan["arguments"])
    assert plan["environment"]["VLLM_HPU_MARK_SCALES_AS_CONST"] == "false"
    assert "VLLM_DISABLE_MARK_SCALES_AS_CONST" not in plan["environment"]
    assert any("VLLM_DISABLE_MARK_SCALES_AS_CONST" in sentence for sentence in plan["warnings"])


@pytest.mark.parametrize("name", ["m122-on-head-qwq-32b-2c", "m122-on-head-qwen2-72b-4c"])
def test_ranges_work_on_the_later_branch_as_on_the_manuals(name: str) -> None:
    plan = planned(name)
    earlier = vendor.plan_case({**CASES[name], "release": "1.22-manual"})
    buckets = {key: value for key, value in earlier["environment"].items() if "_BUCKET_" in key}
    assert len(buckets) == 16
    assert {key: plan["environment"][key] for key in buckets} == buckets
    assert (
        vendor.options(plan["arguments"])["--max-model-len"] == vendor.options(earlier["arguments"])["--max-model-len"]
    )


def test_a_default_quantisation_file_is_absolute_and_has_to_be_there() -> None:
    plan = planned("v122-fp8-default-config")
    file = plan["environment"]["QUANT_CONFIG"]
    assert file == "/opt/vllm-fork/scripts/quantization/qwen3-32b/maxabs_quant_g2.json"
    assert plan["requires"]["files"] == ["/data/models/quantization/qwen3-32b/maxabs_quant_g2.json"]
    assert {
        "source": "/data/models/quantization/qwen3-32b",
        "target": file.rsplit("/", 1)[0],
        "read_only": True,
    } in plan["container"]["mounts"]
    assert differences("v122-fp8-default-config", plan) == {"QUANT_CONFIG"}


def test_float16_is_refused_instead_of_ignored() -> None:
    assert "dtype" in refused("v122-float16")
    assert "bfloat16" in refused("v122-float16")


def test_json_stays_one_argument() -> None:
    arguments = planned("v122-e-json-space")["arguments"]
    assert arguments[arguments.index("--rope-scaling") + 1] == '{"type": "yarn", "factor": 4.0}'


def test_one_number_is_no_range() -> None:
    assert "input_range" in refused("v122-i-single")


def test_softmax_follows_the_models_shape_not_its_directory() -> None:
    by_name = planned("v122-softmax-renamed")
    assert by_name["environment"]["VLLM_FP32_SOFTMAX"] == "true"
    assert any("its name" in sentence for sentence in by_name["warnings"])
    case = CASES["v122-softmax-renamed"]
    request = vendor.request_of("1.22", case["vendor_arguments"], {})
    assert request is not None
    shape: dict[str, Any] = {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "vocab_size": 152064,
    }
    for weights in (request["weights"], "/models/anything-else"):
        plan = vendor.plan_request("1.22", {**request, "weights": weights, "model_config": shape})
        assert plan["environment"]["VLLM_FP32_SOFTMAX"] == "true"
        assert not any("its name" in sentence for sentence in plan["warnings"])
    plan = vendor.plan_request(
        "1.22", {**request, "model_config": {**shape, "hidden_size": 8192, "num_hidden_layers": 80}}
    )
    assert "VLLM_FP32_SOFTMAX" not in plan["environment"]


@pytest.mark.parametrize("name", ["v122-a-any", "v122h-a-any"])
def test_listening_everywhere_does_not_make_everywhere_an_address(name: str) -> None:
    plan = planned(name)
    assert {key: plan["environment"][key] for key in LOOPBACK} == LOOPBACK
    assert (plan["listen"]["host"], plan["listen"]["port"]) == ("0.0.0.0", 8000)
    assert differences(name, plan) == set()


def test_loopback_has_the_interface_of_loopback_and_another_can_be_asked_for() -> None:
    name = "v122h-loopback-iface"
    assert not any("VLLM_HOST_IP" in sentence for sentence in planned(name)["warnings"])
    request = vendor.request_of("1.22-2025.11", CASES[name]["vendor_arguments"], {})
    assert request is not None
    for wish, expected in (({}, LOOPBACK), ({"node_address": "10.20.0.11"}, OUTSIDE)):
        settled = vendor.plan_request("1.22-2025.11", {**request, **wish})
        assert {key: settled["environment"][key] for key in expected} == expected


def test_a_node_without_a_network_uses_loopback() -> None:
    plan = planned("v122h-only-loopback")
    assert {key: plan["environment"][key] for key in LOOPBACK} == LOOPBACK


def test_several_networks_are_none_of_a_servers_business() -> None:
    plan = planned("v121-multi-addr")
    assert {key: plan["environment"][key] for key in LOOPBACK} == LOOPBACK
    case = CASES["v121-multi-addr"]
    request = vendor.request_of("1.21", case["vendor_arguments"], {})
    assert request is not None
    settled = vendor.plan_request("1.21", {**request, "node_address": "10.20.0.11"}, case["topology"])
    assert {key: settled["environment"][key] for key in OUTSIDE} == OUTSIDE
    assert not any("node_address" in sentence for sentence in (*plan["warnings"], *settled["warnings"]))


@pytest.mark.parametrize(
    ("name", "binding"),
    [
        # Over two nodes: the union of the cards' cores, memory local to each.
        ("v122-numa-two-nodes", ["-C", "30-39,40-49"]),
        ("v122-numa-two-nodes-8", ["-C", "0-9,10-19,20-29,30-39,40-49,50-59,60-69,70-79"]),
        ("v122-numa-snc4-cross", ["-C", "0-6,7-13,14-20,21-27"]),
        ("v122-numa-gaudi2e-doc-0123", ["-C", "0-11,60-71,24-35,36-47"]),
        ("v122-numa-gaudi2e-doc-01", ["-C", "0-11,60-71"]),
        # SMT off: the only range is cores.
        ("v122-numa-noht", ["-C", "0-7,8-15", "-p", "0"]),
        ("v122-numa-noht-single", ["-C", "0-7", "-p", "0"]),
        ("v122h-numa-noht", ["-C", "0-7,8-15", "-p", "0"]),
        # Module 10 is module 10.
        ("v122-numa-node16-10", ["-C", "80-87", "-p", "1"]),
        ("v122-no-numactl", ["-C", "16-23,24-31", "-p", "0"]),
    ],
)
def test_cores_are_bound_on_every_layout(name: str, binding: list[str]) -> None:
    assert planned(name)["cpu_binding"] == ["numactl", *binding]


def test_sixteen_cards_of_one_node_need_no_cluster() -> None:
    plan = planned("v122-ray-16")
    assert vendor.options(plan["arguments"])["--distributed-executor-backend"] == "mp"
    assert any("16 cards" in sentence for sentence in plan["warnings"])


def test_a_failing_server_is_the_units_business_the_plan_is_the_vendors() -> None:
    assert not differences("v122-vllm-fails", planned("v122-vllm-fails"))


def test_a_blank_in_a_pair_is_no_part_of_a_value() -> None:
    environment = planned("v121-r-space")["environment"]
    assert environment["VLLM_PROMPT_SEQ_BUCKET_MAX"] == "24000"
    assert environment["VLLM_DECODE_BS_BUCKET_MAX"] == "8"


def test_what_the_caller_says_about_zero_padding_counts() -> None:
    assert planned("v121-zero-padding-env")["environment"]["VLLM_ZERO_PADDING"] == "false"


def test_the_callers_bucket_variables_count() -> None:
    plan = planned("vds-bucket-env")
    environment = plan["environment"]
    assert environment["VLLM_PROMPT_SEQ_BUCKET_MAX"] == "4096"
    assert environment["VLLM_DECODE_BS_BUCKET_STEP"] == "16"
    assert {environment[name] for name in environment if name.endswith("_LIMIT")} == {"0.1"}
    assert environment["HABANA_VISIBLE_MODULES"] == "0,1,2,3,4,5,6,7"
    assert any("0,1,2,3" in sentence and "8" in sentence for sentence in plan["warnings"])


def test_a_blank_in_a_path_stays_in_it() -> None:
    plan = planned("vds-path-space")
    assert "/data/hf models/DeepSeek-R1-G2" in plan["arguments"]
    assert plan["container"]["mounts"][0]["target"] == "/data/hf models/DeepSeek-R1-G2"
