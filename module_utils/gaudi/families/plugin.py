"""The family of releases with upstream vLLM and the plugin vllm-gaudi: no start script, and vLLM's own option names.

Versions differ in their release files (``constants.bucketing``, the options and variables they know). Options of the
fork are translated into their equivalents, one line each in the plan's ``changes``. An option without an equivalent is
refused if the request sets it, and left out with a line if only the model's file does.
"""

from __future__ import annotations

from ..base.refusal import Refusal
from ..request.options import PLUGIN_OPTIONS
from ..request.resolved import ResolvedRequest
from ..rules.buckets import ceil_to
from ..rules.draft import Draft, Value, given, rule
from . import formulas
from .base import Family, Lengths
from .features import check_features
from .plugin_warmup import of_start, warmup
from .shared import adapters, as_json, environment_of_release, quantization, recipe_cache

# ---- what the fork had and the plugin has not

REASONS = {
    "scheduler_steps": "the plugin has no steps of a scheduler any more; async_scheduling is what came for them",
    "partial_warmup": "it warms up all buckets or none; bucketing_file says which there are",
    "zero_padding": "its V1 engine knows no padding with zeros",
    "padding_limit": "only the strategy padding-aware limits padding",
    "max_seq_len_to_capture": "graphs are made for every bucket",
    "graph_prompt_ratio": "prompts and decoding share what is kept for graphs",
    "graph_prompt_strategy": "buckets are warmed up from the largest down",
    "graph_decode_strategy": "buckets are warmed up from the largest down",
    "log_step_graph_compilation": "the plugin's code does not read it, whatever its documentation says",
    "log_step_graph_compilation_all": "the plugin's code does not read it, whatever its documentation says",
    "log_step_cpu_fallbacks": "the plugin's code does not read it, whatever its documentation says",
    "log_step_cpu_fallbacks_all": "the plugin's code does not read it, whatever its documentation says",
}

# ---- formulas


@rule(
    "model-len-from-ranges", "gaudi-serving: the plugin plans by a length; both ranges' ends together, in whole blocks"
)
def model_len_from_ranges(input_max: int, output_max: int, block_size: int) -> int:
    """Longest input and longest output together, to whole blocks."""
    return ceil_to(input_max + output_max, block_size)


@rule("model-len-within-model", "gaudi-serving: above the model's own limit the server does not start")
def model_len_within_model(whole_blocks: int, positions: int) -> int:
    """Rounding alone does not go beyond what the model was made for."""
    return min(whole_blocks, positions)


@rule("model-len-of-model", "vllm/config/model.py: the length of config.json where nobody says one")
def model_len_of_model(positions: int) -> int:
    """What the server itself takes."""
    return positions


@rule("batched-tokens-without-chunks", "vllm/engine/arg_utils.py: without chunked prefill a prompt is one batch")
def batched_tokens_without_chunks(max_model_len: int, preferred: int) -> int:
    """One longest request, but no less than the server's own budget."""
    return max(max_model_len, preferred)


@rule("prompt-batch", "vllm_gaudi/extension/bucketing/common.py: the prompts of a prefill, 1 where nobody says")
def prompt_batch(max_num_prefill_seqs: int, max_num_seqs: int) -> int:
    """A prefill batch cannot be larger than the batch."""
    return min(max_num_prefill_seqs, max_num_seqs)


@rule(
    "prefix-caching-with-contiguous-pa", "vllm_gaudi/platform.py: contiguous paged attention turns prefix caching off"
)
def prefix_caching(requested: bool | None, contiguous_pa: bool) -> bool | None:
    """Off with contiguous paged attention, else as it was asked for."""
    return False if contiguous_pa else requested


@rule("inc", "docs/configuration/quantization/inc.md of vllm-gaudi: --quantization inc beside QUANT_CONFIG")
def calibrated(dtype: str, stored: str | None) -> str | None:
    """Return the quantisation method of a calibrated model.

    For weights that are stored quantised vLLM only accepts their own method, and QUANT_CONFIG alone enables INC
    (vllm/config/model.py, vllm_gaudi/utils.py has_quant_config).
    """
    return "inc" if dtype == "fp8" and stored is None else None


# ---- filling


def _fill(draft: Draft, resolved: ResolvedRequest) -> Lengths:
    """Fill the draft: lengths, variables, arguments."""
    lengths, length, tokens = _lengths(draft, resolved)
    _environment(draft, resolved)
    _bucketing(draft, resolved)
    _check_features(draft, resolved)
    _check_formats(resolved)
    _arguments(draft, resolved, length, tokens)
    return lengths


