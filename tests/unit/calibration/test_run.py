"""What a calibration runs: the vendor's command lines, with a plan's cards and environment."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.module_utils.gaudi.base.measured import measured_files
from ansible.module_utils.gaudi.base.places import is_below
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.calibration import run as calibration
from ansible.module_utils.gaudi.planning.many import plan_all
from ansible.module_utils.gaudi.serving.closed_ports import ClosedPorts, is_closed

from tests.golden.serving_cases import vendor
from tests.unit.preflight.test_templates import evaluate

CODER = "qwen3-coder-480b-a35b-instruct-fp8"
OPTIONS = calibration.Options(512, "", "/opt/vllm-hpu-extension/calibration")
DOCUMENT = "{{ __fp8_calibration_document }}"
SCRATCH = "/tmp"  # noqa: S108 - a tmpfs of the container's own
FORK = "/opt/vllm-fork"
MEASUREMENTS = f"{FORK}/scripts/nc_workspace_measure_kvcache"


def plan(model: str, release: str, **request: Any) -> dict[str, Any]:
    found = vendor.catalogue(release, model)
    wish = {"instance": f"calibrate-{model[:34]}", "model": model, **request}
    (made,) = plan_all([wish], found, vendor.topology("oam8"), weights_root="/data/models")
    return dict(made)


def coder(**options: Any) -> dict[str, Any]:
    return dict(calibration.describe(plan(CODER, "1.22"), replace(OPTIONS, **options)))


def small(release: str = "1.22", **options: Any) -> dict[str, Any]:
    made = plan("qwen3-8b", release, dtype="fp8", tensor_parallel_size=2)
    return dict(calibration.describe(made, replace(OPTIONS, **options)))


def mounts(document: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    return {m["target"]: (m["source"], m["read_only"]) for m in document["container"]["mounts"]}


# --- run_inc_calib.sh --------------------------------------------------------------------------------------


def test_the_coder_is_measured_as_run_inc_calib_does() -> None:
    document = coder()
    weights = "/data/models/Qwen3-Coder-480B-A35B-Instruct-FP8-G2"
    command = document["command"]
    # The last line of run_inc_calib.sh, with the numbers filled in.
    expected = (
        f"python3 /opt/inc-calibration/scripts/run_example_tp.py --model {weights} --tokenizer {weights} --osl 32 "
        "--max_num_seqs 1 --tp_size 8 --ep_size 8 --nprompts 512 --max_model_len 2048 --dataset pile"
    )
    assert command[command.index("python3") :] == expected.split()
    assert command[0] == "numactl"
    # Its exports.
    assert {name: document["environment"][name] for name in calibration.MEASURING} == {
        "PT_HPU_LAZY_MODE": "1",
        "VLLM_MLA_PERFORM_MATRIX_ABSORPTION": "0",
        "VLLM_ENABLE_RUNTIME_DEQUANT": "1",
        "VLLM_PROMPT_BS_BUCKET_MIN": "1",
        "VLLM_PROMPT_BS_BUCKET_MAX": "1",
        "VLLM_PROMPT_SEQ_BUCKET_MIN": "1024",
        "VLLM_PROMPT_SEQ_BUCKET_STEP": "512",
        "VLLM_PROMPT_SEQ_BUCKET_MAX": "1024",
        "VLLM_DECODE_BS_BUCKET_MIN": "1",
        "VLLM_DECODE_BS_BUCKET_MAX": "1",
        "VLLM_REQUANT_FP8_INC": "1",
        "VLLM_MOE_N_SLICE": "1",
    }


def test_the_plans_cards_and_network_stay_and_what_serves_goes() -> None:
    document = coder()
    environment = document["environment"]
    assert environment["HABANA_VISIBLE_MODULES"] == "0,1,2,3,4,5,6,7"
    assert environment["PT_HPU_ENABLE_LAZY_COLLECTIVES"] == "true"
    assert environment["OMPI_MCA_btl_vader_single_copy_mechanism"] == "none"
    for name in (
        "PT_HPU_RECIPE_CACHE_CONFIG",
        "VLLM_GPU_MEMORY_UTILIZATION",
        "INC_FORCE_NAIVE_SCALING",
        "INC_MEASUREMENT_DUMP_PATH_PREFIX",
        "VLLM_DECODE_BLOCK_BUCKET_MAX",
        "VLLM_GRAPH_RESERVED_MEM",
    ):
        assert name not in environment, name
    assert [card["module_id"] for card in document["modules"]] == list(range(8))


def test_measurements_are_written_beside_their_place_and_where_the_server_will_see_them() -> None:
    document = coder()
    target = "/data/models/qwen3-coder-480b-a35b-instruct-fp8-g2"
    assert document["target"] == target
    assert mounts(document)[MEASUREMENTS] == (f"{target}.partial/measured", False)
    assert document["environment"]["QUANT_CONFIG"] == f"{MEASUREMENTS}/.gaudi-serving/measure.json"
    measure = json.loads(document["files"][".gaudi-serving/measure.json"])
    assert (measure["mode"], measure["dump_stats_path"]) == ("MEASURE", f"{MEASUREMENTS}/inc_measure_output")
    bf16 = json.loads(document["files"][".gaudi-serving/per_channel_bf16_kv.json"])
    assert bf16["dump_stats_path"] == measure["dump_stats_path"]
    assert "/data/warmup_cache" not in mounts(document)


@pytest.mark.parametrize("make", [coder, small, lambda: small("1.22-2025.11")])
def test_no_memory_hides_what_the_tool_writes(make: Any) -> None:
    """A server has a tmpfs where a measurement has a folder of the node."""
    box = make()["container"]
    (written,) = [mount["target"] for mount in box["mounts"] if not mount["read_only"]]
    memory = [entry["path"] for entry in box["tmpfs"]]
    assert SCRATCH in memory
    assert not [path for path in memory if is_below(path, written)]


def test_a_branch_with_configurations_of_its_own_has_its_program_and_its_prefix() -> None:
    made = plan("deepseek-r1-671b", "deepseek-r1")
    document = calibration.describe(made, OPTIONS)
    assert f"{FORK}/scripts/run_example_tp.py" in document["command"]
    bf16 = json.loads(document["files"][".gaudi-serving/per_channel_bf16_kv.json"])
    # A server joins it to the prefix its plan gives it.
    prefix = made["environment"]["INC_MEASUREMENT_DUMP_PATH_PREFIX"]
    assert os.path.normpath(f"{prefix}/{bf16['dump_stats_path']}") == f"{MEASUREMENTS}/inc_measure_output"


def test_the_server_reads_what_the_measurement_wrote() -> None:
    made = plan(CODER, "1.22")
    written = made["environment"]["QUANT_CONFIG"]
    assert written == f"{coder()['target']}/.gaudi-serving/per_channel_fp8_kv.json"
    assert ".gaudi-serving/per_channel_fp8_kv.json" in coder()["files"]
    assert made["requires"]["files"] == [written]
    assert written.rpartition("/")[0] in {mount["target"] for mount in made["container"]["mounts"]}


def test_three_files_a_rank_are_expected() -> None:
    expected = coder()["expected"]
    assert len(expected) == len(set(expected)) == 24
    assert expected[:3] == [
        "inc_measure_output_hooks_maxabs_0_8.json",
        "inc_measure_output_hooks_maxabs_0_8.npz",
        "inc_measure_output_hooks_maxabs_0_8_mod_list.json",
    ]
    assert len(measured_files("x", 16)) == 48


def test_a_data_set_of_the_site_stands_where_the_hubs_name_is_looked_for() -> None:
    document = coder(dataset="/data/datasets/pile", prompts=64)
    assert mounts(document)[f"{SCRATCH}/NeelNanda/pile-10k"] == ("/data/datasets/pile", True)
    assert document["container"]["working_directory"] == SCRATCH
    assert document["environment"]["HF_HUB_OFFLINE"] == "1"
    assert document["command"][document["command"].index("--nprompts") + 1] == "64"
    assert "HF_HUB_OFFLINE" not in coder()["environment"]


@pytest.mark.parametrize(("model", "options"), [(CODER, {}), ("qwen3-8b", {"dtype": "fp8", "tensor_parallel_size": 2})])
def test_a_tool_that_trusts_every_code_runs_only_what_the_plan_allows(model: str, options: dict[str, Any]) -> None:
    """Both of the vendor's flows pass trust_remote_code=True, whatever they measure."""
    kept = "/run/gaudi-serving/trust_remote_code_is_off"
    document = calibration.describe(plan(model, "1.22", **options), OPTIONS)
    assert document["environment"]["HF_MODULES_CACHE"] == kept
    # Workers make the package; what they would copy a model's code to is no directory.
    inside = ("__init__.py", "transformers_modules", "datasets_modules")
    assert [mounts(document)[f"{kept}/{name}"] for name in inside] == [("/dev/null", True)] * 3
    trusting = calibration.describe(plan(model, "1.22", trust_remote_code=True, **options), OPTIONS)
    assert "HF_MODULES_CACHE" not in trusting["environment"]
    # Of a data set nothing is allowed to run.
    assert [made["environment"]["HF_DATASETS_TRUST_REMOTE_CODE"] for made in (document, trusting)] == ["0", "0"]
    assert not [target for target in mounts(trusting) if target.startswith(kept)]


