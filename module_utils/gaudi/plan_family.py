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
from .rules import REQUESTED, Draft, Rule, given

BLOCK = 128


@dataclass(frozen=True)
class Wish:
    """Everything a family decides from. ``dtype`` is settled, ``parser`` only for models that think."""

    request: Request
    # Options that stand in the request itself; others come from the model's catalogue file or the release.
    asked: frozenset[str]
    release: ReleaseEntry
    model: ModelFacts
    catalogue_name: str | None
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

    def source(self, option: str) -> Rule:
        """Where an option that has a value was said."""
        if option in self.asked or self.catalogue_name is None:
            return REQUESTED
        return given("model-default", f"catalog/models/{self.catalogue_name}.yml")

    def pick(self, option: str) -> tuple[Rule, Any]:
        """The request's (or its model's) value of an option, else the release's constant of that name."""
        value = getattr(self.request, option)
        if value is not None:
            return self.source(option), value
        constant = given("release-constant", f"catalog/releases/{self.release.name}.yml")
        return constant, self.constant(option)

    @property
    def script(self) -> Rule:
        """What the release's start script passes whatever is asked for."""
        return given("start-script", f"vllm-fork {self.release.pins['vllm_fork'].commit[:9]} start script")

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


def _fixed(wish: Wish, value: int = 1) -> tuple[Rule, Mapping[str, int]]:
    return wish.script, {"value": value}


def _limits(draft: Draft, limit: float) -> None:
    for name in ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK"):
        draft.variable(f"VLLM_{name}_BUCKET_LIMIT", rules.padding_limit, limit=limit)


def _fixed_environment(draft: Draft, wish: Wish) -> None:
    fixed = given("release-environment", f"catalog/releases/{wish.release.name}.yml")
    for name, value in wish.release.environment.items():
        draft.variable(name, fixed, value=value)


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
        _asked(draft, wish, variable, option)
    for option, variable in (("lazy_mode", "PT_HPU_LAZY_MODE"), ("metrics_gc_details", "PT_HPU_METRICS_GC_DETAILS")):
        wanted = getattr(request, option)
        if wanted is not None:
            draft.variable(variable, wish.source(option), value="1" if wanted else "0")


def _asked(draft: Draft, wish: Wish, variable: str, option: str) -> None:
    """A typed option that is a variable as it stands, when it is given."""
    value = getattr(wish.request, option)
    if value is not None:
        draft.variable(variable, wish.source(option), value=value)


