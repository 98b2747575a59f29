"""The family of release 1.22, with two rules: by ranges (its manual) or by length (its later branch), as requested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..base.checks import integer
from ..request.resolved import ResolvedRequest
from ..rules.buckets import ceil_div, ceil_to
from ..rules.draft import Draft, Value, borrowed, rule
from . import formulas
from .base import Family, Lengths
from .shared import (
    OPTIONS_OF_FORKS,
    bucket,
    dtype,
    environment_of_release,
    expert_parallel,
    knobs,
    lazy_collectives,
    limits,
    model_and_cards,
    options_of_forks,
    quantization,
    recipe_cache,
    skip_warmup,
)

# The source named for a rule that the release's own script does not have.
RANGE_RULE = "gaudi-serving: the range rule of release 1.22; this release's script takes one length"
LENGTH_RULE = "gaudi-serving: the length rule of release 1.22-2025.11; this release's script takes ranges"

# ---- formulas


@rule("model-len-from-ranges", "script:set_length")
def model_len_from_ranges(input_max: int, output_max: int, block_size: int) -> int:
    """Longest input and longest output together, to whole blocks."""
    return ceil_to(input_max + output_max, block_size)


@rule("model-len-to-blocks", "script:set_length")
def model_len_to_blocks(max_model_len: int, block_size: int) -> int:
    """A requested length, rounded up to whole blocks."""
    return ceil_to(max_model_len, block_size)


@rule("model-len-of-model", "gaudi-serving: above the model's own limit the server does not start")
def model_len_of_model(whole_blocks: int, positions: int) -> int:
    """Rounding must not exceed the model's own length."""
    return min(whole_blocks, positions)


@rule("batched-tokens-from-length", "script:set_length")
def batched_tokens_from_length(max_model_len: int, preferred: int, block_size: int) -> int:
    """One longest request, but no less than the preferred budget."""
    return ceil_to(max(max_model_len, preferred), block_size)


@rule("prompt-seq-max", "script:set_bucketing")
def prompt_seq_max(input_max: int, block_size: int) -> int:
    """Longest input, to whole blocks."""
    return ceil_to(input_max, block_size)


@rule("decode-block-min", "script:set_bucketing")
def decode_block_min(input_min: int, block_size: int) -> int:
    """Blocks of the shortest input, at least one step."""
    return max(ceil_div(input_min, block_size), block_size)


@rule("decode-block-max", "script:set_bucketing")
def decode_block_max(input_max: int, output_max: int, decode_bs_max: int, block_size: int) -> int:
    """Blocks of the longest request, for the whole batch."""
    return ceil_to(ceil_div(input_max + output_max, block_size) * decode_bs_max, block_size)


@rule("prompt-seq-max-length", "script:set_bucketing")
def prompt_seq_max_length(max_model_len: int) -> int:
    """Any input up to the model length."""
    return max_model_len


@rule("decode-bs-max-length", "script:set_bucketing")
def decode_bs_max_length(max_num_seqs: int, step: int) -> int:
    """The batch, to whole steps."""
    return ceil_to(max_num_seqs, step)


@rule("decode-block-max-length", "script:set_bucketing")
def decode_block_max_length(max_model_len: int, decode_bs_max: int, block_size: int) -> int:
    """Blocks of the longest request, for the whole batch."""
    return ceil_to(ceil_div(max_model_len, block_size) * decode_bs_max, block_size)


@rule("zero-padding-length", "script:set_perf_tuning")
def zero_padding_length(requested: bool | None) -> bool:
    """On unless switched off."""
    return True if requested is None else requested


@rule("fp32-softmax-on", "script:set_perf_tuning")
def fp32_softmax(requested: bool | None, kind: str | None) -> bool | None:
    """Off by default; the 7B models of the Qwen2 family need it."""
    if requested is not None:
        return requested
    return True if kind == "qwen2-7b" else None


# ---- the script


@dataclass(frozen=True)
class Sizes:
    """Lengths and batch sizes of one plan, and which of the two rules made them."""

    by_range: bool
    length: Value
    # The length in whole blocks, for the buckets; max_model_len itself may be less, limited by the model.
    whole_blocks: int
    # The length before rounding.
    asked: int
    tokens: Value
    prefill: Value
    seqs: int
    # The lengths in the profile's file name.
    in_name: str
    # The source of the rule if the release's own script has only the other one.
    foreign: str | None

    def told(self, value: Value) -> Value:
        """Return a value of the range or length rule with that rule's source."""
        return value if self.foreign is None else borrowed(value, self.foreign)


