"""What each family of releases exports and passes: the vendor's start scripts as sequences of rules.

A family fills a :class:`~.rules.Draft` from a :class:`Wish`. The order of arguments follows the script, so that a plan
can be laid beside the vendor's own command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import rules
from .buckets import ceil_to
from .catalogue import ReleaseEntry
from .checks import Refusal
from .plan_model import ModelFacts
from .request import RecipeCache, Request
from .rules import CONSTANT, FIXED, REQUESTED, Draft, either

BLOCK = 128


@dataclass(frozen=True)
class Wish:
    """Everything a family decides from. ``dtype`` is settled, ``parser`` only for models that think."""

    request: Request
    release: ReleaseEntry
    model: ModelFacts
    weights: str
    dtype: str
    quantization_config: str | None
    parser: str | None
    card_name: str
    cards: int
    profile_name: str

    def constant(self, key: str) -> Any:
        """A number of the release file; a missing one is refused with file and key."""
        if key not in self.release.constants:
            raise Refusal(f"catalog/releases/{self.release.name}.yml: constants lacks the key {key}. Add it.")
        return self.release.constants[key]

    def pick(self, option: str) -> tuple[rules.Rule, Any]:
        """The request's value of an option, else the release's constant of that name."""
        return either(getattr(self.request, option), self.constant(option))

    @property
    def block_size(self) -> int:
        """Tokens of one KV cache block."""
        return int(self.pick("block_size")[1])

    @property
    def scout(self) -> bool:
        """Whether the script would leave expert parallelism off."""
        return self.model.kind == "llama4-scout"


@dataclass(frozen=True)
class Lengths:
    """What the memory and bucket parts need to know of a finished draft."""

    max_model_len: int | None
    max_num_batched_tokens: int | None
    max_num_seqs: int


def _ranges(wish: Wish) -> tuple[tuple[int, int], tuple[int, int]]:
    request = wish.request
    given_in = request.input_range or tuple(wish.constant("input_range"))
    given_out = request.output_range or tuple(wish.constant("output_range"))
    return (int(given_in[0]), int(given_in[1])), (int(given_out[0]), int(given_out[1]))


def _bucket(draft: Draft, name: str, *, minimum: Any, step: Any, maximum: Any) -> None:
    """Three variables of one dimension; each is (rule, inputs)."""
    for key, (by, inputs) in (("MIN", minimum), ("STEP", step), ("MAX", maximum)):
        draft.variable(f"VLLM_{name}_BUCKET_{key}", by, **inputs)


def _one(value: int = 1) -> tuple[rules.Rule, Mapping[str, int]]:
    return CONSTANT, {"value": value}


def _limits(draft: Draft, limit: float) -> None:
    for name in ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK"):
        draft.variable(f"VLLM_{name}_BUCKET_LIMIT", rules.padding_limit, limit=limit)


def _fixed_environment(draft: Draft, wish: Wish) -> None:
    for name, value in wish.release.environment.items():
        draft.variable(name, FIXED, value=value)


def _recipe(draft: Draft, wish: Wish) -> None:
    cache = wish.request.recipe_cache
    if isinstance(cache, RecipeCache):
        size = cache.size_mib or wish.constant("recipe_cache_mib")
        draft.variable("PT_HPU_RECIPE_CACHE_CONFIG", rules.recipe_cache, directory=cache.directory, size_mib=size)


def _switches(draft: Draft, wish: Wish) -> None:
    """The typed options that are one variable each, for every family."""
    request = wish.request
    for option, variable in (
        ("graph_reserved_mem", "VLLM_GRAPH_RESERVED_MEM"),
        ("graph_prompt_ratio", "VLLM_GRAPH_PROMPT_RATIO"),
        ("graph_prompt_strategy", "VLLM_GRAPH_PROMPT_STRATEGY"),
        ("graph_decode_strategy", "VLLM_GRAPH_DECODE_STRATEGY"),
        ("exponential_bucketing", "VLLM_EXPONENTIAL_BUCKETING"),
        ("log_step_graph_compilation", "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION"),
        ("log_step_graph_compilation_all", "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION_ALL"),
        ("log_step_cpu_fallbacks", "VLLM_HPU_LOG_STEP_CPU_FALLBACKS"),
        ("log_step_cpu_fallbacks_all", "VLLM_HPU_LOG_STEP_CPU_FALLBACKS_ALL"),
    ):
        value = getattr(request, option)
        if value is not None:
            draft.variable(variable, REQUESTED, value=value)
    if request.lazy_mode is not None:
        draft.variable("PT_HPU_LAZY_MODE", REQUESTED, value="1" if request.lazy_mode else "0")
    if request.metrics_gc_details is not None:
        draft.variable("PT_HPU_METRICS_GC_DETAILS", REQUESTED, value="1" if request.metrics_gc_details else "0")


def _flag(draft: Draft, name: str, wanted: object = True, by: rules.Rule = CONSTANT) -> None:
    draft.option(name, by, value=bool(wanted))


def family_121(draft: Draft, wish: Wish) -> Lengths:
    """Release 1.21: lengths as given, ranges shape the buckets, one block of margin."""
    request, block = wish.request, wish.block_size
    (in_min, in_max), (out_min, out_max) = _ranges(wish)
    length_rule, length = wish.pick("max_model_len")
    tokens_rule, tokens = wish.pick("max_num_batched_tokens")
    seqs_rule, seqs = wish.pick("max_num_seqs")
    given = request.input_range is not None or request.output_range is not None
    rules.check_ranges(length, (in_min, in_max), (out_min, out_max), given, draft)

    _fixed_environment(draft, wish)
    draft.variable("PT_HPU_ENABLE_LAZY_COLLECTIVES", rules.lazy_collectives, tensor_parallel_size=wish.cards)
    memory_rule, memory = wish.pick("gpu_memory_utilization")
    capture_rule, capture = wish.pick("max_seq_len_to_capture")
    draft.variable("VLLM_GPU_MEMORY_UTILIZATION", memory_rule, value=memory)
    draft.variable("VLLM_MAX_SEQ_LEN_TO_CAPTURE", capture_rule, value=capture)
    draft.variable("VLLM_EP_SIZE", rules.REQUESTED, value=wish.cards)
    draft.variable("VLLM_PROFILER_ENABLED", rules.CONSTANT, value="True" if request.profile else "false")
    if request.profile:
        name = f"{wish.profile_name}_in{in_min}-{in_max}_out{out_min}-{out_max}_bs{seqs}_tp{wish.cards}"
        steps = request.scheduler_steps or wish.constant("scheduler_steps")
        draft.variable("VLLM_PROFILE_FILE", REQUESTED, value=f"{name}_steps{steps}_profile.json")
    if request.skip_warmup:
        draft.variable("VLLM_SKIP_WARMUP", REQUESTED, value="True")
    draft.variable(
        "VLLM_ZERO_PADDING", rules.zero_padding, requested=request.zero_padding, input_min=in_min, input_max=in_max
    )
    fused = True if request.fused_sdpa is None else request.fused_sdpa
    draft.variable("VLLM_PROMPT_USE_FUSEDSDPA", CONSTANT if request.fused_sdpa is None else REQUESTED, value=fused)
    draft.variable("VLLM_FP32_SOFTMAX", rules.fp32_softmax_121, requested=request.fp32_softmax, kind=wish.model.kind)
    _recipe(draft, wish)
    _bucket(
        draft,
        "PROMPT_BS",
        minimum=_one(),
        step=_one(),
        maximum=(
            rules.prompt_bs_max_121,
            {"max_num_batched_tokens": tokens, "input_min": in_min, "max_num_seqs": seqs},
        ),
    )
    _bucket(
        draft,
        "PROMPT_SEQ",
        minimum=(rules.prompt_seq_min, {"input_min": in_min, "block_size": block}),
        step=(rules.one_block, {"block_size": block}),
        maximum=(rules.prompt_seq_max_121, {"input_max": in_max, "block_size": block}),
    )
    step = rules.decode_bs_step(max_num_seqs=seqs)
    most = rules.decode_bs_max(max_num_seqs=seqs, step=step)
    _bucket(
        draft,
        "DECODE_BS",
        minimum=_one(),
        step=(rules.decode_bs_step, {"max_num_seqs": seqs}),
        maximum=(rules.decode_bs_max, {"max_num_seqs": seqs, "step": step}),
    )
    _bucket(
        draft,
        "DECODE_BLOCK",
        minimum=(rules.decode_block_min_121, {"input_min": in_min, "block_size": block}),
        step=(rules.one_block, {"block_size": block}),
        maximum=(
            rules.decode_block_max_121,
            {"input_max": in_max, "output_max": out_max, "decode_bs_max": most, "block_size": block},
        ),
    )
    _switches(draft, wish)

    draft.option("--device", CONSTANT, value="hpu")
    _dtype_option(draft, wish)
    if wish.dtype == "fp8":
        draft.variable("QUANT_CONFIG", REQUESTED, value=wish.quantization_config)
        draft.variable("PT_HPU_WEIGHT_SHARING", CONSTANT, value="0")
        draft.variable("VLLM_DISABLE_MARK_SCALES_AS_CONST", CONSTANT, value="true")
        draft.option("--quantization", CONSTANT, value="inc")
        draft.option(
            "--kv-cache-dtype", rules.kv_cache_dtype_121, requested=request.kv_cache_dtype, kind=wish.model.kind
        )
        draft.option("--weights-load-device", rules.weights_load_device_121, kind=wish.model.kind)
    else:
        draft.option("--quantization", rules.hpu_quantization, dtype=wish.dtype)
        _kv_cache(draft, wish)
    _common_head(draft, wish)
    draft.option("--seed", CONSTANT, value=wish.constant("seed"))
    draft.option("--block-size", wish.pick("block_size")[0], value=block)
    draft.option("--max-num-seqs", seqs_rule, value=seqs)
    draft.option("--max-num-batched-tokens", tokens_rule, value=tokens)
    draft.option("--max-model-len", length_rule, value=length)
    if request.max_num_prefill_seqs is not None:
        prefill = request.max_num_prefill_seqs or rules.prefill_seqs_auto(
            preferred=tokens, input_min=in_min, block_size=block, max_num_seqs=seqs
        )
        draft.option(
            "--max-num-prefill-seqs", rules.prefill_seqs_within_seqs, max_num_prefill_seqs=prefill, max_num_seqs=seqs
        )
    draft.option("--max-seq-len-to-capture", capture_rule, value=capture)
    for flag in ("--disable-log-requests", "--use-v2-block-manager", "--use-padding-aware-scheduling"):
        _flag(draft, flag)
    steps_rule, steps = wish.pick("scheduler_steps")
    draft.option("--num-scheduler-steps", steps_rule, value=steps)
    draft.option("--distributed_executor_backend", rules.executor, tensor_parallel_size=wish.cards)
    draft.option("--gpu-memory-utilization", memory_rule, value=memory)
    return Lengths(length, tokens, seqs)


def partial_warmup(draft: Draft, wish: Wish) -> None:
    """Release 1.21's -r, applied last: it wins over the environment."""
    wanted = wish.request.partial_warmup
    if wanted is None:
        return
    if "VLLM_SKIP_LAZY_WARMUP" not in wish.release.variables:
        raise Refusal(
            f"partial_warmup is known to release 1.21 only, not to {wish.release.name}. "
            f"Leave it out, or narrow input_range and max_num_seqs."
        )
    (_, in_max), (_, out_max) = _ranges(wish)
    seqs = wish.pick("max_num_seqs")[1]
    if wanted.max_num_seqs > seqs:
        raise Refusal(
            f"partial_warmup.max_num_seqs is {wanted.max_num_seqs}, above max_num_seqs {seqs}: no batch is that large. "
            f"Lower it to {seqs} at most."
        )
    if wanted.max_seq_len > in_max:
        raise Refusal(
            f"partial_warmup.max_seq_len is {wanted.max_seq_len}, above the longest input {in_max} of input_range. "
            f"Lower it to {in_max} at most."
        )
    block = wish.block_size
    if wanted.max_seq_len % block:
        below, above = wanted.max_seq_len // block * block, ceil_to(wanted.max_seq_len, block)
        draft.warn(
            f"partial_warmup.max_seq_len {wanted.max_seq_len} is no multiple of {block}: the last bucket is {below}, and "
            f"inputs of {below + 1} to {wanted.max_seq_len} tokens compile at run time. Use {above}."
        )
    draft.variable("VLLM_SKIP_LAZY_WARMUP", CONSTANT, value="true")
    draft.variable("VLLM_PROMPT_SEQ_BUCKET_MAX", rules.partial_warmup_value, value=wanted.max_seq_len)
    draft.variable("VLLM_DECODE_BS_BUCKET_MAX", rules.partial_warmup_value, value=wanted.max_num_seqs)
    draft.variable(
        "VLLM_DECODE_BLOCK_BUCKET_MAX",
        rules.partial_warmup_blocks,
        max_seq_len=wanted.max_seq_len,
        output_max=out_max,
        max_num_seqs=wanted.max_num_seqs,
        block_size=block,
    )


