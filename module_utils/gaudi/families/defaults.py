"""The family of releases 1.16 and 1.18: vLLM's own defaults; only what the request sets is passed."""

from __future__ import annotations

from collections.abc import Mapping

from ..request.resolved import ResolvedRequest
from ..rules import buckets
from ..rules.draft import Draft
from .base import Family, Lengths
from .shared import (
    dtype,
    environment_of_release,
    knobs,
    lazy_collectives,
    model_and_cards,
    recipe_cache,
    skip_warmup,
)


def _fill(draft: Draft, resolved: ResolvedRequest) -> Lengths:
    """Fill the draft; buckets are left to the server's own defaults."""
    environment_of_release(draft, resolved)
    lazy_collectives(draft, resolved)
    skip_warmup(draft, resolved, "true")
    if resolved.request.profile:
        draft.variable("VLLM_PROFILER_ENABLED", resolved.said("profile"))
    draft.variable("VLLM_PROMPT_USE_FUSEDSDPA", resolved.said("fused_sdpa"))
    recipe_cache(draft, resolved)
    knobs(draft, resolved)

    draft.option("--device", resolved.script("hpu"))
    dtype(draft, resolved)
    model_and_cards(draft, resolved)
    draft.option("--block-size", resolved.pick("block_size"))
    draft.option("--max-num-seqs", resolved.said("max_num_seqs"))
    draft.option("--max-num-batched-tokens", resolved.said("max_num_batched_tokens"))
    draft.option("--max-model-len", resolved.said("max_model_len"))
    # 1.16 has its own spelling of this argument.
    draft.option(str(resolved.constant("capture_option")), resolved.said("max_seq_len_to_capture"))
    draft.option("--gpu-memory-utilization", resolved.said("gpu_memory_utilization"))

    length = resolved.request.max_model_len
    if length is None:
        # The server reads this from config.json itself.
        length = resolved.model.positions.longest
    tokens = resolved.request.max_num_batched_tokens
    if tokens is None and length is not None:
        tokens = max(length, int(resolved.constant("preferred_batched_tokens")))
    return Lengths(length, tokens, resolved.pick("max_num_seqs").result)


def _bucket_defaults(resolved: ResolvedRequest, lengths: Lengths) -> Mapping[str, str]:
    """Return the server's own bucket defaults, as no script sets the variables."""
    commit = str(resolved.constant("bucket_defaults"))
    return buckets.defaults(commit, lengths.max_num_seqs, resolved.block_size)


DEFAULTS = Family(
    name="vllm-defaults",
    fill=_fill,
    without_effect=(
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
    memory_code="vllm/worker/habana_worker.py determine_num_available_blocks",
    bucket_defaults=_bucket_defaults,
    cache_ends_buckets=True,
)