def _flag(draft: Draft, wish: Wish, name: str, wanted: object = True) -> None:
    draft.option(name, wish.script, value=bool(wanted))


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
    draft.variable("VLLM_EP_SIZE", rules.expert_parallel_size, tensor_parallel_size=wish.cards)
    draft.variable("VLLM_PROFILER_ENABLED", wish.script, value="True" if request.profile else "false")
    steps_rule, steps = wish.pick("scheduler_steps")
    if request.profile:
        draft.variable(
            "VLLM_PROFILE_FILE",
            rules.profile_file,
            name=wish.profile_name,
            lengths=f"in{in_min}-{in_max}_out{out_min}-{out_max}",
            max_num_seqs=seqs,
            cards=wish.cards,
            steps=steps,
        )
    if request.skip_warmup:
        draft.variable("VLLM_SKIP_WARMUP", wish.source("skip_warmup"), value="True")
    draft.variable(
        "VLLM_ZERO_PADDING", rules.zero_padding, requested=request.zero_padding, input_min=in_min, input_max=in_max
    )
    fused = wish.script if request.fused_sdpa is None else wish.source("fused_sdpa")
    draft.variable("VLLM_PROMPT_USE_FUSEDSDPA", fused, value=request.fused_sdpa is not False)
    draft.variable("VLLM_FP32_SOFTMAX", rules.fp32_softmax_121, requested=request.fp32_softmax, kind=wish.model.kind)
    _recipe(draft, wish)
    _bucket(
        draft,
        "PROMPT_BS",
        minimum=_fixed(wish),
        step=_fixed(wish),
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
        minimum=_fixed(wish),
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

    draft.option("--device", wish.script, value="hpu")
    _dtype_option(draft, wish)
    if wish.dtype == "fp8":
        draft.variable("QUANT_CONFIG", rules.quantization_config, file=wish.quantization_config)
        draft.variable("PT_HPU_WEIGHT_SHARING", wish.script, value="0")
        draft.variable("VLLM_DISABLE_MARK_SCALES_AS_CONST", wish.script, value="true")
        draft.option("--quantization", wish.script, value="inc")
        draft.option(
            "--kv-cache-dtype", rules.kv_cache_dtype_121, requested=request.kv_cache_dtype, kind=wish.model.kind
        )
        draft.option("--weights-load-device", rules.weights_load_device_121, kind=wish.model.kind)
    else:
        draft.option("--quantization", rules.hpu_quantization, dtype=wish.dtype)
        _kv_cache(draft, wish)
    _common_head(draft, wish)
    draft.option("--seed", wish.script, value=wish.constant("seed"))
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
        _flag(draft, wish, flag)
    draft.option("--num-scheduler-steps", steps_rule, value=steps)
    draft.option("--distributed_executor_backend", rules.executor, tensor_parallel_size=wish.cards)
    draft.option("--gpu-memory-utilization", memory_rule, value=memory)
    return Lengths(length, tokens, seqs)


def partial_warmup(draft: Draft, wish: Wish) -> None:
    """Release 1.21's -r, applied last: it wins over the environment."""
    wanted = wish.request.partial_warmup
    if wanted is None or "partial_warmup" in WITHOUT_EFFECT[wish.release.rules]:
        return
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
            f"partial_warmup.max_seq_len {wanted.max_seq_len} is no multiple of {block}: the last bucket is {below}, "
            f"and inputs of {below + 1} to {wanted.max_seq_len} tokens compile at run time. Use {above}."
        )
    draft.variable("VLLM_SKIP_LAZY_WARMUP", rules.partial_warmup_value, value=True)
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
        length_rule, length_inputs = (
            rules.model_len_from_ranges,
            {"input_max": in_max, "output_max": out_max, "block_size": block},
        )
        if request.max_model_len is not None:
            length_rule, length_inputs = (
                rules.model_len_to_blocks,
                {"max_model_len": request.max_model_len, "block_size": block},
            )
            rules.check_ranges(length_rule(**length_inputs), (in_min, in_max), (out_min, out_max), ranged, draft)
    else:
        in_min = block
        asked = wish.pick("max_model_len")[1]
        spoken = f"len{asked}"
        length_rule, length_inputs = rules.model_len_to_blocks, {"max_model_len": asked, "block_size": block}
    length = length_rule(**length_inputs)
    tokens_rule, tokens_inputs = (
        rules.batched_tokens_from_length,
        {"max_model_len": length, "preferred": preferred, "block_size": block},
    )
    if request.max_num_batched_tokens is not None:
        tokens_rule, tokens_inputs = (
            wish.source("max_num_batched_tokens"),
            {"value": request.max_num_batched_tokens},
        )
    tokens = tokens_rule(**tokens_inputs)
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
    _asked(draft, wish, "VLLM_PROMPT_USE_FUSEDSDPA", "fused_sdpa")
    draft.variable("VLLM_EXPONENTIAL_BUCKETING", wish.script, value="false")
    _bucket(
        draft,
        "PROMPT_BS",
        minimum=_fixed(wish),
        step=_fixed(wish),
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
            minimum=_fixed(wish),
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
            minimum=_fixed(wish),
            step=_fixed(wish, step),
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
        draft.variable("VLLM_SKIP_WARMUP", wish.source("skip_warmup"), value="true")
    if request.profile:
        draft.variable("VLLM_PROFILER_ENABLED", wish.source("profile"), value="true")
        draft.variable(
            "VLLM_PROFILE_FILE",
            rules.profile_file,
            name=wish.profile_name,
            lengths=spoken,
            max_num_seqs=seqs,
            cards=wish.cards,
        )
    draft.variable("VLLM_FP32_SOFTMAX", rules.fp32_softmax_122, requested=request.fp32_softmax, kind=wish.model.kind)
    _switches(draft, wish)

    draft.option("--block-size", wish.pick("block_size")[0], value=block)
    _common_head(draft, wish, experts=False)
    _dtype_option(draft, wish)
    draft.option("--max-num-seqs", seqs_rule, value=seqs)
    draft.option("--max-num-prefill-seqs", prefill_rule, **prefill_inputs)
    draft.option("--max-num-batched-tokens", tokens_rule, **tokens_inputs)
    capture_rule, capture = wish.pick("max_seq_len_to_capture")
    draft.option("--max-seq-len-to-capture", capture_rule, value=capture)
    memory_rule, memory = wish.pick("gpu_memory_utilization")
    draft.option("--gpu-memory-utilization", memory_rule, value=memory)
    draft.option("--max-model-len", length_rule, **length_inputs)
    draft.option("--seed", wish.script, value=wish.constant("seed"))
    draft.option("--distributed_executor_backend", rules.executor, tensor_parallel_size=wish.cards)
    if request.scheduler_steps is not None:
        draft.option("--num-scheduler-steps", wish.source("scheduler_steps"), value=request.scheduler_steps)
    draft.option("--quantization", rules.hpu_quantization, dtype=wish.dtype)
    _kv_cache(draft, wish)
    _flag(draft, wish, "--disable-log-requests", not request.profile)
    draft.option(
        "--enable-expert-parallel",
        rules.expert_parallel,
        num_experts=wish.model.num_experts,
        llama4_scout=wish.scout,
    )
    if wish.dtype == "fp8":
        draft.variable("QUANT_CONFIG", rules.quantization_config, file=wish.quantization_config)
        draft.variable("PT_HPU_WEIGHT_SHARING", wish.script, value="0")
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
    draft.variable("VLLM_EP_SIZE", rules.expert_parallel_size, tensor_parallel_size=wish.cards)
    threshold = wish.constant("memory_threshold")
    if request.gpu_memory_utilization is None:
        memory_rule: Rule = rules.memory_by_length
        memory_inputs: dict[str, Any] = {
            "max_model_len": length,
            "threshold": threshold["max_model_len"],
            "up_to": threshold["up_to"],
            "above": threshold["above"],
        }
    else:
        memory_rule = wish.source("gpu_memory_utilization")
        memory_inputs = {"value": request.gpu_memory_utilization}
    draft.variable("VLLM_GPU_MEMORY_UTILIZATION", memory_rule, **memory_inputs)
    prefill = _prefill_deepseek(draft, wish, seqs)
    if prefill is None:
        step_at_most, max_at_most = wish.constant("prompt_bs_step_at_most"), wish.constant("prompt_bs_max_at_most")
        _bucket(
            draft,
            "PROMPT_BS",
            minimum=_fixed(wish),
            step=(rules.prompt_bs_capped, {"max_num_seqs": seqs, "most": step_at_most}),
            maximum=(rules.prompt_bs_capped, {"max_num_seqs": seqs, "most": max_at_most}),
        )
    else:
        _bucket(
            draft,
            "PROMPT_BS",
            minimum=_fixed(wish),
            step=_fixed(wish),
            maximum=(rules.prompt_bs_max, {"max_num_prefill_seqs": prefill}),
        )
    _bucket(
        draft,
        "PROMPT_SEQ",
        minimum=_fixed(wish, 128),
        step=_fixed(wish, 128),
        maximum=(rules.batched_tokens_equal_length, {"max_model_len": tokens}),
    )
    _bucket(
        draft,
        "DECODE_BS",
        minimum=_fixed(wish),
        step=(rules.decode_bs_step_by_card, {"max_num_seqs": seqs, "card_step": card_step(wish)}),
        maximum=(seqs_rule, {"value": seqs}),
    )
    _bucket(
        draft,
        "DECODE_BLOCK",
        minimum=_fixed(wish, 128),
        step=_fixed(wish, 128),
        maximum=(
            rules.decode_block_max_deepseek,
            {"max_num_seqs": seqs, "max_model_len": length, "block_size": block},
        ),
    )
    _limits(draft, wish.pick("padding_limit")[1])
    _recipe(draft, wish)
    if request.skip_warmup:
        draft.variable("VLLM_SKIP_WARMUP", wish.source("skip_warmup"), value="True")
    _asked(draft, wish, "VLLM_ZERO_PADDING", "zero_padding")
    _asked(draft, wish, "VLLM_PROMPT_USE_FUSEDSDPA", "fused_sdpa")
    _asked(draft, wish, "VLLM_FP32_SOFTMAX", "fp32_softmax")
    if wish.dtype == "fp8":
        draft.variable("INC_MEASUREMENT_DUMP_PATH_PREFIX", wish.script, value=wish.release.fork_directory)
        draft.variable("QUANT_CONFIG", rules.quantization_config, file=wish.quantization_config)
        for name, value in wish.constant("fp8_environment").items():
            draft.variable(name, wish.script, value=value)
    else:
        for name, value in wish.constant("bfloat16_environment").items():
            draft.variable(name, wish.script, value=value)
    _switches(draft, wish)

    draft.option("--block-size", wish.pick("block_size")[0], value=block)
    draft.option("--model", wish.source("weights"), value=wish.weights)
    draft.option("--device", wish.script, value="hpu")
    draft.option("--dtype", wish.script, value="bfloat16")
    kv_rule, kv = wish.pick("kv_cache_dtype")
    draft.option("--kv-cache-dtype", kv_rule, value=kv)
    draft.option("--tensor-parallel-size", wish.script, value=wish.cards)
    if prefill is not None:
        draft.option("--max-num-prefill-seqs", rules.prompt_bs_max, max_num_prefill_seqs=prefill)
    draft.option("--max-model-len", length_rule, value=length)
    draft.option("--max-num-seqs", seqs_rule, value=seqs)
    draft.option("--max-num-batched-tokens", rules.batched_tokens_equal_length, max_model_len=tokens)
    _flag(draft, wish, "--use-padding-aware-scheduling")
    _flag(draft, wish, "--use-v2-block-manager")
    draft.option("--distributed_executor_backend", wish.script, value="ray")
    draft.option("--gpu_memory_utilization", memory_rule, **memory_inputs)
    _flag(draft, wish, "--disable-log-requests")
    draft.option("--enable-reasoning", rules.reasoning_parser, parser=True if wish.parser else None)
    draft.option("--reasoning-parser", rules.reasoning_parser, parser=wish.parser)
    return Lengths(length, tokens, seqs)


def _prefill_deepseek(draft: Draft, wish: Wish, seqs: int) -> int | None:
    """The prefill batch; None where the release's script has no such option and it was not asked for."""
    asked = wish.request.max_num_prefill_seqs
    if asked is None:
        return wish.release.constants.get("max_num_prefill_seqs")
    if asked == 0:
        return int(rules.prefill_seqs_auto(preferred=2048, input_min=1, block_size=BLOCK, max_num_seqs=seqs))
    if asked > seqs:
        draft.warn(
            f"max_num_prefill_seqs {asked} is above max_num_seqs {seqs}: prompt batches that never occur are warmed "
            f"up. Lower it to {seqs}."
        )
    return asked


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
        draft.variable("VLLM_SKIP_WARMUP", wish.source("skip_warmup"), value="true")
    if request.profile:
        draft.variable("VLLM_PROFILER_ENABLED", wish.source("profile"), value="true")
    _asked(draft, wish, "VLLM_PROMPT_USE_FUSEDSDPA", "fused_sdpa")
    _recipe(draft, wish)
    _switches(draft, wish)
    length = request.max_model_len
    if length is None and wish.model.architecture is not None:
        length = wish.model.architecture.max_position_embeddings
    seqs_rule, seqs = wish.pick("max_num_seqs")
    tokens = request.max_num_batched_tokens
    draft.option("--device", wish.script, value="hpu")
    _dtype_option(draft, wish)
    _common_head(draft, wish, experts=False)
    draft.option("--block-size", wish.pick("block_size")[0], value=wish.block_size)
    if request.max_num_seqs is not None:
        draft.option("--max-num-seqs", seqs_rule, value=seqs)
    for argument, option in (
        ("--max-num-batched-tokens", "max_num_batched_tokens"),
        ("--max-model-len", "max_model_len"),
        (str(wish.constant("capture_option")), "max_seq_len_to_capture"),
        ("--gpu-memory-utilization", "gpu_memory_utilization"),
    ):
        draft.option(argument, wish.source(option), value=getattr(request, option))
    if length is not None and tokens is None:
        tokens = max(length, int(wish.constant("preferred_batched_tokens")))
    return Lengths(length, tokens, seqs)


def _dtype_option(draft: Draft, wish: Wish) -> None:
    if wish.dtype == "float32":
        draft.option("--dtype", wish.source("dtype"), value="float32")
    elif wish.dtype != "auto":
        draft.option("--dtype", wish.script, value="bfloat16")


def _kv_cache(draft: Draft, wish: Wish) -> None:
    if wish.request.kv_cache_dtype is not None:
        draft.option("--kv-cache-dtype", wish.source("kv_cache_dtype"), value=wish.request.kv_cache_dtype)


def _common_head(draft: Draft, wish: Wish, *, experts: bool = True) -> None:
    draft.option("--model", wish.source("weights"), value=wish.weights)
    draft.option("--tensor-parallel-size", wish.source("tensor_parallel_size"), value=wish.cards)
    if experts:
        draft.option(
            "--enable-expert-parallel",
            rules.expert_parallel,
            num_experts=wish.model.num_experts,
            llama4_scout=wish.scout,
        )


# Options of a request that a family's server has no counterpart for: asked for, they would be without effect.
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "vllm-defaults": (
        "input_range",
        "output_range",
        "max_num_prefill_seqs",
        "padding_limit",
        "scheduler_steps",
        "partial_warmup",
        "zero_padding",
        "fp32_softmax",
        "exponential_bucketing",
    ),
    "1.21": ("padding_limit",),
    "1.22": ("partial_warmup",),
    "deepseek-r1": (
        "input_range",
        "output_range",
        "max_seq_len_to_capture",
        "scheduler_steps",
        "partial_warmup",
        "exponential_bucketing",
    ),
}

FAMILIES: Mapping[str, Callable[[Draft, Wish], Lengths]] = {
    "vllm-defaults": family_defaults,
    "1.21": family_121,
    "1.22": family_122,
    "deepseek-r1": family_deepseek,
}