def family_122(draft: Draft, wish: Wish) -> Lengths:
    """Release 1.22: a range rule (its manual) and a length rule (its later branch); whichever the request speaks."""
    request, block = wish.request, wish.block_size
    ranged = request.input_range is not None or request.output_range is not None
    by_range = ranged or (request.max_model_len is None and wish.constant("default_rule") == "range")
    seqs_rule, seqs = wish.pick("max_num_seqs")
    preferred = wish.constant("preferred_batched_tokens")

    _fixed_environment(draft, wish)
    draft.variable("PT_HPU_ENABLE_LAZY_COLLECTIVES", rules.lazy_collectives, tensor_parallel_size=wish.cards)
    if by_range:
        (in_min, in_max), (out_min, out_max) = _ranges(wish)
        spoken = f"in{in_min}-{in_max}_out{out_min}-{out_max}"
        sums = {"input_max": in_max, "output_max": out_max, "block_size": block}
        if request.max_model_len is None:
            length = draft.decide("max_model_len", rules.model_len_from_ranges, **sums)
        else:
            given = rules.model_len_to_blocks(max_model_len=request.max_model_len, block_size=block)
            rules.check_ranges(given, (in_min, in_max), (out_min, out_max), ranged, draft)
            length = draft.decide("max_model_len", rules.model_len_to_blocks, max_model_len=given, block_size=block)
        tokens = draft.decide(
            "max_num_batched_tokens",
            rules.batched_tokens_from_length,
            max_model_len=length,
            preferred=preferred,
            block_size=block,
        )
    else:
        in_min = block
        asked = wish.pick("max_model_len")[1]
        spoken = f"len{asked}"
        length = draft.decide("max_model_len", rules.model_len_to_blocks, max_model_len=asked, block_size=block)
        tokens = draft.decide(
            "max_num_batched_tokens",
            rules.batched_tokens_from_length,
            max_model_len=length,
            preferred=preferred,
            block_size=block,
        )
    if request.max_num_batched_tokens is not None:
        tokens = draft.decide("max_num_batched_tokens", REQUESTED, value=request.max_num_batched_tokens)
    prefill_asked = wish.pick("max_num_prefill_seqs")[1]
    if prefill_asked:
        prefill = rules.prefill_seqs_within_seqs(max_num_prefill_seqs=prefill_asked, max_num_seqs=seqs)
        prefill_rule, prefill_inputs = (
            rules.prefill_seqs_within_seqs,
            {"max_num_prefill_seqs": prefill_asked, "max_num_seqs": seqs},
        )
        if prefill < prefill_asked:
            draft.warn(f"max_num_prefill_seqs {prefill_asked} is above max_num_seqs {seqs}: {prefill} is used.")
    else:
        prefill_rule, prefill_inputs = (
            rules.prefill_seqs_auto,
            {"preferred": preferred, "input_min": in_min, "block_size": block, "max_num_seqs": seqs},
        )
        prefill = prefill_rule(**prefill_inputs)

    if by_range:
        draft.variable(
            "VLLM_ZERO_PADDING", rules.zero_padding, requested=request.zero_padding, input_min=in_min, input_max=in_max
        )
    else:
        draft.variable("VLLM_ZERO_PADDING", rules.zero_padding_length, requested=request.zero_padding)
    if request.fused_sdpa is not None:
        draft.variable("VLLM_PROMPT_USE_FUSEDSDPA", REQUESTED, value=request.fused_sdpa)
    draft.variable("VLLM_EXPONENTIAL_BUCKETING", CONSTANT, value="false")
    _bucket(
        draft,
        "PROMPT_BS",
        minimum=_one(),
        step=_one(),
        maximum=(rules.prompt_bs_max, {"max_num_prefill_seqs": prefill}),
    )
    if by_range:
        step = rules.decode_bs_step(max_num_seqs=seqs)
        most = rules.decode_bs_max(max_num_seqs=seqs, step=step)
        _bucket(
            draft,
            "PROMPT_SEQ",
            minimum=(rules.prompt_seq_min, {"input_min": in_min, "block_size": block}),
            step=(rules.one_block, {"block_size": block}),
            maximum=(rules.prompt_seq_max, {"input_max": in_max, "block_size": block}),
        )
        _bucket(
            draft,
            "DECODE_BS",
            minimum=_one(),
            step=(rules.decode_bs_step, {"max_num_seqs": seqs}),
            maximum=(rules.decode_bs_max, {"max_num_seqs": seqs, "step": step}),
        )
        _bucket(
            draft,
            "DECODE_BLOCK",
            minimum=(rules.decode_block_min, {"input_min": in_min, "block_size": block}),
            step=(rules.one_block, {"block_size": block}),
            maximum=(
                rules.decode_block_max,
                {"input_max": in_max, "output_max": out_max, "decode_bs_max": most, "block_size": block},
            ),
        )
    else:
        step = wish.constant("decode_bs_step")
        most = rules.decode_bs_max_length(max_num_seqs=seqs, step=step)
        _bucket(
            draft,
            "PROMPT_SEQ",
            minimum=(rules.one_block, {"block_size": block}),
            step=(rules.one_block, {"block_size": block}),
            maximum=(rules.prompt_seq_max_length, {"max_model_len": length}),
        )
        _bucket(
            draft,
            "DECODE_BS",
            minimum=_one(),
            step=_one(step),
            maximum=(rules.decode_bs_max_length, {"max_num_seqs": seqs, "step": step}),
        )
        _bucket(
            draft,
            "DECODE_BLOCK",
            minimum=(rules.one_block, {"block_size": block}),
            step=(rules.one_block, {"block_size": block}),
            maximum=(
                rules.decode_block_max_length,
                {"max_model_len": length, "decode_bs_max": most, "block_size": block},
            ),
        )
    _limits(draft, wish.pick("padding_limit")[1])
    _recipe(draft, wish)
    if request.skip_warmup:
        draft.variable("VLLM_SKIP_WARMUP", REQUESTED, value="true")
    if request.profile:
        draft.variable("VLLM_PROFILER_ENABLED", REQUESTED, value="true")
        draft.variable(
            "VLLM_PROFILE_FILE",
            REQUESTED,
            value=f"{wish.profile_name}_{spoken}_bs{seqs}_tp{wish.cards}_profile.json",
        )
    draft.variable("VLLM_FP32_SOFTMAX", rules.fp32_softmax_122, requested=request.fp32_softmax, kind=wish.model.kind)
    _switches(draft, wish)

    draft.option("--block-size", wish.pick("block_size")[0], value=block)
    _common_head(draft, wish, experts=False)
    _dtype_option(draft, wish)
    draft.option("--max-num-seqs", seqs_rule, value=seqs)
    draft.option("--max-num-prefill-seqs", prefill_rule, **prefill_inputs)
    draft.option("--max-num-batched-tokens", REQUESTED, value=tokens)
    capture_rule, capture = wish.pick("max_seq_len_to_capture")
    draft.option("--max-seq-len-to-capture", capture_rule, value=capture)
    memory_rule, memory = wish.pick("gpu_memory_utilization")
    draft.option("--gpu-memory-utilization", memory_rule, value=memory)
    draft.option("--max-model-len", REQUESTED, value=length)
    draft.option("--seed", CONSTANT, value=wish.constant("seed"))
    draft.option("--distributed_executor_backend", rules.executor, tensor_parallel_size=wish.cards)
    if request.scheduler_steps is not None:
        draft.option("--num-scheduler-steps", REQUESTED, value=request.scheduler_steps)
    draft.option("--quantization", rules.hpu_quantization, dtype=wish.dtype)
    _kv_cache(draft, wish)
    _flag(draft, "--disable-log-requests", not request.profile)
    draft.option(
        "--enable-expert-parallel",
        rules.expert_parallel,
        num_experts=wish.model.num_experts,
        llama4_scout=wish.scout,
    )
    if wish.dtype == "fp8":
        draft.variable("QUANT_CONFIG", REQUESTED, value=wish.quantization_config)
        draft.variable("PT_HPU_WEIGHT_SHARING", CONSTANT, value="0")
    return Lengths(length, tokens, seqs)


