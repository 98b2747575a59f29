"""Steps that the start scripts of several families share: each function fills a part of the draft."""

from __future__ import annotations

import json

from ..request.options import RecipeCache
from ..request.resolved import ResolvedRequest
from ..rules.draft import Draft, Value, given
from . import formulas
from .features import check_adapters, check_speculation


def bucket(draft: Draft, name: str, minimum: Value, step: Value, maximum: Value) -> None:
    """The three variables of one dimension, such as PROMPT_SEQ."""
    for key, value in (("MIN", minimum), ("STEP", step), ("MAX", maximum)):
        draft.variable(f"VLLM_{name}_BUCKET_{key}", value)


def limits(draft: Draft, resolved: ResolvedRequest) -> None:
    """One padding limit for all four dimensions."""
    limit = resolved.pick("padding_limit").result
    for name in ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK"):
        draft.variable(f"VLLM_{name}_BUCKET_LIMIT", formulas.padding_limit(limit=limit))


def environment_of_release(draft: Draft, resolved: ResolvedRequest) -> None:
    """Set the variables that the release file lists."""
    fixed = given("release-environment", f"catalog/releases/{resolved.release.name}.yml")
    for name, value in resolved.release.environment.items():
        draft.variable(name, fixed(value=value))


def lazy_collectives(draft: Draft, resolved: ResolvedRequest) -> None:
    """Collectives of several cards."""
    draft.variable("PT_HPU_ENABLE_LAZY_COLLECTIVES", formulas.lazy_collectives(tensor_parallel_size=resolved.cards))


def recipe_cache(draft: Draft, resolved: ResolvedRequest) -> None:
    """Set where compiled recipes are kept."""
    cache = resolved.request.recipe_cache
    if isinstance(cache, RecipeCache):
        size = cache.size_mib or resolved.constant("recipe_cache_mib")
        draft.variable("PT_HPU_RECIPE_CACHE_CONFIG", formulas.recipe_cache(directory=cache.directory, size_mib=size))


# Options that are one variable unchanged. The bridge's switches are numbers.
KNOBS = {
    "graph_reserved_mem": "VLLM_GRAPH_RESERVED_MEM",
    "graph_prompt_ratio": "VLLM_GRAPH_PROMPT_RATIO",
    "graph_prompt_strategy": "VLLM_GRAPH_PROMPT_STRATEGY",
    "graph_decode_strategy": "VLLM_GRAPH_DECODE_STRATEGY",
    "exponential_bucketing": "VLLM_EXPONENTIAL_BUCKETING",
}
# Switches that every fork reads as on for any text but "0" (habana_model_runner.py, hpu_model_runner.py).
LOG_SWITCHES = {
    "log_step_graph_compilation": "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION",
    "log_step_graph_compilation_all": "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION_ALL",
    "log_step_cpu_fallbacks": "VLLM_HPU_LOG_STEP_CPU_FALLBACKS",
    "log_step_cpu_fallbacks_all": "VLLM_HPU_LOG_STEP_CPU_FALLBACKS_ALL",
}
BRIDGE_SWITCHES = {"lazy_mode": "PT_HPU_LAZY_MODE", "metrics_gc_details": "PT_HPU_METRICS_GC_DETAILS"}


def knobs(draft: Draft, resolved: ResolvedRequest) -> None:
    """Set the options that are one variable each, if the request has them; they override the script's values."""
    for option, variable in KNOBS.items():
        draft.variable(variable, resolved.said(option))
    for option, variable in LOG_SWITCHES.items():
        wanted = getattr(resolved.request, option)
        if wanted is not None:
            draft.variable(variable, resolved.source(option)(value="true" if wanted else "0"))
    for option, variable in BRIDGE_SWITCHES.items():
        wanted = getattr(resolved.request, option)
        if wanted is not None:
            draft.variable(variable, resolved.source(option)(value="1" if wanted else "0"))