def test_the_container_is_confined_as_the_plans_is() -> None:
    box = coder()["container"]
    assert box["name"] == f"vllm-calibrate-{CODER}"
    assert box["read_only"]
    assert box["capabilities"] == ["SYS_NICE"]
    assert box["runtime"] == "habana"
    assert (box["ipc"], box["pids"]) == ("private", 32768)
    box = small()["container"]
    assert (box["ipc"], box["shm_mib"], box["pids"]) == ("private", 16384, 32768)


# --- calibrate_model.sh ------------------------------------------------------------------------------------


def test_other_models_are_measured_with_calibrate_model() -> None:
    document = small(dataset="/data/pile")
    command = document["command"]
    assert command[command.index("bash") :] == [
        "bash", "/opt/vllm-hpu-extension/calibration/calibrate_model.sh", "-m", "/data/models/Qwen3-8B",
        "-d", "/data/pile", "-o", "/opt/vllm-fork/scripts/quantization", "-t", "2",
    ]  # fmt: skip
    place = "/opt/vllm-fork/scripts/quantization/qwen3-8b"
    assert mounts(document)[place] == ("/data/models/quantization/qwen3-8b.partial/measured", False)
    assert document["written"] == ["maxabs_quant_g2.json"]
    assert document["dump_stats_path"] == f"{place}/g2/inc_output"
    assert document["expected"][0] == "g2/inc_output_hooks_maxabs_0_2.json"
    assert not document["container"]["read_only"]
    assert "QUANT_CONFIG" not in document["environment"]