def _lengths(draft: Draft, resolved: ResolvedRequest) -> tuple[Lengths, Value, Value]:
    request, positions = resolved.request, resolved.model.positions.longest
    length = resolved.said("max_model_len")
    if resolved.ranged and length.result is None:
        (_, longest), (_, longest_out) = request.input_range or (0, 0), request.output_range or (0, 0)
        length = model_len_from_ranges(input_max=longest, output_max=longest_out, block_size=resolved.block_size)
        if positions is not None and longest + longest_out <= positions < length.result:
            length = model_len_within_model(whole_blocks=length.result, positions=positions)
        draft.change(f"input_range and output_range: max_model_len {length.result}, the ends of both together")
    elif resolved.ranged:
        draft.change("input_range and output_range: left out, max_model_len says the longest request")
    if length.result is None and positions is not None:
        length = model_len_of_model(positions=positions)
    tokens = resolved.pick("max_num_batched_tokens")
    whole = request.enable_chunked_prefill is False and request.max_num_batched_tokens is None
    if whole and length.result is not None:
        tokens = batched_tokens_without_chunks(max_model_len=length.result, preferred=tokens.result)
    seqs = resolved.pick("max_num_seqs").result
    return Lengths(length.result, tokens.result, seqs, _prompt_batch(draft, resolved, seqs)), length, tokens


def _prompt_batch(draft: Draft, resolved: ResolvedRequest, seqs: int) -> int:
    """Set the prompts of one prefill: the fork's max_num_prefill_seqs is a variable here."""
    asked = resolved.request.max_num_prefill_seqs
    if asked is None:
        return 1
    if asked == 0:
        draft.change("max_num_prefill_seqs auto: left out, one prompt a prefill is the plugin's own")
        return 1
    most = prompt_batch(max_num_prefill_seqs=asked, max_num_seqs=seqs)
    draft.variable("VLLM_PROMPT_BS_BUCKET_MAX", most)
    draft.change(f"max_num_prefill_seqs {asked}: VLLM_PROMPT_BS_BUCKET_MAX={most.result}")
    return int(most.result)


# Options that are one variable here, and how each value is written.
SWITCHES = {
    "skip_warmup": ("VLLM_SKIP_WARMUP", "true", "false"),
    "profile": ("VLLM_PROFILER_ENABLED", "true", "false"),
    "fused_sdpa": ("VLLM_PROMPT_USE_FUSEDSDPA", "true", "false"),
    "fp32_softmax": ("VLLM_FP32_SOFTMAX", "true", "false"),
    "contiguous_pa": ("VLLM_CONTIGUOUS_PA", "true", "false"),
    "lazy_mode": ("PT_HPU_LAZY_MODE", "1", "0"),
    "metrics_gc_details": ("PT_HPU_METRICS_GC_DETAILS", "true", "false"),
}


def _environment(draft: Draft, resolved: ResolvedRequest) -> None:
    environment_of_release(draft, resolved)
    for option, (variable, on, off) in SWITCHES.items():
        wanted = getattr(resolved.request, option)
        if wanted is not None:
            draft.variable(variable, resolved.source(option)(value=on if wanted else off))
    draft.variable("VLLM_GRAPH_RESERVED_MEM", resolved.said("graph_reserved_mem"))
    recipe_cache(draft, resolved)
    quantization(draft, resolved)
    for option, reason in REASONS.items():
        if option not in resolved.asked and getattr(resolved.request, option) is not None:
            draft.change(f"{option}: left out, {reason}")


def _strategy(draft: Draft, resolved: ResolvedRequest) -> str | None:
    """Return the requested strategy, in this project's word or the fork's; None for the server's own."""
    request = resolved.request
    if request.bucketing_strategy is None and request.bucketing_file is not None:
        return "file"
    if request.bucketing_strategy is None and request.exponential_bucketing is not None:
        found = "exponential" if request.exponential_bucketing else "linear"
        draft.change(f"exponential_bucketing {str(request.exponential_bucketing).lower()}: bucketing_strategy {found}")
        return found
    return request.bucketing_strategy


def _bucketing(draft: Draft, resolved: ResolvedRequest) -> None:
    """Set the variables of the requested strategy. Raises Refusal if this release lacks it."""
    strategy, has = _strategy(draft, resolved), resolved.constant("bucketing")
    if strategy is None:
        return
    name = resolved.release.name
    if strategy not in has:
        raise Refusal(
            "unknown_choice",
            f"bucketing_strategy is {strategy}, but release {name} has {', '.join(has)}. Choose one of these.",
        )
    if (strategy == "file") != (resolved.request.bucketing_file is not None):
        raise Refusal(
            "bucketing_file_alone",
            "bucketing_file and the bucketing_strategy file go together: the file's buckets win over every strategy. "
            "Give both, or neither.",
        )
    fixed = given("bucketing-strategy", f"catalog/releases/{name}.yml: constants.bucketing.{strategy}")
    for variable, value in has[strategy].items():
        draft.variable(variable, fixed(value=value))
    draft.variable("VLLM_BUCKETING_FROM_FILE", resolved.said("bucketing_file"))


