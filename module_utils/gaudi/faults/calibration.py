"""Known faults of a calibration. A part of the list in known.py."""

from __future__ import annotations

from .entry import INSTANCES, KnownFault

FAULTS = (
    # The calibration tool: calibrate_model.sh of vllm-hpu-extension, run_example_tp.py of the fork.
    KnownFault(
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
    KnownFault(
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
    KnownFault(
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
    KnownFault(
        "calibration-not-measured",
        INSTANCES,
        "",
        "No measurements are where they are looked for.",
        "In a calibration, the step that measures failed and the script went on: read the first error above "
        "this line. Of a server, QUANT_CONFIG names another folder or card type, or the measurements are of "
        "another number of cards (playbooks/calibrate.yml makes them).",
        "calibrate_model.sh of vllm-hpu-extension 7717587, whose steps go on after a failed one; optimum-habana 1684 "
        "and neural-compressor 2223, public reports",
        consequence=True,
        signs=r"cannot stat '[^']*inc_tmp/|(?:No such file or directory: '|Failed to load file )[^'\s]{0,200}(?:inc_tmp"
        r"|inc_output|maxabs_\w{1,60}\.(?:json|npz)|_hooks_\w{1,60}\.(?:json|npz))"
        r"|was not quantized because no measures were supplied",
        example="cp: cannot stat 'inc_tmp/llama-3.1-8b-instruct/g2/*': No such file or directory",
    ),
)
