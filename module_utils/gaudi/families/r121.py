"""The family of release 1.21: lengths are used as given, and ranges define buckets with one block of margin.

Formulas that 1.22 shares are in ``formulas.py``.
"""

from __future__ import annotations

from ..base.refusal import Refusal
from ..request.resolved import ResolvedRequest
from ..rules.buckets import ceil_div, ceil_to, doublings
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
    model_and_cards,
    options_of_forks,
    quantization,
    recipe_cache,
    skip_warmup,
)

# ---- formulas


@rule("prompt-bs-max-1.21", "script:set_bucketing")
def prompt_bs_max(max_num_batched_tokens: int, input_min: int, max_num_seqs: int) -> int:
    """As many shortest inputs as one batch holds."""
    return min(max_num_batched_tokens // input_min, max_num_seqs)


@rule("prompt-seq-max-1.21", "script:set_bucketing")
def prompt_seq_max(input_max: int, block_size: int) -> int:
    """Longest input, to whole blocks, and one block more."""
    return ceil_to(input_max, block_size) + block_size


@rule("decode-block-min-1.21", "script:set_bucketing")
def decode_block_min(input_min: int, block_size: int) -> int:
    """Blocks of the shortest input, to a multiple of the step."""
    return ceil_to(ceil_div(input_min, block_size), block_size)


@rule("decode-block-max-1.21", "script:set_bucketing")
def decode_block_max(input_max: int, output_max: int, decode_bs_max: int, block_size: int) -> int:
    """Blocks of the longest request and one more, for the whole batch."""
    return ceil_to((ceil_div(input_max + output_max, block_size) + 1) * decode_bs_max, block_size)


@rule("partial-warmup", "script:set_partial_warmup")
def partial_warmup_value(value: int) -> int:
    """What the hot requests need; it overrides any other setting."""
    return value


@rule("partial-warmup-seq", "script:set_partial_warmup; not below the shortest bucket")
def partial_warmup_seq(max_seq_len: int, prompt_seq_min: int) -> int:
    """The hot length as given; a length below the shortest input's block becomes that whole block."""
    return max(max_seq_len, prompt_seq_min)


@rule("partial-warmup-blocks", "script:set_partial_warmup; not below the fewest blocks")
def partial_warmup_blocks(
    max_seq_len: int, output_max: int, max_num_seqs: int, block_size: int, decode_block_min: int
) -> int:
    """Blocks of the hot requests; the vendor rounds the division down before it rounds up."""
    return max(ceil_to((max_seq_len + output_max) * max_num_seqs // block_size, block_size), decode_block_min)


_EXACT_WITHOUT_FP32 = (
    "qwen2-14b",
    "qwen2-32b",
    "llama-8b",
    "llama-70b",
    "qwen3-8b",
    "qwen3-14b",
    "qwen3-32b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
)


@rule("fp32-softmax-off", "script:set_perf_tuning")
def fp32_softmax(requested: bool | None, kind: str | None) -> bool | None:
    """The extension enables it for qwen2; these models are exact enough without it."""
    if requested is not None:
        return requested
    return False if kind in _EXACT_WITHOUT_FP32 else None


@rule("kv-cache-dtype-1.21", "script:set_dtype")
def kv_cache_dtype(requested: str | None, kind: str | None) -> str:
    """FP8 keys and values, except for models whose attention stays in bfloat16."""
    if requested is not None:
        return requested
    in_bfloat16 = kind in ("llama-8b", "qwen2-7b") or (
        (kind or "").startswith("qwen3") and kind not in ("qwen3-32b", "qwen3-30b-a3b")
    )
    return "auto" if in_bfloat16 else "fp8_inc"


@rule("weights-load-device", "script:set_dtype")
def weights_load_device(kind: str | None) -> str | None:
    """The largest model is quantised on the host, as it does not fit on the card beside its FP8 copy."""
    return "cpu" if kind == "qwen3-235b-a22b" else None


# ---- the script


def _fill(draft: Draft, resolved: ResolvedRequest) -> Lengths:
    """Fill the draft in the order of the release's script."""
    inputs, outputs = resolved.ranges
    length = resolved.pick("max_model_len").result
    formulas.check_ranges(length, length, inputs, outputs, resolved.ranged, draft)
    _environment(draft, resolved)
    _buckets(draft, resolved)
    knobs(draft, resolved)
    _arguments(draft, resolved)
    prefill = _prefill(resolved).result if resolved.request.max_num_prefill_seqs is not None else None
    return Lengths(
        length, resolved.pick("max_num_batched_tokens").result, resolved.pick("max_num_seqs").result, prefill
    )


def _environment(draft: Draft, resolved: ResolvedRequest) -> None:
    request = resolved.request
    (shortest, longest), (shortest_out, longest_out) = resolved.ranges
    environment_of_release(draft, resolved)
    lazy_collectives(draft, resolved)
    draft.variable("VLLM_GPU_MEMORY_UTILIZATION", resolved.pick("gpu_memory_utilization"))
    draft.variable("VLLM_MAX_SEQ_LEN_TO_CAPTURE", resolved.pick("max_seq_len_to_capture"))
    draft.variable("VLLM_EP_SIZE", formulas.expert_parallel_size(tensor_parallel_size=resolved.cards))
    draft.variable("VLLM_PROFILER_ENABLED", resolved.script("True" if request.profile else "false"))
    if request.profile:
        name = formulas.profile_file(
            name=resolved.profile_name,
            lengths=f"in{shortest}-{longest}_out{shortest_out}-{longest_out}",
            max_num_seqs=resolved.pick("max_num_seqs").result,
            cards=resolved.cards,
            steps=resolved.pick("scheduler_steps").result,
        )
        draft.variable("VLLM_PROFILE_FILE", name)
    skip_warmup(draft, resolved, "True")
    padding = formulas.zero_padding(requested=request.zero_padding, input_min=shortest, input_max=longest)
    draft.variable("VLLM_ZERO_PADDING", padding)
    fused = resolved.script(value=True) if request.fused_sdpa is None else resolved.said("fused_sdpa")
    draft.variable("VLLM_PROMPT_USE_FUSEDSDPA", fused)
    softmax = fp32_softmax(requested=request.fp32_softmax, kind=resolved.model.kind)
    draft.variable("VLLM_FP32_SOFTMAX", softmax)
    recipe_cache(draft, resolved)
    quantization(draft, resolved)
    if resolved.dtype == "fp8":
        draft.variable("VLLM_DISABLE_MARK_SCALES_AS_CONST", resolved.script("true"))


def _buckets(draft: Draft, resolved: ResolvedRequest) -> None:
    block, seqs = resolved.block_size, resolved.pick("max_num_seqs").result
    (shortest, longest), (_, longest_out) = resolved.ranges
    tokens = resolved.pick("max_num_batched_tokens").result
    one, one_block = resolved.script(1), formulas.one_block(block_size=block)
    most_prompts = prompt_bs_max(max_num_batched_tokens=tokens, input_min=shortest, max_num_seqs=seqs)
    step = formulas.decode_bs_step(max_num_seqs=seqs)
    most = formulas.decode_bs_max(max_num_seqs=seqs, step=step.result)
    most_blocks = decode_block_max(
        input_max=longest, output_max=longest_out, decode_bs_max=most.result, block_size=block
    )
    shortest_prompt = formulas.prompt_seq_min(input_min=shortest, block_size=block)
    longest_prompt = prompt_seq_max(input_max=longest, block_size=block)
    fewest_blocks = decode_block_min(input_min=shortest, block_size=block)
    bucket(draft, "PROMPT_BS", one, one, most_prompts)
    bucket(draft, "PROMPT_SEQ", shortest_prompt, one_block, longest_prompt)
    bucket(draft, "DECODE_BS", one, step, most)
    bucket(draft, "DECODE_BLOCK", fewest_blocks, one_block, most_blocks)


def _arguments(draft: Draft, resolved: ResolvedRequest) -> None:
    request, kind = resolved.request, resolved.model.kind
    draft.option("--device", resolved.script("hpu"))
    dtype(draft, resolved)
    if resolved.dtype == "fp8":
        draft.option("--quantization", resolved.script("inc"))
        draft.option("--kv-cache-dtype", kv_cache_dtype(requested=request.kv_cache_dtype, kind=kind))
        draft.option("--weights-load-device", weights_load_device(kind=kind))
    else:
        draft.option("--quantization", formulas.hpu_quantization(dtype=resolved.dtype))
        draft.option("--kv-cache-dtype", resolved.said("kv_cache_dtype"))
    model_and_cards(draft, resolved)
    expert_parallel(draft, resolved)
    draft.option("--seed", resolved.script(resolved.constant("seed")))
    draft.option("--block-size", resolved.pick("block_size"))
    draft.option("--max-num-seqs", resolved.pick("max_num_seqs"))
    draft.option("--max-num-batched-tokens", resolved.pick("max_num_batched_tokens"))
    draft.option("--max-model-len", resolved.pick("max_model_len"))
    if request.max_num_prefill_seqs is not None:
        draft.option("--max-num-prefill-seqs", _prefill(resolved))
    draft.option("--max-seq-len-to-capture", resolved.pick("max_seq_len_to_capture"))
    for flag in ("--disable-log-requests", "--use-v2-block-manager", "--use-padding-aware-scheduling"):
        draft.option(flag, resolved.script(value=True))
    draft.option("--num-scheduler-steps", resolved.pick("scheduler_steps"))
    draft.option("--distributed_executor_backend", formulas.executor(tensor_parallel_size=resolved.cards))
    draft.option("--gpu-memory-utilization", resolved.pick("gpu_memory_utilization"))
    options_of_forks(draft, resolved)


def _prefill(resolved: ResolvedRequest) -> Value:
    """Return the prefill batch of a request that asks for one; the script itself passes none."""
    asked, seqs = resolved.request.max_num_prefill_seqs, resolved.pick("max_num_seqs").result
    if asked:
        prefill = formulas.prefill_seqs_within_seqs(max_num_prefill_seqs=asked, max_num_seqs=seqs)
    else:
        tokens, shortest = resolved.pick("max_num_batched_tokens").result, resolved.ranges[0][0]
        prefill = formulas.prefill_seqs_auto(
            preferred=tokens, input_min=shortest, block_size=resolved.block_size, max_num_seqs=seqs
        )
    return borrowed(prefill, "gaudi-serving: the rule of release 1.22, as this one's script has none")


def _partial_warmup(draft: Draft, resolved: ResolvedRequest) -> None:
    """Apply the script's -r last, so that it overrides the environment. Raises Refusal beyond the served lengths."""
    wanted = resolved.request.partial_warmup
    if wanted is None:
        return
    (shortest, longest), (_, longest_out) = resolved.ranges
    seqs, block = resolved.pick("max_num_seqs").result, resolved.block_size
    shortest_prompt = formulas.prompt_seq_min(input_min=shortest, block_size=block).result
    fewest_blocks = decode_block_min(input_min=shortest, block_size=block).result
    if wanted.max_num_seqs > seqs:
        raise Refusal(
            "warmup_beyond_service",
            f"partial_warmup.max_num_seqs is {wanted.max_num_seqs}, above max_num_seqs {seqs}: no batch is that large. "
            f"Lower it to {seqs} at most.",
        )
    if wanted.max_seq_len > longest:
        raise Refusal(
            "warmup_beyond_service",
            f"partial_warmup.max_seq_len is {wanted.max_seq_len}, above the longest input {longest} of input_range. "
            f"Lower it to {longest} at most.",
        )
    if wanted.max_seq_len < shortest:
        raise Refusal(
            "nothing_to_warm_up",
            f"partial_warmup.max_seq_len is {wanted.max_seq_len}, below the shortest input {shortest} of input_range: "
            f"nothing would be warmed up. Raise it to {shortest_prompt}.",
        )
    hot = partial_warmup_seq(max_seq_len=wanted.max_seq_len, prompt_seq_min=shortest_prompt)
    if hot.result % block:
        below, above = wanted.max_seq_len // block * block, ceil_to(wanted.max_seq_len, block)
        draft.warn(
            f"partial_warmup.max_seq_len {wanted.max_seq_len} is no multiple of {block}: the last bucket is {below}, "
            f"and inputs of {below + 1} to {wanted.max_seq_len} tokens compile at run time. Use {above}."
        )
    blocks = partial_warmup_blocks(
        max_seq_len=wanted.max_seq_len,
        output_max=longest_out,
        max_num_seqs=wanted.max_num_seqs,
        block_size=block,
        decode_block_min=fewest_blocks,
    )
    draft.variable("VLLM_SKIP_LAZY_WARMUP", partial_warmup_value(value=True))
    draft.variable("VLLM_PROMPT_SEQ_BUCKET_MAX", hot)
    draft.variable("VLLM_DECODE_BS_BUCKET_MAX", partial_warmup_value(value=wanted.max_num_seqs))
    draft.variable("VLLM_DECODE_BLOCK_BUCKET_MAX", blocks)


def _exponential_blocks(blocks: int, whole_batch: int, block_size: int) -> tuple[int, int]:
    """Return the block maximum in whole steps, with a bucket for each doubling of a whole batch of longest requests."""
    return max(blocks // block_size * block_size, 1), doublings(whole_batch)


R121 = Family(
    name="1.21",
    fill=_fill,
    fill_last=_partial_warmup,
    without_effect=("padding_limit",),
    takes=OPTIONS_OF_FORKS,
    options_in_environment={
        "VLLM_GPU_MEMORY_UTILIZATION": "gpu_memory_utilization",
        "VLLM_MAX_SEQ_LEN_TO_CAPTURE": "max_seq_len_to_capture",
    },
    script_binds_cpus=True,
    exponential_batch_step=1,
    long_context_from=None,
    exponential_blocks=_exponential_blocks,
)
