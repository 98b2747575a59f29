"""What a calibration runs: the vendor's measuring tool in the serving image, with a plan's cards and environment.

Sources: scripts/run_inc_calib.sh and run_example_tp.py of vllm-fork deepseek_r1 (687dd5bbd), calibration/
calibrate_model.sh of vllm-hpu-extension (71caa6e49). Not run on hardware.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.command_line import needs_pins, runs_code, trusts_code, unpickles
from ..base.measured import MEASURED, measured_files
from ..base.places import is_below
from ..base.refusal import Refusal
from ..image.inside import INC_CALIBRATION_DIRECTORY, INC_CALIBRATION_PROGRAM
from ..weights.source_plan import pinned_folders
from . import quant_config

# The data set of both vendor flows; a folder of this name in the working directory is used before the hub's.
DATASET = "NeelNanda/pile-10k"
# The number of prompts that calibrate_model.sh takes of a named data set, whatever -l says.
FIXED_PROMPTS = 512
# The end of the name of a data set that the tool unpickles, which runs what is in it.
PICKLED_DATASET = ".pkl"
# Our own files in the folder of the measurements.
OWN = ".gaudi-serving"
# Subfolder of an unfinished measurement that the tool writes to.
WRITTEN = "measured"

# HF_MODULES_CACHE of a container that may run no code of the weights. The path of serving.plan.NO_CODE would end both
# vendor flows: they pass trust_remote_code=True, so that their workers always create this package. /dev/null over its
# entries keeps it empty: transformers copies code of weights there, and datasets before 2.20 the script of a data set.
MODULES_CACHE = "/run/gaudi-serving/trust_remote_code_is_off"
MODULES_CACHE_MOUNTS = tuple(
    {"source": "/dev/null", "target": f"{MODULES_CACHE}/{name}", "read_only": True}
    for name in ("__init__.py", "transformers_modules", "datasets_modules")
)

# Variables of a plan that only concern serving: warm-up, caches, quantisation.
SERVING_ONLY = re.compile(
    r".*_BUCKET_(MIN|STEP|MAX|LIMIT)|PT_HPU_RECIPE_CACHE_CONFIG|VLLM_GPU_MEMORY_UTILIZATION|VLLM_GRAPH_.*|"
    r"VLLM_PROFILER_ENABLED|VLLM_PROFILE_FILE|INC_.*|QUANT_CONFIG|VLLM_EXPONENTIAL_BUCKETING|VLLM_SKIP_WARMUP"
)
# The server configuration that calibrate_model.sh writes, by its name for the card.
SCRIPTS_FILE = re.compile(r"/maxabs_quant_(?P<device>g[23])\.json$")
# What run_inc_calib.sh sets: one prompt of 1024 tokens at a time.
MEASURING = {
    "PT_HPU_LAZY_MODE": "1",
    "VLLM_MLA_PERFORM_MATRIX_ABSORPTION": "0",
    "VLLM_ENABLE_RUNTIME_DEQUANT": "1",
    "VLLM_REQUANT_FP8_INC": "1",
    "VLLM_MOE_N_SLICE": "1",
    "VLLM_PROMPT_BS_BUCKET_MIN": "1",
    "VLLM_PROMPT_BS_BUCKET_MAX": "1",
    "VLLM_PROMPT_SEQ_BUCKET_MIN": "1024",
    "VLLM_PROMPT_SEQ_BUCKET_STEP": "512",
    "VLLM_PROMPT_SEQ_BUCKET_MAX": "1024",
    "VLLM_DECODE_BS_BUCKET_MIN": "1",
    "VLLM_DECODE_BS_BUCKET_MAX": "1",
}


@dataclass(frozen=True)
class Options:
    """The caller's choices.

    prompts: their number. dataset: its path on the node; '' downloads it from its hub. sources: the source plans of the
    weights. weights_root: the node's directory of weights. require_pins: whether the site requires pins.
    """

    prompts: int
    dataset: str
    extension_directory: str
    sources: Sequence[Mapping[str, Any]] = ()
    weights_root: str = ""
    require_pins: bool = False


@dataclass(frozen=True)
class OutputDirectory:
    """The output directory of a measurement, on the node and in the container, and the prefix of its file names."""

    node: str
    container: str
    prefix: str


def describe(plan: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """Return the document of the calibration job for a plan.

    Raises Refusal for a plan that needs no measurements, and for options that the vendor's tool does not have.
    """
    if plan.get("refused"):
        raise Refusal.from_keys(plan)
    if not 1 <= options.prompts <= 10000:
        raise Refusal(
            "out_of_range",
            f"{options.prompts} prompts cannot be measured; 1 to 10000 are possible ({DATASET} has no more).",
        )
    run = _tool(plan, options)
    place: OutputDirectory = run["place"]
    cards, weights = len(plan["modules"]), plan["requires"]["weights_path"]
    return {
        "schema": 1,
        "model": plan["served_model_name"],
        "release": plan["release"],
        "image": plan["image"],
        "tool": run["tool"],
        "prompts": options.prompts,
        "dataset": options.dataset or DATASET,
        "tensor_parallel_size": cards,
        "weights": weights,
        "modules": [{"module_id": m["module_id"], "serial": m["serial"]} for m in plan["modules"]],
        "target": place.node,
        "expected": measured_files(place.prefix, cards),
        # Files that the tool writes for the server, and the path of the measurements that they must contain.
        "written": run["written"],
        "dump_stats_path": f"{place.container}/{place.prefix}",
        "files": run["files"],
        # Paths whose content the container may run, so that only root may write there; folders that are compared with
        # checksums.
        "guarded": [
            *([weights] if runs_code(plan) or unpickles(plan) else []),
            *([options.dataset] if options.dataset.endswith(PICKLED_DATASET) else []),
        ],
        "pins": pinned_folders(options.sources, options.weights_root)
        if needs_pins(plan) or options.require_pins
        else [],
        "environment": run["environment"],
        "container": _container(plan, run),
        "command": [*plan["cpu_binding"], *run["command"]],
    }


def _tool(plan: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """Return the release's calibration tool and its inputs. Raises Refusal for a plan that needs no measurements."""
    requires = plan["requires"]
    weights = requires["weights_path"]
    if weights is None:
        raise Refusal(
            "weights_not_on_node",
            "Only weights on the node can be measured; fetch the model first (playbooks/fetch_weights.yml).",
        )
    if requires["measurements"] is not None:
        return _hooks(plan, options, weights)
    if requires["files"] and (named := SCRIPTS_FILE.search(str(plan["environment"].get("QUANT_CONFIG", "")))):
        return _script(plan, options, weights, named["device"])
    raise Refusal(
        "served_without_measurements",
        f"{plan['served_model_name']} is served without measurements by release {plan['release']}. "
        "Ask for dtype fp8, or for a release and model whose catalogue entries have them.",
    )


