"""Several requests in one call, model defaults, and mounts."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all

from tests.golden.serving_cases import vendor
from tests.unit.refused import refused


def plans(requests: list[Any], release: str = "1.22", where: str = "oam8") -> list[dict[str, Any]]:
    models = {request["model"] for request in requests if "model" in request}
    found = vendor.catalogue(release)
    entries = {name: entry for model in models for name, entry in vendor.catalogue(release, model).models.items()}
    found = replace(found, models={**found.models, **entries})
    answers: list[dict[str, Any]] = plan_all(requests, found, vendor.topology(where), weights_root="/data/models")
    return answers


def modules(plan: dict[str, Any]) -> list[int]:
    return [module["module_id"] for module in plan["modules"]]


def test_earlier_instances_take_cards_and_ports() -> None:
    first, second, third, fourth = plans(
        [
            {"instance": "a", "model": "qwq-32b", "port": 30001},
            {"instance": "b", "model": "qwen3-8b", "port": 30002},
            {"instance": "c", "model": "qwen3-8b", "port": 30001},
            {"instance": "d", "weights": "/models/x", "tensor_parallel_size": 8, "port": 30004},
        ]
    )
    assert modules(first) == [0, 1]
    assert modules(second) == [4, 5]
    assert "30001" in third["refused"]
    assert "planned for a" in third["refused"]
    assert "planned for b" in fourth["refused"]
    assert fourth["instance"] == "d"


def test_two_instances_never_share_a_card() -> None:
    answers = plans(
        [{"instance": name, "weights": "/m/x", "modules": [3], "port": port} for port, name in ((1, "a"), (2, "b"))]
    )
    assert modules(answers[0]) == [3]
    assert "planned for a" in answers[1]["refused"]


def test_one_name_is_one_instance() -> None:
    answers = plans([{"instance": "a", "weights": "/m/x"}, {"instance": "a", "weights": "/m/x", "port": 2}])
    assert "Two requests" in answers[1]["refused"]


def test_a_refused_request_takes_nothing() -> None:
    answers = plans([{"instance": "a", "weights": "/m/x", "max_num_seqs": 0}, {"instance": "b", "weights": "/m/x"}])
    assert "refused" in answers[0]
    assert modules(answers[1]) == [0]


@pytest.mark.parametrize("request_", [None, 5, "x", [], {"instance": 5}, {"instance": "x" * 100}])
def test_a_request_that_is_none_is_refused(request_: Any) -> None:
    answers = plan_all([request_], vendor.catalogue("1.22"), vendor.topology("oam8"), weights_root="/data/models")
    assert "refused" in answers[0]


def test_model_defaults_release_defaults_and_the_request() -> None:
    (plan,) = plans([{"model": "qwen3-8b"}], "1.21")
    assert vendor.options(plan["arguments"])["--max-model-len"] == "8192"
    # A length that is asked for replaces the default ranges, where a release can plan by length.
    (plan,) = plans([{"model": "qwen3-8b", "max_model_len": 16384}])
    assert plan["environment"]["VLLM_PROMPT_SEQ_BUCKET_MAX"] == "16384"
    # Ranges that are asked for replace a default length.
    (plan,) = plans([{"model": "deepseek-r1-distill-llama-8b", "input_range": [1, 9000]}])
    assert plan["environment"]["VLLM_PROMPT_SEQ_BUCKET_MAX"] == "9088"
    (plan,) = plans([{"model": "qwen2-vl-7b-instruct", "extra_environment": {"VLLM_IMAGE_FETCH_TIMEOUT": "60"}}])
    assert plan["environment"]["VLLM_IMAGE_FETCH_TIMEOUT"] == "60"
    assert plan["environment"]["VLLM_VIDEO_FETCH_TIMEOUT"] == "30"


def test_multimodal_limits_arrive_as_json() -> None:
    (plan,) = plans([{"model": "qwen3-vl-30b-a3b-instruct"}])
    options = vendor.options(plan["arguments"])
    assert json.loads(str(options["--limit-mm-per-prompt"])) == {"image": 5, "video": 5}
    assert json.loads(str(options["--mm-processor-kwargs"])) == {"max_pixels": 1003520, "min_pixels": 3136}


def test_embedding_and_rerank_models_say_their_task() -> None:
    embed, score = plans([{"model": "bge-m3"}, {"model": "bge-reranker-v2-m3"}])
    assert vendor.options(embed["arguments"])["--task"] == "embed"
    assert vendor.options(score["arguments"])["--task"] == "score"


def test_paths_are_mounted_at_the_very_places_the_arguments_name() -> None:
    (plan,) = plans(
        [
            {
                "instance": "a",
                "weights": "/data/a model",
                "quantization_config": "/calib/q.json",
                "recipe_cache": {"directory": "/data/cache", "size": 5},
                "profile": True,
            }
        ]
    )
    mounts = {mount["target"]: mount for mount in plan["container"]["mounts"]}
    assert mounts["/data/a model"] == {"source": "/data/a model", "target": "/data/a model", "read_only": True}
    assert mounts["/data/cache"]["read_only"] is False
    assert mounts["/calib"]["read_only"] is True
    assert plan["environment"]["PT_HPU_RECIPE_CACHE_CONFIG"] == "/data/cache,false,5"
    assert plan["environment"]["QUANT_CONFIG"] == "/calib/q.json"
    assert plan["requires"]["files"] == ["/calib/q.json"]
    assert plan["requires"]["disk_bytes"] == 5 << 20
    # The trace is written where it outlives the container.
    assert mounts[plan["container"]["working_directory"]]["read_only"] is False


def test_a_relative_default_quantisation_file_is_found_from_the_working_directory() -> None:
    (plan,) = plans([{"weights": "/models/Qwen3-8B", "dtype": "fp8"}], "1.21")
    container = plan["container"]
    place = f"{container['working_directory']}/{plan['environment']['QUANT_CONFIG'][2:]}".rpartition("/")[0]
    assert {"source": "/data/models/quantization/qwen3-8b", "target": place, "read_only": True} in container["mounts"]


def test_the_container_has_no_more_than_it_needs() -> None:
    (plan,) = plans([{"instance": "a", "weights": "/m/x"}])
    container = plan["container"]
    assert container["name"] == "vllm-a"
    assert container["capabilities"] == ["SYS_NICE"]
    assert container["read_only"] is True
    assert "privileged" not in container
    assert (container["ipc"], container["shm_mib"], container["pids"]) == ("private", 16384, 32768)
    assert "/dev" not in [mount["target"] for mount in container["mounts"]]
    (deepseek,) = plans([{"instance": "a", "model": "deepseek-r1-0528"}], "deepseek-r1")
    assert deepseek["container"]["capabilities"] == ["SYS_NICE", "SYS_PTRACE", "IPC_LOCK"]
    assert deepseek["container"]["ulimits"]["memlock"] == -1
    target = "/opt/vllm-fork/scripts/nc_workspace_measure_kvcache"
    # The server computes scales beside the measurements: in memory, and the measurements are not its own to change.
    assert {"path": target, "size_mib": 2048, "mode": "0700"} in deepseek["container"]["tmpfs"]
    measured = [m for m in deepseek["container"]["mounts"] if m["target"].startswith(f"{target}/")]
    assert len(measured) == 24
    assert all(mount["read_only"] for mount in measured)
    assert deepseek["requires"]["measurements"] == {
        "path": "/data/models/ds-r1-0528-default-pile-g2-0529",
        "files": 24,
    }


def test_a_hub_id_is_served_as_it_is() -> None:
    (plan,) = plans([{"weights": "Qwen/Qwen3-8B"}])
    assert "Qwen/Qwen3-8B" in plan["arguments"]
    assert plan["requires"]["weights_path"] is None
    assert plan["container"]["environment"]["HF_HOME"] == "/data/models/.hub"


def test_a_mirror_replaces_the_registry_only() -> None:
    found = vendor.catalogue("1.22")
    (plan,) = plan_all(
        [{"weights": "/m/x"}],
        found,
        vendor.topology("oam8"),
        weights_root="/data/models",
        image_registry="mirror.example:5000",
    )
    path = "gaudi-docker/1.22.2/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:1.22.2-32"
    assert plan["image"] == f"mirror.example:5000/{path}"
    (plan,) = plans([{"weights": "/m/x"}])
    assert plan["image"] == f"vault.habana.ai/{path}"


def test_gaudi3_serves_published_fp8_weights() -> None:
    found = vendor.catalogue("1.22-2025.11", "qwen3-vl-30b-a3b-instruct-fp8-g2-dynamic")
    topology = json.loads(json.dumps(vendor.topology("oam8")).replace("HL-225", "HL-325L"))
    request = {"model": "qwen3-vl-30b-a3b-instruct-fp8-g2-dynamic"}
    (plan,) = plan_all([request], found, topology, weights_root="/data/models")
    assert plan["requires"]["weights_path"] == "/data/models/Qwen3-VL-30B-A3B-Instruct"
    assert plan["requires"]["conversion"] is None


def test_a_recipe_cache_is_kept_unless_there_is_none() -> None:
    name = "PT_HPU_RECIPE_CACHE_CONFIG"
    (kept,) = plans([{"instance": "a", "weights": "/m/x"}])
    assert kept["environment"][name] == "/data/recipe_cache/a,false,40960"
    (deepseek,) = plans([{"weights": "/m/DeepSeek-R1"}], "deepseek-r1")
    assert deepseek["environment"][name] == "/data/warmup_cache,false,16384"
    for none in (None, False, "", {"directory": ""}):
        (plan,) = plans([{"instance": "a", "weights": "/m/DeepSeek-R1", "recipe_cache": none}], "deepseek-r1")
        assert name not in plan["environment"]


def test_all_modules_are_the_nodes() -> None:
    (plan,) = plans([{"weights": "/m/x", "modules": "all"}])
    assert modules(plan) == [0, 1, 2, 3, 4, 5, 6, 7]
    (plan,) = plans([{"weights": "/m/x", "modules": "all", "tensor_parallel_size": 2}])
    assert "modules names 8" in plan["refused"]


def test_arguments_that_are_options_become_options() -> None:
    (plan,) = plans([{"weights": "/m/x", "extra_args": ["--kv_cache_dtype", "fp8_inc", "--enforce-eager"]}])
    assert vendor.options(plan["arguments"])["--kv-cache-dtype"] == "fp8_inc"
    assert plan["execution_mode"] == "PyTorch lazy mode"
    assert plan["arguments"].count("--enforce-eager") == 1
    request = {"weights": "/m/x", "kv_cache_dtype": "auto", "extra_args": ["--kv-cache-dtype=fp8_inc"]}
    (plan,) = plans([request])
    assert "kv_cache_dtype" in plan["refused"]
    (plan,) = plans([{"weights": "/m/x", "extra_args": ["--kv-cache-dtype"]}])
    assert "needs a value" in plan["refused"]


def test_numbers_go_on_as_they_were_written() -> None:
    (plan,) = plans([{"weights": "/m/x", "gpu_memory_utilization": "0.90", "padding_limit": 0}])
    assert vendor.options(plan["arguments"])["--gpu-memory-utilization"] == "0.90"
    assert plan["environment"]["VLLM_PROMPT_BS_BUCKET_LIMIT"] == "0"
    json.dumps(plan)


def test_numbers_among_arguments_are_arguments() -> None:
    (plan,) = plans([{"weights": "/m/x", "extra_args": ["--seed", 7, "--swap-space", 4.5]}])
    assert plan["arguments"][-4:] == ["--seed", "7", "--swap-space", "4.5"]
    (plan,) = plans([{"weights": "/m/x", "extra_args": ["--seed", True]}])
    assert "extra_args must be text" in plan["refused"]


def test_lazy_collectives_are_not_switched_off_for_several_cards() -> None:
    off = {"PT_HPU_ENABLE_LAZY_COLLECTIVES": "false"}
    one, two = plans(
        [
            {"weights": "/m/x", "extra_environment": off},
            {"weights": "/m/x", "extra_environment": off, "tensor_parallel_size": 2},
        ]
    )
    assert one["environment"]["PT_HPU_ENABLE_LAZY_COLLECTIVES"] == "false"
    assert two["environment"]["PT_HPU_ENABLE_LAZY_COLLECTIVES"] == "true"
    assert any("PT_HPU_ENABLE_LAZY_COLLECTIVES" in sentence for sentence in two["warnings"])


def test_a_plan_is_the_same_every_time() -> None:
    assert plans([{"model": "qwq-32b", "instance": "a"}]) == plans([{"model": "qwq-32b", "instance": "a"}])


def test_a_plan_takes_less_than_50_ms() -> None:
    request = {"weights": "/m/x", "max_num_seqs": 512, "max_model_len": 131072, "tensor_parallel_size": 8}
    best = []
    for _ in range(5):
        begin = time.process_time()
        plans([request])
        best.append(time.process_time() - begin)
    assert min(best) < 0.05


def test_a_wrong_catalogue_file_is_named() -> None:
    with refused("missing_key", "catalog/releases/1.22.yml"):
        Catalogue.from_mappings({"name": "1.22"}, {}, vendor.content("", "cards"))