def _fill(draft: Draft, resolved: ResolvedRequest) -> Lengths:
    """Fill the draft in the order of the release's script."""
    sizes = _sizes(draft, resolved)
    _environment(draft, resolved, sizes)
    if sizes.by_range:
        _buckets_by_range(draft, resolved, sizes)
    else:
        _buckets_by_length(draft, resolved, sizes)
    limits(draft, resolved)
    knobs(draft, resolved)
    _arguments(draft, resolved, sizes)
    return Lengths(sizes.length.result, sizes.tokens.result, sizes.seqs, sizes.prefill.result, sizes.asked)


def _sizes(draft: Draft, resolved: ResolvedRequest) -> Sizes:
    request, block = resolved.request, resolved.block_size
    own = resolved.constant("default_rule")
    by_range = resolved.ranged or (request.max_model_len is None and own == "range")
    foreign = None if by_range == (own == "range") else RANGE_RULE if by_range else LENGTH_RULE
    preferred, seqs = resolved.constant("preferred_batched_tokens"), resolved.pick("max_num_seqs").result
    if by_range:
        inputs, outputs = resolved.ranges
        shortest = inputs[0]
        in_name = f"in{inputs[0]}-{inputs[1]}_out{outputs[0]}-{outputs[1]}"
        asked = request.max_model_len or inputs[1] + outputs[1]
        length = model_len_from_ranges(input_max=inputs[1], output_max=outputs[1], block_size=block)
        if request.max_model_len is not None:
            length = model_len_to_blocks(max_model_len=asked, block_size=block)
        formulas.check_ranges(length.result, asked, inputs, outputs, resolved.ranged, draft)
    else:
        shortest, asked = block, resolved.pick("max_model_len").result
        in_name = f"len{asked}"
        length = model_len_to_blocks(max_model_len=asked, block_size=block)
    whole_blocks, positions = length.result, resolved.model.positions.longest
    tokens = resolved.said("max_num_batched_tokens")
    if tokens.result is None:
        tokens = batched_tokens_from_length(max_model_len=whole_blocks, preferred=preferred, block_size=block)
    prefill_asked = resolved.pick("max_num_prefill_seqs").result
    if prefill_asked:
        prefill = formulas.prefill_seqs_within_seqs(max_num_prefill_seqs=prefill_asked, max_num_seqs=seqs)
        if prefill.result < prefill_asked:
            draft.warn(f"max_num_prefill_seqs {prefill_asked} is above max_num_seqs {seqs}: {prefill.result} is used.")
    else:
        prefill = formulas.prefill_seqs_auto(
            preferred=preferred, input_min=shortest, block_size=block, max_num_seqs=seqs
        )
    length = length if foreign is None else borrowed(length, foreign)
    if positions is not None and asked <= positions < whole_blocks:
        length = model_len_of_model(whole_blocks=whole_blocks, positions=positions)
    return Sizes(by_range, length, whole_blocks, asked, tokens, prefill, seqs, in_name, foreign)


def _environment(draft: Draft, resolved: ResolvedRequest, sizes: Sizes) -> None:
    request = resolved.request
    environment_of_release(draft, resolved)
    lazy_collectives(draft, resolved)
    padding = zero_padding_length(requested=request.zero_padding)
    if sizes.by_range:
        shortest, longest = resolved.ranges[0]
        padding = formulas.zero_padding(requested=request.zero_padding, input_min=shortest, input_max=longest)
    draft.variable("VLLM_ZERO_PADDING", padding)
    draft.variable("VLLM_PROMPT_USE_FUSEDSDPA", resolved.said("fused_sdpa"))
    draft.variable("VLLM_EXPONENTIAL_BUCKETING", resolved.script("false"))
    recipe_cache(draft, resolved)
    skip_warmup(draft, resolved, "true")
    if request.profile:
        draft.variable("VLLM_PROFILER_ENABLED", resolved.said("profile"))
        name = formulas.profile_file(
            name=resolved.profile_name, lengths=sizes.in_name, max_num_seqs=sizes.seqs, cards=resolved.cards
        )
        draft.variable("VLLM_PROFILE_FILE", name)
    softmax = fp32_softmax(requested=request.fp32_softmax, kind=resolved.model.kind)
    draft.variable("VLLM_FP32_SOFTMAX", softmax)
    quantization(draft, resolved)


