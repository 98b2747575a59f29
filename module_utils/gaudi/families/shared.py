"""What the start scripts of several families do alike: each function fills a part of the draft."""

from __future__ import annotations

from ..request.options import RecipeCache
from ..request.resolved import Wish
from ..rules.draft import Draft, Value, given
from . import formulas


def bucket(draft: Draft, name: str, minimum: Value, step: Value, maximum: Value) -> None:
    """The three variables of one dimension, such as PROMPT_SEQ."""
    for key, value in (("MIN", minimum), ("STEP", step), ("MAX", maximum)):
        draft.variable(f"VLLM_{name}_BUCKET_{key}", value)


def limits(draft: Draft, wish: Wish) -> None:
    """One padding limit for all four dimensions."""
    limit = wish.pick("padding_limit").result
    for name in ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK"):
        draft.variable(f"VLLM_{name}_BUCKET_LIMIT", formulas.padding_limit(limit=limit))


def environment_of_release(draft: Draft, wish: Wish) -> None:
    """What the release file exports as it stands."""
    fixed = given("release-environment", f"catalog/releases/{wish.release.name}.yml")
    for name, value in wish.release.environment.items():
        draft.variable(name, fixed(value=value))


def lazy_collectives(draft: Draft, wish: Wish) -> None:
    """Collectives of several cards."""
    draft.variable("PT_HPU_ENABLE_LAZY_COLLECTIVES", formulas.lazy_collectives(tensor_parallel_size=wish.cards))


def recipe_cache(draft: Draft, wish: Wish) -> None:
    """Where compiled recipes are kept."""
    cache = wish.request.recipe_cache
    if isinstance(cache, RecipeCache):
        size = cache.size_mib or wish.constant("recipe_cache_mib")
        draft.variable("PT_HPU_RECIPE_CACHE_CONFIG", formulas.recipe_cache(directory=cache.directory, size_mib=size))


# Options that are one variable as they stand. The switches of the bridge are numbers.
KNOBS = {
    "graph_reserved_mem": "VLLM_GRAPH_RESERVED_MEM",
    "graph_prompt_ratio": "VLLM_GRAPH_PROMPT_RATIO",
    "graph_prompt_strategy": "VLLM_GRAPH_PROMPT_STRATEGY",
    "graph_decode_strategy": "VLLM_GRAPH_DECODE_STRATEGY",
    "exponential_bucketing": "VLLM_EXPONENTIAL_BUCKETING",
    "log_step_graph_compilation": "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION",
    "log_step_graph_compilation_all": "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION_ALL",
    "log_step_cpu_fallbacks": "VLLM_HPU_LOG_STEP_CPU_FALLBACKS",
    "log_step_cpu_fallbacks_all": "VLLM_HPU_LOG_STEP_CPU_FALLBACKS_ALL",
}
BRIDGE_SWITCHES = {"lazy_mode": "PT_HPU_LAZY_MODE", "metrics_gc_details": "PT_HPU_METRICS_GC_DETAILS"}


def knobs(draft: Draft, wish: Wish) -> None:
    """The typed options that are one variable each, where they were said; they win over what the script exports."""
    for option, variable in KNOBS.items():
        draft.variable(variable, wish.said(option))
    for option, variable in BRIDGE_SWITCHES.items():
        wanted = getattr(wish.request, option)
        if wanted is not None:
            draft.variable(variable, wish.source(option)(value="1" if wanted else "0"))


def skip_warmup(draft: Draft, wish: Wish, word: str) -> None:
    """``word`` is how the release's script writes true."""
    if wish.request.skip_warmup:
        draft.variable("VLLM_SKIP_WARMUP", wish.source("skip_warmup")(value=word))


def quantization(draft: Draft, wish: Wish) -> None:
    """The INC configuration of calibrated FP8, on the server's own weights."""
    if wish.dtype == "fp8":
        draft.variable("QUANT_CONFIG", formulas.quantization_config(file=wish.quantization_config))
        draft.variable("PT_HPU_WEIGHT_SHARING", wish.script("0"))


def dtype(draft: Draft, wish: Wish) -> None:
    """bfloat16 for everything but float32; nothing where the model's own configuration decides."""
    if wish.dtype != "auto":
        float32 = wish.dtype == "float32"
        draft.option("--dtype", wish.said("dtype") if float32 else wish.script("bfloat16"))


def model_and_cards(draft: Draft, wish: Wish) -> None:
    """What is served, on how many cards."""
    draft.option("--model", wish.source("weights")(value=wish.weights))
    draft.option("--tensor-parallel-size", wish.source("tensor_parallel_size")(value=wish.cards))


def expert_parallel(draft: Draft, wish: Wish) -> None:
    """Experts spread over the cards, for models that have some."""
    scout = wish.model.kind == "llama4-scout"
    draft.option(
        "--enable-expert-parallel",
        formulas.expert_parallel(num_experts=wish.model.shape.num_experts, llama4_scout=scout),
    )
