"""The family of the DeepSeek branch: eight cards, ray, FP8 keys and values, inputs up to the model length."""

from __future__ import annotations

from ..base.refusal import Refusal
from ..model.facts import ModelFacts
from ..request.resolved import ResolvedRequest
from ..rules.draft import Draft, Value, borrowed, rule
from . import formulas
from .base import Family, Lengths
from .shared import (
    OPTIONS_OF_FORKS,
    bucket,
    environment_of_release,
    knobs,
    limits,
    options_of_forks,
    recipe_cache,
    skip_warmup,
)

# Minimum and step of lengths and blocks, in tokens and blocks: the script's numbers, for any block size.
STEP = 128
# Token budget of a prefill batch that the planner chooses (the 1.22 script's budget).
PREFERRED_TOKENS = 2048
# Parts of names of models that answer without reasoning first.
NOT_THINKING = ("coder", "instruct", "deepseek-v3")

# ---- formulas


@rule("batched-tokens-equal-length", "script:max_num_batched_tokens")
def batched_tokens_equal_length(max_model_len: int) -> int:
    """One longest request at a time."""
    return max_model_len


@rule("prompt-bs-capped", "script:bucketing")
def prompt_bs_capped(max_num_seqs: int, most: int) -> int:
    """Step and maximum of the prompt batch where the release has no prefill option."""
    return min(max_num_seqs, most)


@rule("decode-bs-step-by-card", "script:check platform")
def decode_bs_step_by_card(max_num_seqs: int, card_step: int) -> int:
    """8 on HL-225, 2 on HL-288: the PCIe cards talk more slowly, so finer steps pay."""
    return min(max_num_seqs, card_step)