def _check_formats(resolved: ResolvedRequest) -> None:
    """Refuse shard sizes with which the server would stop only after minutes of loading.

    Raises Refusal for experts that the cards cannot share. If weights are scaled by blocks, each card needs whole
    blocks (vllm/model_executor/layers/quantization/fp8.py, create_weights: "is not divisible by weight quantization
    block_n").
    """
    shape, cards = resolved.model.shape, resolved.cards
    width = shape.moe_intermediate_size
    if not shape.num_experts or width is None or resolved.request.enable_expert_parallel:
        return
    block = resolved.model.weight_block
    if width % (cards * (block or 1)):
        raise Refusal(
            "expert_width_not_divisible",
            f"The experts of {resolved.model.name} are {width} wide (moe_intermediate_size), which {cards} cards do "
            f"not divide into whole {'parts' if block is None else f'blocks of {block} (FP8)'}.",
            "Set enable_expert_parallel, or use fewer cards.",
        )


def _check_features(draft: Draft, resolved: ResolvedRequest) -> None:
    """Refuse combinations that do not work, and features that are known to end this release's server."""
    request, release = resolved.request, resolved.release
    if request.contiguous_pa and request.enable_prefix_caching:
        raise Refusal(
            "prefix_caching_with_contiguous_pa",
            "enable_prefix_caching and contiguous_pa are both on, but the plugin turns prefix caching off with "
            "contiguous paged attention (vllm_gaudi/platform.py). Keep one.",
        )
    if request.quantization == "inc" and resolved.model.stored_fp8:
        raise Refusal(
            "inc_of_stored_fp8",
            f"quantization is inc, but {resolved.model.name} is stored in {resolved.model.quant_method}: vLLM takes "
            f"the method of the weights only, and the server would not start. Leave quantization out: "
            f"quantization_config alone turns INC on.",
        )
    if request.quantization == "inc" and "QUANT_CONFIG" not in draft.environment:
        raise Refusal(
            "inc_without_config",
            "quantization is inc, but neither quantization_config nor dtype fp8 says where its measurements are "
            "(QUANT_CONFIG): the server would end once the weights are loaded. Set quantization_config, or leave "
            "quantization out.",
        )
    method = str((request.speculative_config or {}).get("method", ""))
    if method in release.unsupported:
        raise Refusal("unsupported_speculation", f"speculative_config has {method}: {release.unsupported[method]}")
    check_features(draft, resolved)
    if method in release.warned:
        draft.warn(f"speculative_config has {method}: {release.warned[method]}")
    if method and request.async_scheduling:
        draft.warn("async_scheduling is on, but the plugin turns it off with speculative_config. Leave it out.")
    _check_gated_delta_nets(draft, resolved)


def _check_gated_delta_nets(draft: Draft, resolved: ResolvedRequest) -> None:
    """Warn of failures with gated delta nets that users of such hosts reported, not the vendor."""
    request, state = resolved.request, resolved.model.shape.state
    if state is None or state.kind != "gdn":
        return
    if request.lazy_mode:
        draft.warn(
            f"lazy_mode is on, but {resolved.model.name} has gated delta nets, which were seen to end in lazy mode "
            f"(Neither storage attached to input tensor; Gaudi 2, plugin 0.26.0). Leave lazy_mode out."
        )
    if request.async_scheduling:
        draft.warn(
            f"async_scheduling is on, but {resolved.model.name} has gated delta nets, with some of which the first "
            f"request was seen to hang. Leave async_scheduling out."
        )


# Options that are passed as an argument unchanged.
ARGUMENTS = {
    "data_parallel_size": "--data-parallel-size",
    "num_gpu_blocks_override": "--num-gpu-blocks-override",
    "kv_cache_dtype": "--kv-cache-dtype",
    "max_loras": "--max-loras",
    "max_lora_rank": "--max-lora-rank",
    "tool_call_parser": "--tool-call-parser",
}
# Switches that have a --no- form to turn them off.
FLAGS = {
    "enable_expert_parallel": "--enable-expert-parallel",
    "enable_chunked_prefill": "--enable-chunked-prefill",
    "enable_lora": "--enable-lora",
    "async_scheduling": "--async-scheduling",
}
MAPPINGS = {
    "speculative_config": "--speculative-config",
    "structured_outputs_config": "--structured-outputs-config",
}


def _flag(draft: Draft, name: str, value: Value) -> None:
    """Pass a switch in one of its two forms; one that is not set is left to the server."""
    if value.result is not None:
        on = bool(value.result)
        draft.option(name if on else f"--no-{name[2:]}", Value(result=True, rule=value.rule, inputs=value.inputs))