def _container(plan: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the calibration container: the server's own, with one writable mount."""
    box, weights, place = plan["container"], plan["requires"]["weights_path"], run["place"]
    mounts = [
        {"source": weights, "target": weights, "read_only": True},
        # The tool may only write here; it cannot change the files that this project reads and writes.
        {"source": f"{place.node}.partial/{WRITTEN}", "target": place.container, "read_only": False},
        *run["mounts"],
        *(() if trusts_code(plan) else MODULES_CACHE_MOUNTS),
    ]
    return {
        # The instance's own name, so that its own reservation and the container of an interrupted run do not block it.
        "name": box["name"],
        "runtime": box["runtime"],
        "capabilities": box["capabilities"],
        "ulimits": box["ulimits"],
        "ipc": box["ipc"],
        "shm_mib": box["shm_mib"],
        "pids": box["pids"],
        "network": box["network"],
        "read_only": run["read_only"],
        # A server keeps its scales in memory where the tool writes, and Docker mounts memory over a folder of the node:
        # what was measured would end with the container.
        "tmpfs": [entry for entry in box["tmpfs"] if not is_below(entry["path"], place.container)],
        "working_directory": run["working_directory"],
        "mounts": mounts,
    }


def _environment(plan: Mapping[str, Any], options: Options) -> dict[str, str]:
    kept = {
        name: value
        for name, value in {**plan["environment"], **plan["container"]["environment"]}.items()
        if not SERVING_ONLY.fullmatch(name)
    }
    if not trusts_code(plan):
        kept["HF_MODULES_CACHE"] = MODULES_CACHE
    # No checksum pins the data set, and datasets before 2.20 runs a script in it unless it is told not to (config.py).
    kept["HF_DATASETS_TRUST_REMOTE_CODE"] = "0"
    # A local data set needs no hub access.
    if options.dataset:
        kept.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    return kept


def _dataset(options: Options, target: str) -> list[dict[str, object]]:
    """Return the mount of a local data set, if one is given."""
    return [{"source": options.dataset, "target": target, "read_only": True}] if options.dataset else []


def _hooks(plan: Mapping[str, Any], options: Options, weights: str) -> dict[str, Any]:
    """Return the steps of run_inc_calib.sh without its shell, which deletes earlier measurements."""
    node = str(plan["requires"]["measurements"]["path"])
    first = f"{node}/{measured_files(MEASURED, len(plan['modules']))[0]}"
    (container,) = [m["target"].rpartition("/")[0] for m in plan["container"]["mounts"] if m["source"] == first]
    fork = container.rpartition("/scripts/")[0]
    place = OutputDirectory(node, container, MEASURED)
    cards = str(len(plan["modules"]))
    working = plan["container"]["working_directory"]
    if options.dataset.endswith(PICKLED_DATASET):
        raise Refusal(
            "dataset_pickled",
            f"{options.dataset}: this release's tool reads a folder of {DATASET}, not a pickled table.",
        )
    own = f"{place.container}/{OWN}"
    # A branch that brings the server's configuration brings the program; images of others have it as a part.
    own_branch = str(plan["environment"]["QUANT_CONFIG"]).startswith(f"{fork}/")
    program = f"{fork if own_branch else INC_CALIBRATION_DIRECTORY}/{INC_CALIBRATION_PROGRAM}"
    files = {f"{OWN}/measure.json": quant_config.rendered(quant_config.measurement(f"{container}/{place.prefix}"))}
    for name in quant_config.SCHEMES:
        # Relative, as the vendor's are, where the server joins it to INC_MEASUREMENT_DUMP_PATH_PREFIX.
        measured = f".{container[len(fork) :]}" if own_branch else container
        config = quant_config.quantisation(name, f"{measured}/{place.prefix}")
        files[f"{OWN}/{name}.json"] = quant_config.rendered(config)
    return {
        "tool": "run_example_tp.py",
        "place": place,
        "files": files,
        "written": [],
        "read_only": True,
        "working_directory": working,
        "mounts": [
            {"source": f"{place.node}.partial/{OWN}", "target": own, "read_only": True},
            *_dataset(options, f"{working}/{DATASET}"),
        ],
        "environment": {**_environment(plan, options), **MEASURING, "QUANT_CONFIG": f"{own}/measure.json"},
        "command": [
            "python3", program, "--model", weights, "--tokenizer", weights, "--osl", "32",
            "--max_num_seqs", "1", "--tp_size", cards, "--ep_size", cards, "--nprompts", str(options.prompts),
            "--max_model_len", "2048", "--dataset", "pile",
        ],
    }  # fmt: skip


def _script(plan: Mapping[str, Any], options: Options, weights: str, device: str) -> dict[str, Any]:
    """calibrate_model.sh: writes OUT/<name of the weights, lower case>, where the plan looks for it.

    device: g2 or g3, as the script calls the card it finds.
    """
    node = str(plan["requires"]["files"][0]).rpartition("/")[0]
    (container,) = [m["target"] for m in plan["container"]["mounts"] if m["source"] == node]
    above, _, name = container.rpartition("/")
    called = weights.rstrip("/").rpartition("/")[2].lower()
    if called != name:
        raise Refusal(
            "measurements_named_otherwise",
            f"calibrate_model.sh names its result after the weights ({called}), but the plan looks for {name}. "
            "Leave quantization_config out.",
        )
    pickled = options.dataset.endswith(PICKLED_DATASET)
    if not pickled and options.prompts != FIXED_PROMPTS:
        raise Refusal(
            "prompts_fixed",
            f"calibrate_model.sh measures {FIXED_PROMPTS} prompts of a data set by name, not {options.prompts}. "
            "Leave the number out, or give a pickled table (.pkl).",
        )
    command = ["bash", f"{options.extension_directory}/calibrate_model.sh", "-m", weights]
    command += ["-d", options.dataset or DATASET, "-o", above, "-t", str(len(plan["modules"]))]
    if pickled:
        command += ["-l", str(options.prompts)]
    if "--enable-expert-parallel" in plan["arguments"]:
        command += ["-u"]
    return {
        "tool": "calibrate_model.sh",
        "place": OutputDirectory(node, container, f"{device}/inc_output"),
        "files": {},
        "written": [str(plan["requires"]["files"][0]).rpartition("/")[2]],
        # It writes beside itself; what it leaves there goes with the container.
        "read_only": False,
        "working_directory": plan["container"]["working_directory"],
        "mounts": _dataset(options, options.dataset),
        "environment": _environment(plan, options),
        "command": command,
    }