def family_deepseek(draft: Draft, wish: Wish) -> Lengths:
    """The DeepSeek branch: eight cards, ray, FP8 keys and values, inputs of any length the model length allows."""
    request, block = wish.request, wish.block_size
    length_rule, length = wish.pick("max_model_len")
    seqs_rule, seqs = wish.pick("max_num_seqs")
    longest = wish.constant("longest_model_len")
    if length > longest:
        raise Refusal(
            f"max_model_len is {length}, but one node serves {longest} tokens at most with release {wish.release.name} "
            f"(the script's own help). Lower it, or serve over two nodes."
        )
    tokens = request.max_num_batched_tokens or length
    _fixed_environment(draft, wish)
    draft.variable("VLLM_EP_SIZE", CONSTANT, value=wish.cards)
    threshold = wish.constant("memory_threshold")
    if request.gpu_memory_utilization is None:
        memory_rule: rules.Rule = rules.memory_by_length
        memory_inputs: dict[str, Any] = {
            "max_model_len": length,
            "threshold": threshold["max_model_len"],
            "up_to": threshold["up_to"],
            "above": threshold["above"],
        }
    else:
        memory_rule, memory_inputs = REQUESTED, {"value": request.gpu_memory_utilization}
    draft.variable("VLLM_GPU_MEMORY_UTILIZATION", memory_rule, **memory_inputs)
    prefill = wish.constant("max_num_prefill_seqs") if request.max_num_prefill_seqs is None else None
    if request.max_num_prefill_seqs is not None:
        prefill = request.max_num_prefill_seqs or rules.prefill_seqs_auto(
            preferred=tokens, input_min=1, block_size=block, max_num_seqs=seqs
        )
        if prefill > seqs:
            draft.warn(f"max_num_prefill_seqs {prefill} is above max_num_seqs {seqs}: {seqs} is used.")
            prefill = seqs
    if prefill is None:
        step_at_most, max_at_most = wish.constant("prompt_bs_step_at_most"), wish.constant("prompt_bs_max_at_most")
        _bucket(
            draft,
            "PROMPT_BS",
            minimum=_one(),
            step=(rules.prompt_bs_capped, {"max_num_seqs": seqs, "most": step_at_most}),
            maximum=(rules.prompt_bs_capped, {"max_num_seqs": seqs, "most": max_at_most}),
        )
    else:
        _bucket(
            draft,
            "PROMPT_BS",
            minimum=_one(),
            step=_one(),
            maximum=(rules.prompt_bs_max, {"max_num_prefill_seqs": prefill}),
        )
    _bucket(
        draft,
        "PROMPT_SEQ",
        minimum=_one(128),
        step=_one(128),
        maximum=(rules.batched_tokens_equal_length, {"max_model_len": tokens}),
    )
    _bucket(
        draft,
        "DECODE_BS",
        minimum=_one(),
        step=(rules.decode_bs_step_by_card, {"max_num_seqs": seqs, "card_step": card_step(wish)}),
        maximum=(REQUESTED, {"value": seqs}),
    )
    _bucket(
        draft,
        "DECODE_BLOCK",
        minimum=_one(128),
        step=_one(128),
        maximum=(
            rules.decode_block_max_deepseek,
            {"max_num_seqs": seqs, "max_model_len": length, "block_size": block},
        ),
    )
    _limits(draft, wish.pick("padding_limit")[1])
    _recipe(draft, wish)
    if request.skip_warmup:
        draft.variable("VLLM_SKIP_WARMUP", REQUESTED, value="True")
    if request.zero_padding is not None:
        draft.variable("VLLM_ZERO_PADDING", REQUESTED, value=request.zero_padding)
    if request.fused_sdpa is not None:
        draft.variable("VLLM_PROMPT_USE_FUSEDSDPA", REQUESTED, value=request.fused_sdpa)
    if request.fp32_softmax is not None:
        draft.variable("VLLM_FP32_SOFTMAX", REQUESTED, value=request.fp32_softmax)
    if wish.dtype == "fp8":
        draft.variable("INC_MEASUREMENT_DUMP_PATH_PREFIX", CONSTANT, value=wish.release.fork_directory)
        draft.variable("QUANT_CONFIG", REQUESTED, value=wish.quantization_config)
        for name, value in wish.constant("fp8_environment").items():
            draft.variable(name, FIXED, value=value)
    else:
        for name, value in wish.constant("bfloat16_environment").items():
            draft.variable(name, FIXED, value=value)
    _switches(draft, wish)

    draft.option("--block-size", wish.pick("block_size")[0], value=block)
    draft.option("--model", REQUESTED, value=wish.weights)
    draft.option("--device", CONSTANT, value="hpu")
    draft.option("--dtype", CONSTANT, value="bfloat16")
    kv_rule, kv = wish.pick("kv_cache_dtype")
    draft.option("--kv-cache-dtype", kv_rule, value=kv)
    draft.option("--tensor-parallel-size", CONSTANT, value=wish.cards)
    if prefill is not None:
        draft.option("--max-num-prefill-seqs", REQUESTED, value=prefill)
    draft.option("--max-model-len", length_rule, value=length)
    draft.option("--max-num-seqs", seqs_rule, value=seqs)
    draft.option("--max-num-batched-tokens", rules.batched_tokens_equal_length, max_model_len=tokens)
    _flag(draft, "--use-padding-aware-scheduling")
    _flag(draft, "--use-v2-block-manager")
    draft.option("--distributed_executor_backend", CONSTANT, value="ray")
    draft.option("--gpu_memory_utilization", memory_rule, **memory_inputs)
    _flag(draft, "--disable-log-requests")
    _flag(draft, "--enable-reasoning", wish.parser, rules.REQUESTED)
    draft.option("--reasoning-parser", rules.reasoning_parser, parser=wish.parser)
    return Lengths(length, tokens, seqs)