def _arguments(draft: Draft, resolved: ResolvedRequest, length: Value, tokens: Value) -> None:
    request = resolved.request
    draft.option("--model", resolved.source("weights")(value=resolved.weights))
    draft.option("--tensor-parallel-size", resolved.source("tensor_parallel_size")(value=resolved.cards))
    draft.option("--block-size", _block_size(draft, resolved))
    if resolved.dtype != "auto":
        # bfloat16 for everything but float32, which the platform also converts to bfloat16, with its own warning.
        said = resolved.said("dtype") if resolved.dtype == "float32" else _bfloat16(dtype=resolved.dtype)
        draft.option("--dtype", said)
    draft.option("--max-model-len", length)
    draft.option("--max-num-seqs", resolved.pick("max_num_seqs"))
    draft.option("--max-num-batched-tokens", tokens)
    draft.option("--gpu-memory-utilization", resolved.pick("gpu_memory_utilization"))
    draft.option("--quantization", _method(resolved))
    for option, name in ARGUMENTS.items():
        draft.option(name, resolved.said(option))
    for option, name in FLAGS.items():
        _flag(draft, name, resolved.said(option))
    _flag(
        draft,
        "--enable-prefix-caching",
        prefix_caching(requested=request.enable_prefix_caching, contiguous_pa=bool(request.contiguous_pa)),
    )
    for option, name in MAPPINGS.items():
        draft.option(name, as_json(resolved.said(option)))
    if request.tool_call_parser is not None:
        draft.option("--enable-auto-tool-choice", resolved.source("tool_call_parser")(value=True))
    adapters(draft, resolved)


def _block_size(draft: Draft, resolved: ResolvedRequest) -> Value:
    """Return the block size: the requested one, the release's, or the one the server sets for a model type."""
    picked, own = resolved.pick("block_size"), resolved.block_size_of_type
    if own is None:
        return picked
    if resolved.request.block_size not in (None, own):
        draft.warn(
            f"block_size is {resolved.request.block_size}, but the server sets {own} for models of the type "
            f"{resolved.model.shape.model_type} whatever it is told (vllm_gaudi/platform.py). Leave block_size out."
        )
        return picked
    of_type = given("block-size-of-type", "vllm_gaudi/platform.py update_block_size_for_backend")
    taken = resolved.release.typed_arguments["--block-size"].wrong(str(own)) is None
    # If the parser does not accept the number, it is not passed; the server then sets the same number itself.
    return of_type(value=own if taken else None)


@rule("bfloat16", "vllm_gaudi/platform.py: float16 and float32 become bfloat16 on these cards")
def _bfloat16(dtype: str) -> str:
    return "bfloat16"


def _method(resolved: ResolvedRequest) -> Value:
    """Return the quantisation method: as requested, INC for calibrated FP8, the cards' kernels for AWQ and GPTQ."""
    if resolved.request.quantization is not None:
        return resolved.said("quantization")
    if resolved.dtype == "fp8":
        return calibrated(dtype=resolved.dtype, stored=resolved.model.quant_method)
    return formulas.hpu_quantization(dtype=resolved.dtype)


PLUGIN = Family(
    name="vllm-plugin",
    fill=_fill,
    without_effect=tuple(REASONS),
    reasons=REASONS,
    takes=PLUGIN_OPTIONS,
    plans_by_length=True,
    options_in_environment={
        "VLLM_CONTIGUOUS_PA": "contiguous_pa",
        "VLLM_BUCKETING_FROM_FILE": "bucketing_file",
    },
    # Arguments that buckets, memory or a check depend on.
    options_in_arguments={
        "--num-gpu-blocks-override": "num_gpu_blocks_override",
        "--speculative-config": "speculative_config",
        "-sc": "speculative_config",
        "--enable-expert-parallel": "enable_expert_parallel",
        "-ep": "enable_expert_parallel",
        "--structured-outputs-config": "structured_outputs_config",
        "--enable-lora": "enable_lora",
        "--enable-prefix-caching": "enable_prefix_caching",
        "--enable-chunked-prefill": "enable_chunked_prefill",
        "--async-scheduling": "async_scheduling",
    },
    true_words=("true", "t", "1", "yes", "y", "on"),
    repository="vllm_gaudi",
    without_script="gaudi-serving, as the start scripts of earlier releases",
    validated_models="validated_models.md",
    chunks_prefill=True,
    memory_code="vllm_gaudi/v1/worker/hpu_worker.py determine_available_memory",
    cache_code="vllm_gaudi/platform.py",
    scales_while_loading=True,
    layers_share_cache=True,
    buckets=warmup,
    buckets_of_start=of_start,
)
