"""Known faults of a calibration. A part of the list in known.py."""

from __future__ import annotations

from .entry import INSTANCES, Known

FAULTS = (
    # The calibration tool: calibrate_model.sh of vllm-hpu-extension, run_example_tp.py of the fork.
    Known(
        "calibration-versions",
        INSTANCES,
        "",
        "The fork of vLLM and vllm-hpu-extension, or Intel Neural Compressor, are of two versions: one calls the other "
        "with other arguments than it takes.",
        "Install the pair of one release: the fork's requirements for HPU name the commit of the "
        "extension. An image that serving_image_build makes has both from one release.",
        "vllm-hpu-extension 68, 164 and vllm-fork 453, public issues",
        signs=r"Patched\w+\.\w+\(\) (?:missing|takes|got an unexpected)"
        r"|cannot import name '\w+' from '(?:vllm_hpu_extension|neural_compressor)"
        r"|No module named '(?:vllm_hpu_extension|neural_compressor)"
        r"|module '(?:vllm_hpu_extension|neural_compressor)[\w.]*' has no attribute"
        r"|(?:EngineArgs|LLM)\.__init__\(\) got an unexpected keyword argument",
        example="[rank0]: TypeError: PatchedVLLMKVCache.forward_measure() missing 2 required positional arguments: "
        "'block_indices' and 'block_offset'",
    ),
    Known(
        "calibration-tool-missing",
        INSTANCES,
        "",
        "The image does not have the vendor's calibration tool where it is looked for.",
        "Serve with an image that has vllm-hpu-extension (serving_image_build), or name its folder in "
        "fp8_calibration_extension_directory.",
        "bash and python3, of the commands in calibration/run.py",
        signs=r"calibrate_model\.sh: (?:No such file|not found)"
        r"|can't open file '?[^']*(?:run_example_tp|step-\d-[\w-]+)\.py",
        example="bash: /opt/vllm-hpu-extension/calibration/calibrate_model.sh: No such file or directory",
    ),
    Known(
        "calibration-dataset",
        INSTANCES,
        "",
        "The data set for the calibration could not be read.",
        "On a site without its hub name a folder of the node with fp8_calibration_dataset.",
        "datasets/load.py, and scripts/run_example_tp.py of the fork",
        retry=True,
        signs=r"Failed to load prompts|DatasetNotFoundError|Dataset '[^']*' doesn't exist on the Hub"
        r"|No such file or directory: '?[^']*calibration-dataset\.pkl",
        example="datasets.exceptions.DatasetNotFoundError: Dataset 'NeelNanda/pile-10k' doesn't exist on the Hub or "
        "cannot be accessed.",
    ),
    Known(
        "calibration-not-measured",
        INSTANCES,
        "",
        "No measurements are where they are looked for.",
        "In a calibration, the step that measures failed and the script went on: read the first error above "
        "this line. Of a server, QUANT_CONFIG names another folder or card type, or the measurements are of "
        "another number of cards (playbooks/calibrate.yml makes them).",
        "calibrate_model.sh of vllm-hpu-extension 7717587, whose steps go on after a failed one",
        consequence=True,
        signs=r"cannot stat '[^']*inc_tmp/|No such file or directory: '[^']*(?:inc_tmp|inc_output)",
        example="cp: cannot stat 'inc_tmp/llama-3.1-8b-instruct/g2/*': No such file or directory",
    ),
    Known(
        "unknown-argument",
        INSTANCES,
        "",
        "This release does not know, or does not take, what it was given:",
        "plan and image are of different releases, or extra_args or extra_environment is wrong.",
        "argparse, and vLLM's own words",
        signs=r"error: .* knows no |error: unrecognized arguments|error: argument \S+: "
        r"|error: the following arguments|(?i:unknown|unrecognized|unsupported) (?:argument|option"
        r"|variable|environment variable)s?\b",
        example="api_server.py: error: unrecognized arguments: --swap-space 4",
    ),
    Known(
        "refused-configuration",
        INSTANCES,
        "",
        "The server refuses what it is asked for.",
        "Correct the request; then run the playbook again.",
        "pydantic, which vllm/config is made of",
        signs=r"(?:^|\) ) *Value error, ",
        example="  Value error, max_model_len is larger than the model takes",
    ),
    Known(
        "chat-template-missing",
        INSTANCES,
        "",
        "The server cannot read the chat template.",
        "Put the template where the container sees it, beside the weights, or correct chat_template; then "
        "run the playbook again.",
        "load_chat_template in vllm/entrypoints or vllm/renderers/chat_utils.py",
        signs=r"The supplied chat template .*(?:path-like|looks like a file path), but",
        example="ValueError: The supplied chat template (/t.jinja) looks like a file path, but it cannot be opened.",
    ),
    Known(
        "port-taken",
        INSTANCES,
        "",
        "Another process took the port.",
        "Stop it, or give the instance another port.",
        "uvicorn",
        retry=True,
        remedies={"instance": "Stop it (systemctl stop vllm-{other}), or give one of the two another port."},
        signs=r"\[Errno 98\]|[Aa]ddress already in use",
        example="OSError: [Errno 98] Address already in use",
    ),
    Known(
        "weights-incomplete",
        INSTANCES,
        "",
        "The weights are incomplete or damaged.",
        "Fetch them again or verify their checksums.",
        "safetensors and transformers",
        signs=r"SafetensorError|MetadataIncompleteBuffer|InvalidHeaderDeserialization|HeaderTooLarge"
        r"|Cannot find any model weights|does not appear to have a file named"
        r"|No such file or directory: .*\.(?:safetensors|json|bin)",
        example="safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
    ),
    Known(
        "pipeline-parallel",
        INSTANCES,
        "",
        "With pipeline parallelism a worker that is not the last returns no tokens, and this server expects them from "
        "all.",
        "Leave --pipeline-parallel-size out, and use the cards of one node (tensor_parallel_size).",
        "vllm-gaudi 728, a public issue; plans of this project are refused with it",
        signs=r"'NoneType' object has no attribute 'sampled_token_ids'",
        example="AttributeError: 'NoneType' object has no attribute 'sampled_token_ids'",
    ),
)