# Options in vLLM's own words that the servers of the forks have, too. reasoning_parser is set for all releases
# (planning/server.py).
OPTIONS_OF_FORKS = (
    "enable_prefix_caching",
    "enable_lora",
    "max_loras",
    "max_lora_rank",
    "lora_modules",
    "speculative_config",
    "reasoning_parser",
    "tool_call_parser",
)


def options_of_forks(draft: Draft, resolved: ResolvedRequest) -> None:
    """Pass the options in vLLM's own words. Raises Refusal for those that would end the server."""
    check_speculation(resolved)
    check_adapters(draft, resolved)
    for option in ("enable_prefix_caching", "enable_lora"):
        # What is off there by default has no argument that turns it off on the oldest of them.
        if getattr(resolved.request, option):
            draft.option(f"--{option.replace('_', '-')}", resolved.said(option))
    for option in ("max_loras", "max_lora_rank"):
        draft.option(f"--{option.replace('_', '-')}", resolved.said(option))
    draft.option("--speculative-config", as_json(resolved.said("speculative_config")))
    if resolved.request.speculative_config is not None:
        draft.warn(
            f"speculative_config is experimental on release {resolved.release.name} (README_GAUDI.md of its fork), and "
            f"was not tried by this project on a card."
        )
    adapters(draft, resolved)
    draft.option("--tool-call-parser", resolved.said("tool_call_parser"))
    if resolved.request.tool_call_parser is not None:
        draft.option("--enable-auto-tool-choice", resolved.source("tool_call_parser")(value=True))


def as_json(value: Value) -> Value:
    """A mapping as an argument has it; nothing where there is none."""
    if value.result is None:
        return value
    return Value(json.dumps(value.result, sort_keys=True, separators=(",", ":")), value.rule, value.inputs)


def adapters(draft: Draft, resolved: ResolvedRequest) -> None:
    """Set the adapters, which need LoRA whether or not the request says so."""
    request = resolved.request
    if request.lora_modules:
        if request.enable_lora is None:
            draft.option("--enable-lora", resolved.source("lora_modules")(value=True))
        pairs = [f"{name}={place}" for name, place in request.lora_modules.items()]
        draft.option("--lora-modules", resolved.source("lora_modules")(value=pairs))


def skip_warmup(draft: Draft, resolved: ResolvedRequest, word: str) -> None:
    """Skip the warm-up if requested; ``word`` is how the release's script writes true."""
    if resolved.request.skip_warmup:
        draft.variable("VLLM_SKIP_WARMUP", resolved.source("skip_warmup")(value=word))


def quantization(draft: Draft, resolved: ResolvedRequest) -> None:
    """The INC configuration of calibrated FP8, on the server's own weights."""
    if resolved.dtype == "fp8":
        draft.variable("QUANT_CONFIG", formulas.quantization_config(file=resolved.quantization_config))
        draft.variable("PT_HPU_WEIGHT_SHARING", resolved.script("0"))


def dtype(draft: Draft, resolved: ResolvedRequest) -> None:
    """bfloat16 for weights of fewer bits, else the type as requested; nothing where the model's own decides."""
    if resolved.dtype != "auto":
        own = resolved.dtype in ("float16", "float32")
        draft.option("--dtype", resolved.said("dtype") if own else resolved.script("bfloat16"))


def model_and_cards(draft: Draft, resolved: ResolvedRequest) -> None:
    """Set the model and the number of cards."""
    draft.option("--model", resolved.source("weights")(value=resolved.weights))
    draft.option("--tensor-parallel-size", resolved.source("tensor_parallel_size")(value=resolved.cards))


def expert_parallel(draft: Draft, resolved: ResolvedRequest) -> None:
    """Experts spread over the cards, for models that have some."""
    scout = resolved.model.kind == "llama4-scout"
    draft.option(
        "--enable-expert-parallel",
        formulas.expert_parallel(num_experts=resolved.model.shape.num_experts, llama4_scout=scout),
    )