@rule("decode-block-max-deepseek", "script:bucketing")
def decode_block_max(max_num_seqs: int, max_model_len: int, block_size: int) -> int:
    """Blocks of a full batch of longest requests, not rounded."""
    return max(max_num_seqs * max_model_len // block_size, 128)


@rule("memory-by-length", "script:memory footprint")
def memory_by_length(max_model_len: int, threshold: int, up_to: float, above: float) -> float:
    """Long contexts need more memory outside the KV cache."""
    return up_to if max_model_len <= threshold else above


# ---- the script


def _fill(draft: Draft, resolved: ResolvedRequest) -> Lengths:
    """Fill the draft in the order of the branch's script."""
    length = resolved.pick("max_model_len").result
    tokens = resolved.said("max_num_batched_tokens")
    if tokens.result is None:
        tokens = batched_tokens_equal_length(max_model_len=length)
    memory, prefill = _memory(resolved, length), _prefill(draft, resolved)
    _environment(draft, resolved, memory)
    _buckets(draft, resolved, tokens, prefill)
    knobs(draft, resolved)
    _arguments(draft, resolved, tokens, prefill, memory)
    most = None if prefill is None else prefill.result
    return Lengths(length, tokens.result, resolved.pick("max_num_seqs").result, most)


def _memory(resolved: ResolvedRequest, length: int) -> Value:
    """Set the memory options; long contexts need more memory outside the KV cache."""
    said = resolved.said("gpu_memory_utilization")
    if said.result is not None:
        return said
    table = resolved.constant("memory_threshold")
    return memory_by_length(
        max_model_len=length, threshold=table["max_model_len"], up_to=table["up_to"], above=table["above"]
    )


def _prefill(draft: Draft, resolved: ResolvedRequest) -> Value | None:
    """Return the prefill batch; None if the script has no such option and the request does not set it."""
    asked, seqs = resolved.request.max_num_prefill_seqs, resolved.pick("max_num_seqs").result
    if asked is None and resolved.release.constants.get("max_num_prefill_seqs") is None:
        return None
    if asked == 0:
        auto = formulas.prefill_seqs_auto(
            preferred=PREFERRED_TOKENS, input_min=1, block_size=resolved.block_size, max_num_seqs=seqs
        )
        return borrowed(auto, "gaudi-serving: the rule of release 1.22, as this one's script has none")
    if asked is not None and asked > seqs:
        draft.warn(
            f"max_num_prefill_seqs {asked} is above max_num_seqs {seqs}: prompt batches that never occur are warmed "
            f"up. Lower it to {seqs}."
        )
    return resolved.pick("max_num_prefill_seqs")


def card_step(resolved: ResolvedRequest) -> int:
    """Return the decode batch step of a card type; the longest matching name counts, so HL-288E follows HL-288."""
    table = resolved.constant("decode_bs_step_by_card")
    known = [name for name in table if resolved.card_name.startswith(name)]
    if not known:
        raise Refusal(
            "release_for_other_cards",
            f"Release {resolved.release.name} is made for {', '.join(table)}, but this node has {resolved.card_name}. "
            f"Use another release.",
        )
    return int(table[max(known, key=len)])


def _environment(draft: Draft, resolved: ResolvedRequest, memory: Value) -> None:
    environment_of_release(draft, resolved)
    draft.variable("VLLM_EP_SIZE", formulas.expert_parallel_size(tensor_parallel_size=resolved.cards))
    draft.variable("VLLM_GPU_MEMORY_UTILIZATION", memory)
    recipe_cache(draft, resolved)
    skip_warmup(draft, resolved, "True")
    if resolved.request.profile:
        draft.variable("VLLM_PROFILER_ENABLED", resolved.said("profile"))
    draft.variable("VLLM_ZERO_PADDING", resolved.said("zero_padding"))
    draft.variable("VLLM_PROMPT_USE_FUSEDSDPA", resolved.said("fused_sdpa"))
    draft.variable("VLLM_FP32_SOFTMAX", resolved.said("fp32_softmax"))
    fp8 = resolved.dtype == "fp8"
    if fp8:
        draft.variable("INC_MEASUREMENT_DUMP_PATH_PREFIX", resolved.script(resolved.release.fork_directory))
        draft.variable("QUANT_CONFIG", formulas.quantization_config(file=resolved.quantization_config))
    for name, value in resolved.constant("fp8_environment" if fp8 else "bfloat16_environment").items():
        draft.variable(name, resolved.script(value))


def _buckets(draft: Draft, resolved: ResolvedRequest, tokens: Value, prefill: Value | None) -> None:
    seqs, length = resolved.pick("max_num_seqs"), resolved.pick("max_model_len").result
    one, step = resolved.script(1), resolved.script(STEP)
    if prefill is None:
        most_step, most = resolved.constant("prompt_bs_step_at_most"), resolved.constant("prompt_bs_max_at_most")
        prompt_step = prompt_bs_capped(max_num_seqs=seqs.result, most=most_step)
        bucket(draft, "PROMPT_BS", one, prompt_step, prompt_bs_capped(max_num_seqs=seqs.result, most=most))
    else:
        bucket(draft, "PROMPT_BS", one, one, formulas.prompt_bs_max(max_num_prefill_seqs=prefill.result))
    decode_step = decode_bs_step_by_card(max_num_seqs=seqs.result, card_step=card_step(resolved))
    blocks = decode_block_max(max_num_seqs=seqs.result, max_model_len=length, block_size=resolved.block_size)
    bucket(draft, "PROMPT_SEQ", step, step, tokens)
    bucket(draft, "DECODE_BS", one, decode_step, seqs)
    bucket(draft, "DECODE_BLOCK", step, step, blocks)
    limits(draft, resolved)


def _arguments(draft: Draft, resolved: ResolvedRequest, tokens: Value, prefill: Value | None, memory: Value) -> None:
    draft.option("--block-size", resolved.pick("block_size"))
    draft.option("--model", resolved.source("weights")(value=resolved.weights))
    draft.option("--device", resolved.script("hpu"))
    draft.option("--dtype", resolved.script("bfloat16"))
    draft.option("--kv-cache-dtype", resolved.pick("kv_cache_dtype"))
    draft.option("--tensor-parallel-size", resolved.script(resolved.cards))
    if prefill is not None:
        draft.option("--max-num-prefill-seqs", prefill)
    draft.option("--max-model-len", resolved.pick("max_model_len"))
    draft.option("--max-num-seqs", resolved.pick("max_num_seqs"))
    draft.option("--max-num-batched-tokens", tokens)
    draft.option("--use-padding-aware-scheduling", resolved.script(value=True))
    draft.option("--use-v2-block-manager", resolved.script(value=True))
    draft.option("--distributed_executor_backend", resolved.script("ray"))
    draft.option("--gpu_memory_utilization", memory)
    draft.option("--disable-log-requests", resolved.script(value=True))
    if resolved.request.tool_call_parser is not None and resolved.parser is not None:
        raise Refusal(
            "tools_and_reasoning",
            f"tool_call_parser is set, and {resolved.model.name} has the reasoning parser {resolved.parser}: the "
            f"server of release {resolved.release.name} takes one of both and would not start. Leave tool_call_parser "
            f"out.",
        )
    options_of_forks(draft, resolved)


def _reasoning_parser(model: ModelFacts) -> str | None:
    """Return the script's parser, which it sets for every model; here only for models that reason aloud."""
    lowered = model.name.lower()
    if model.shape.model_type is not None and not model.shape.model_type.startswith("deepseek"):
        return None
    return None if any(part in lowered for part in NOT_THINKING) else "deepseek_r1"


DEEPSEEK = Family(
    name="deepseek-r1",
    fill=_fill,
    without_effect=(
        "input_range",
        "output_range",
        "max_seq_len_to_capture",
        "scheduler_steps",
        "partial_warmup",
        "exponential_bucketing",
    ),
    # Its server has other arguments for speculation (--speculative-model), which nobody is known to have tried there.
    takes=tuple(option for option in OPTIONS_OF_FORKS if option != "speculative_config"),
    options_in_environment={
        "VLLM_GPU_MEMORY_UTILIZATION": "gpu_memory_utilization",
        "BUCKET_PADDING_RATIO": "padding_limit",
    },
    reasoning_parser=_reasoning_parser,
    serves_stored_fp8=True,
    bucket_code="bucketing.py",
)