def test_the_later_release_looks_below_its_working_directory() -> None:
    document = small("1.22-2025.11")
    assert (
        mounts(document)[f"{SCRATCH}/quantization/qwen3-8b"][0] == "/data/models/quantization/qwen3-8b.partial/measured"
    )
    assert document["command"][-4:] == ["-o", f"{SCRATCH}/quantization", "-t", "2"]


def test_experts_are_unified() -> None:
    made = plan("qwen3-8b", "1.22", dtype="fp8")
    assert "-u" not in calibration.describe(made, OPTIONS)["command"]
    made["arguments"] = [*made["arguments"], "--enable-expert-parallel"]
    assert calibration.describe(made, OPTIONS)["command"][-1] == "-u"


def test_a_pickled_table_is_limited_to_the_prompts() -> None:
    command = small(dataset="/data/table.pkl", prompts=4096)["command"]
    assert command[-2:] == ["-l", "4096"]


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (small, {"prompts": 64}, "calibrate_model.sh measures 512 prompts of a data set by name, not 64"),
        (coder, {"prompts": 0}, "0 prompts cannot be measured"),
        (coder, {"prompts": 10001}, "10001 prompts cannot be measured"),
        (coder, {"dataset": "/data/x.pkl"}, "reads a folder of NeelNanda/pile-10k"),
    ],
)
def test_options_the_tool_does_not_have_are_refused(make: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(Refusal) as refusal:
        make(**options)
    assert said in str(refusal.value)


def test_a_model_without_measurements_is_refused() -> None:
    with pytest.raises(Refusal, match="is served without measurements by release 1"):
        calibration.describe(plan("qwen3-8b", "1.22"), OPTIONS)


def test_a_refused_plan_stays_refused() -> None:
    with pytest.raises(Refusal, match="no cards"):
        calibration.describe({"refused": "no cards", "refused_id": "no_cards"}, OPTIONS)


def test_a_calibration_of_ones_own_name_is_refused() -> None:
    made = plan("qwen3-8b", "1.22", quantization_config="/calib/other/maxabs_quant_g2.json")
    with pytest.raises(Refusal, match=r"names its result after the weights \(qwen3-8b\), but the plan looks for other"):
        calibration.describe(made, OPTIONS)


def test_a_hub_id_is_refused() -> None:
    made = plan("qwen3-8b", "1.22", dtype="fp8")
    made["requires"]["weights_path"] = None
    with pytest.raises(Refusal, match="fetch the model first"):
        calibration.describe(made, OPTIONS)


def test_the_role_makes_the_document_of_its_options() -> None:
    made = plan("qwen3-8b", "1.22", dtype="fp8", tensor_parallel_size=2)
    own = calibration.Options(512, "/data/pile-10k", "/opt/extension", weights_root="/data/models")
    given = {
        "fp8_calibration_prompts": "512",
        "fp8_calibration_dataset": own.dataset,
        "fp8_calibration_extension_directory": own.extension_directory,
        "gaudi_weights_root": "/data/models",
    }
    document = evaluate("fp8_calibration", DOCUMENT, fp8_calibration_plan=made, **given)
    assert document == json.loads(json.dumps(calibration.describe(made, own)))


def test_the_role_refuses_with_the_id_of_the_refusal() -> None:
    with pytest.raises(AnsibleError, match=r"served without measurements(?s:.*)\[served_without_measurements\]"):
        evaluate(
            "fp8_calibration",
            DOCUMENT,
            fp8_calibration_plan=plan("qwen3-8b", "1.22"),
            gaudi_weights_root="/data/models",
        )


def test_what_may_become_code_is_guarded_and_compared_with_its_pins() -> None:
    repository = {"repository": "a/b", "revision": "c" * 40, "files": {"x": "d" * 64}}
    fetch = {"directory": "Own", "measured_cards": [], "repositories": {"huggingface": repository}}
    sources = [{"fetch": fetch, "convert": None}]
    options = replace(OPTIONS, sources=sources, weights_root="/data/models/")
    eight = {"dtype": "fp8", "tensor_parallel_size": 2}
    plain = calibration.describe(plan("qwen3-8b", "1.22", **eight), options)
    assert (plain["guarded"], plain["pins"]) == ([], [])
    trusting = calibration.describe(plan("qwen3-8b", "1.22", trust_remote_code=True, **eight), options)
    assert trusting["guarded"] == [trusting["weights"]]
    assert trusting["pins"] == [{"folder": "/data/models/Own", "repositories": [repository], "written": []}]
    strict = calibration.describe(plan("qwen3-8b", "1.22", **eight), replace(options, require_pins=True))
    assert strict["pins"] == trusting["pins"]
    pickled = calibration.describe(plan("qwen3-8b", "1.22", **eight), replace(options, dataset="/data/x.pkl"))
    assert pickled["guarded"] == ["/data/x.pkl"]


def test_the_ports_between_its_processes_are_closed_while_it_runs() -> None:
    """The role gives nft these rules around the tool; molecule/calibration watches what nft does with them."""
    made = plan(CODER, "1.22")
    ports = ClosedPorts(*made["listen"]["closed_ports"])
    assert coder()["environment"]["VLLM_PORT"] == str(ports.first)
    rules = {
        name: evaluate("fp8_calibration", f"{{{{ fp8_calibration_plan | {name}_rules }}}}", fp8_calibration_plan=made)
        for name in ("closing", "opening")
    }
    assert is_closed(rules["closing"], ports)
    assert not is_closed(rules["opening"], ports)
    # Both begin with the same table's removal.
    assert rules["closing"].startswith(rules["opening"].rstrip())