def _buckets_by_range(draft: Draft, resolved: ResolvedRequest, sizes: Sizes) -> None:
    """Set the buckets by the manual's range rule."""
    block = resolved.block_size
    (shortest, longest), (_, longest_out) = resolved.ranges
    one, one_block = resolved.script(1), formulas.one_block(block_size=block)
    step = formulas.decode_bs_step(max_num_seqs=sizes.seqs)
    most = formulas.decode_bs_max(max_num_seqs=sizes.seqs, step=step.result)
    most_blocks = decode_block_max(
        input_max=longest, output_max=longest_out, decode_bs_max=most.result, block_size=block
    )
    shortest_prompt = formulas.prompt_seq_min(input_min=shortest, block_size=block)
    longest_prompt = prompt_seq_max(input_max=longest, block_size=block)
    fewest_blocks = decode_block_min(input_min=shortest, block_size=block)
    told = sizes.told
    bucket(draft, "PROMPT_BS", one, one, formulas.prompt_bs_max(max_num_prefill_seqs=sizes.prefill.result))
    bucket(draft, "PROMPT_SEQ", told(shortest_prompt), one_block, told(longest_prompt))
    bucket(draft, "DECODE_BS", one, told(step), told(most))
    bucket(draft, "DECODE_BLOCK", told(fewest_blocks), one_block, told(most_blocks))


def _buckets_by_length(draft: Draft, resolved: ResolvedRequest, sizes: Sizes) -> None:
    """Set the buckets by the later branch's length rule."""
    block, length = resolved.block_size, sizes.whole_blocks
    one, one_block = resolved.script(1), formulas.one_block(block_size=block)
    step = resolved.script(resolved.constant("decode_bs_step"))
    most = decode_bs_max_length(max_num_seqs=sizes.seqs, step=step.result)
    most_blocks = decode_block_max_length(max_model_len=length, decode_bs_max=most.result, block_size=block)
    told = sizes.told
    bucket(draft, "PROMPT_BS", one, one, formulas.prompt_bs_max(max_num_prefill_seqs=sizes.prefill.result))
    bucket(draft, "PROMPT_SEQ", told(one_block), one_block, told(prompt_seq_max_length(max_model_len=length)))
    bucket(draft, "DECODE_BS", one, told(step), told(most))
    bucket(draft, "DECODE_BLOCK", told(one_block), one_block, told(most_blocks))


def _arguments(draft: Draft, resolved: ResolvedRequest, sizes: Sizes) -> None:
    draft.option("--block-size", resolved.pick("block_size"))
    model_and_cards(draft, resolved)
    dtype(draft, resolved)
    draft.option("--max-num-seqs", resolved.pick("max_num_seqs"))
    draft.option("--max-num-prefill-seqs", sizes.prefill)
    draft.option("--max-num-batched-tokens", sizes.tokens)
    draft.option("--max-seq-len-to-capture", resolved.pick("max_seq_len_to_capture"))
    draft.option("--gpu-memory-utilization", resolved.pick("gpu_memory_utilization"))
    draft.option("--max-model-len", sizes.length)
    draft.option("--seed", resolved.script(resolved.constant("seed")))
    draft.option("--distributed_executor_backend", formulas.executor(tensor_parallel_size=resolved.cards))
    draft.option("--num-scheduler-steps", resolved.said("scheduler_steps"))
    draft.option("--quantization", formulas.hpu_quantization(dtype=resolved.dtype))
    draft.option("--kv-cache-dtype", resolved.said("kv_cache_dtype"))
    draft.option("--disable-log-requests", resolved.script(not resolved.request.profile))
    expert_parallel(draft, resolved)
    options_of_forks(draft, resolved)


def _without_slices(sizes: list[int], environment: Mapping[str, str]) -> list[int]:
    """With sliced attention, drop long buckets that are not whole slices (bucketing/common.py)."""
    if not R122.is_on(environment.get("PT_HPU_SDPA_QKV_SLICE_MODE_FWD")):
        return sizes
    slice_size = integer(environment.get("PT_HPU_SDPA_BC_FACTOR", 1024), "PT_HPU_SDPA_BC_FACTOR", 1, 1 << 20)
    long = integer(environment.get("VLLM_FUSEDSDPA_SLIDE_THLD", 8192), "VLLM_FUSEDSDPA_SLIDE_THLD", 1, 1 << 30)
    return [size for size in sizes if size < long or size % slice_size == 0]


R122 = Family(
    name="1.22",
    fill=_fill,
    without_effect=("partial_warmup",),
    takes=OPTIONS_OF_FORKS,
    plans_by_length=True,
    true_words=("true", "t", "1", "yes", "y", "on"),
    script_binds_cpus=True,
    prompt_lengths=_without_slices,
)