def card_step(wish: Wish) -> int:
    """The decode batch step of a card type; the longest matching name counts, so HL-288E follows HL-288."""
    table = wish.constant("decode_bs_step_by_card")
    known = [name for name in table if wish.card_name.startswith(name)]
    if not known:
        raise Refusal(
            f"Release {wish.release.name} is made for {', '.join(table)}, but this node has {wish.card_name}. "
            f"Serve the model with another release."
        )
    return int(table[max(known, key=len)])


def family_defaults(draft: Draft, wish: Wish) -> Lengths:
    """Releases 1.16 and 1.18: vLLM's own defaults, only what is asked for is passed."""
    request = wish.request
    _fixed_environment(draft, wish)
    draft.variable("PT_HPU_ENABLE_LAZY_COLLECTIVES", rules.lazy_collectives, tensor_parallel_size=wish.cards)
    if request.skip_warmup:
        draft.variable("VLLM_SKIP_WARMUP", REQUESTED, value="true")
    if request.profile:
        draft.variable("VLLM_PROFILER_ENABLED", REQUESTED, value="true")
    if request.fused_sdpa is not None:
        draft.variable("VLLM_PROMPT_USE_FUSEDSDPA", REQUESTED, value=request.fused_sdpa)
    _recipe(draft, wish)
    _switches(draft, wish)
    length = request.max_model_len
    if length is None and wish.model.architecture is not None:
        length = wish.model.architecture.max_position_embeddings
    seqs_rule, seqs = wish.pick("max_num_seqs")
    tokens = request.max_num_batched_tokens
    draft.option("--device", CONSTANT, value="hpu")
    _dtype_option(draft, wish)
    _common_head(draft, wish, experts=False)
    draft.option("--block-size", wish.pick("block_size")[0], value=wish.block_size)
    if request.max_num_seqs is not None:
        draft.option("--max-num-seqs", seqs_rule, value=seqs)
    for option, value in (
        ("--max-num-batched-tokens", tokens),
        ("--max-model-len", request.max_model_len),
        (str(wish.constant("capture_option")), request.max_seq_len_to_capture),
        ("--gpu-memory-utilization", request.gpu_memory_utilization),
    ):
        if value is not None:
            draft.option(option, REQUESTED, value=value)
    if length is not None and tokens is None:
        tokens = max(length, int(wish.constant("preferred_batched_tokens")))
    return Lengths(length, tokens, seqs)


def _dtype_option(draft: Draft, wish: Wish) -> None:
    if wish.dtype == "float32":
        draft.option("--dtype", REQUESTED, value="float32")
    elif wish.dtype != "auto":
        draft.option("--dtype", CONSTANT, value="bfloat16")


def _kv_cache(draft: Draft, wish: Wish) -> None:
    if wish.request.kv_cache_dtype is not None:
        draft.option("--kv-cache-dtype", REQUESTED, value=wish.request.kv_cache_dtype)


def _common_head(draft: Draft, wish: Wish, *, experts: bool = True) -> None:
    draft.option("--model", REQUESTED, value=wish.weights)
    draft.option("--tensor-parallel-size", REQUESTED, value=wish.cards)
    if experts:
        draft.option(
            "--enable-expert-parallel",
            rules.expert_parallel,
            num_experts=wish.model.num_experts,
            llama4_scout=wish.scout,
        )


FAMILIES: Mapping[str, Callable[[Draft, Wish], Lengths]] = {
    "vllm-defaults": family_defaults,
    "1.21": family_121,
    "1.22": family_122,
    "deepseek-r1": family_deepseek,
}
