"""The buckets of a plan: the shapes that its release's own bucketing makes of the final environment."""

from __future__ import annotations

from collections.abc import Mapping

from ..families.base import Lengths
from ..families.registry import family_of
from ..request.resolved import ResolvedRequest
from ..rules import buckets
from ..rules.draft import Draft

# The 72 graphs of an 8 B model took 29 seconds in the documentation of 1.18 (warm-up log): these take hours.
MANY_GRAPHS = 20000
# The lists of whole shapes, where a server's buckets are not said dimension by dimension.
SHAPES = ("prompt", "decode", "unified")
# What is about graphs alone.
GRAPH_OPTIONS = ("graph_reserved_mem", "graph_prompt_ratio", "graph_prompt_strategy", "graph_decode_strategy")


def buckets_part(
    draft: Draft, resolved: ResolvedRequest, lengths: Lengths, memory: Mapping[str, object] | None
) -> dict[str, object] | None:
    """The ``buckets`` part of a plan; None, with a warning, where the longest request is not known.

    ``memory`` is the plan's part of that name: the exponential strategy of 1.22 goes up to the KV cache's blocks.
    Raises Refusal for a bucket variable that the server would stop at.
    """
    release, family = resolved.release, family_of(resolved.release)
    if family.buckets is not None and lengths.max_model_len is not None:
        return _counted(family.buckets(draft, resolved, lengths, memory), _without_graphs(draft, resolved), draft)
    has_buckets = bool(resolved.constant("buckets"))
    if lengths.max_model_len is None:
        unknown = "the buckets and the warm-up" if has_buckets else "the warm-up"
        draft.warn(
            f"The longest request is not known, so that {unknown} of release {release.name} cannot be worked out. "
            f"Set max_model_len, or give model_config (the content of the model's config.json)."
        )
        return None
    if not has_buckets:
        return _without_buckets(draft, resolved, lengths, lengths.max_model_len)
    environment = {**family.bucket_defaults(resolved, lengths), **draft.environment}
    limits = bool(release.constants.get("reads_bucket_limits"))
    # Also where another strategy is chosen: a variable that is no number is a mistake in any case.
    ranges = buckets.from_environment(environment, limits=limits)
    inputs: dict[str, object] = {"max_num_batched_tokens": lengths.max_num_batched_tokens}
    if family.is_on(environment.get("VLLM_EXPONENTIAL_BUCKETING")):
        strategy = code = "exponential"
        rule = "buckets-exponential"
        lists, used = _exponential(draft, resolved, lengths, memory)
        inputs.update(used)
    else:
        strategy, code = "linear with padding limit" if limits else "linear", "linear"
        rule = "buckets-with-limit" if limits else "buckets-linear"
        lists = {name: found.values(honour_limit=limits) for name, found in ranges.items()}
        for name, found in ranges.items():
            inputs[name] = [found.minimum, found.step, found.maximum, found.limit]
        known = (memory or {}).get("kv_cache_blocks") if family.cache_ends_buckets else None
        if known:
            last = buckets.ceil_to(int(str(known)), ranges["DECODE_BLOCK"].step)
            lists["DECODE_BLOCK"] = [blocks for blocks in lists["DECODE_BLOCK"] if blocks <= last]
            inputs["kv_cache_blocks"] = known
        _warn_about_batches(draft, lengths, lists["PROMPT_BS"])
    lists["PROMPT_SEQ"] = family.prompt_lengths(lists["PROMPT_SEQ"], environment)
    _warn_about_long_inputs(draft, resolved, lengths, lists["PROMPT_SEQ"][-1])
    without = _without_graphs(draft, resolved)
    document = buckets.document(strategy, lists, lengths.max_num_batched_tokens, without)
    graphs = int(str(document["graphs"]))
    narrower = (
        "Narrow input_range and output_range, lower max_num_seqs, or raise padding_limit where the release knows it"
    )
    _warn_about_many(draft, graphs, narrower)
    counts = {key: document[key] for key in ("prompt_graphs", "decode_graphs", "graphs")}
    draft.note("buckets", counts, rule, family_of(resolved.release).bucket_source(resolved.release, code), inputs)
    return document


def buckets_of_start(
    draft: Draft,
    resolved: ResolvedRequest,
    lengths: Lengths,
    memory: Mapping[str, object] | None,
    part: dict[str, object] | None,
    kv_blocks: int | None,
) -> dict[str, object] | None:
    """The part for ``kv_blocks``, as many as the instance's last start logged; as it was planned without a number.

    Variables stay those of the plan: what is started does not follow from how it started last.
    """
    family = family_of(resolved.release)
    if part is None or family.buckets_of_start is None:
        return part
    found = family.buckets_of_start(draft, resolved, lengths, memory, part, kv_blocks)
    lists = {name: shapes for name in SHAPES if isinstance(shapes := found.get(name), list)}
    if not lists or not part.get("graphs"):
        return {**part, **found}
    counts = {f"{name}_graphs": len(shapes) for name, shapes in lists.items()}
    return {**part, **found, **counts, "graphs": sum(counts.values())}


def _counted(found: dict[str, object], without: str | None, draft: Draft) -> dict[str, object]:
    """Lists of whole shapes with the graphs that a warm-up takes, one for each; ``without`` says what keeps it."""
    lists = {name: shapes for name in SHAPES if isinstance(shapes := found.get(name), list)}
    if draft.argument("--runner") == "pooling":
        without = without or "a pooling model"
    counts = {f"{name}_graphs": 0 if without else len(shapes) for name, shapes in lists.items()}
    total = sum(counts.values())
    _warn_about_many(draft, total, "bucketing_strategy exponential has the fewest, and larger steps have fewer")
    known = {**counts, "graphs": total} if lists or without else {}
    return {"warmup": "all graphs" if without is None else f"skipped, no graphs ({without})", **found, **known}


def _warn_about_many(draft: Draft, graphs: int, advice: str) -> None:
    if graphs > MANY_GRAPHS:
        draft.warn(f"The warm-up compiles {graphs} graphs, which takes hours. {advice}.")


def _without_buckets(
    draft: Draft, resolved: ResolvedRequest, lengths: Lengths, max_model_len: int
) -> dict[str, object]:
    """The part of a server without buckets: no prompt is warmed up, decoding is captured in a few fixed shapes."""
    longest = min(resolved.request.max_seq_len_to_capture or max_model_len, max_model_len)
    inputs = {"max_num_seqs": lengths.max_num_seqs, "longest": longest, "block_size": resolved.block_size}
    sizes, blocks = buckets.captured(
        resolved.constant("captured_batches"), resolved.constant("captured_lengths"), **inputs
    )
    without = _without_graphs(draft, resolved)
    decode = 0 if without else len(sizes) * len(blocks)
    warmup = f"skipped, no graphs ({without})" if without else "graphs of decoding alone; prompts are not warmed up"
    document: dict[str, object] = {
        "warmup": warmup,
        "strategy": f"none: release {resolved.release.name} has no buckets",
        "decode_bs": sizes,
        "decode_block": blocks,
        "prompt_graphs": 0,
        "decode_graphs": decode,
        "graphs": decode,
    }
    counts = {key: document[key] for key in ("prompt_graphs", "decode_graphs", "graphs")}
    source = f"{draft.origin.fork} vllm/worker/habana_model_runner.py capture_model"
    draft.note("buckets", counts, "no-buckets", source, inputs)
    return document


def _without_graphs(draft: Draft, resolved: ResolvedRequest) -> str | None:
    """What keeps the server from capturing graphs when it starts; None where nothing does."""
    if resolved.request.enforce_eager:
        idle = [
            name for name in GRAPH_OPTIONS if name in resolved.asked and getattr(resolved.request, name) is not None
        ]
        if idle:
            draft.warn(f"{', '.join(idle)} has no effect with enforce_eager, which makes no graphs. Leave one out.")
        return "enforce_eager"
    return "skip_warmup" if family_of(resolved.release).is_on(draft.environment.get("VLLM_SKIP_WARMUP")) else None


def _warn_about_batches(draft: Draft, lengths: Lengths, sizes: list[int]) -> None:
    """Prompt batches that the scheduler never makes are warmed up all the same."""
    most = lengths.max_num_prefill_seqs
    if most is not None and sizes[-1] > most:
        draft.warn(
            f"VLLM_PROMPT_BS_BUCKET_MAX is {sizes[-1]}, above max_num_prefill_seqs {most}: prompt batches that never "
            f"occur are warmed up. Set max_num_prefill_seqs to {sizes[-1]}, or lower the variable."
        )


def _warn_about_long_inputs(draft: Draft, resolved: ResolvedRequest, lengths: Lengths, last: int) -> None:
    """Inputs that the server takes, and that no bucket holds, compile while a client waits.

    If the length follows from the ranges, the request itself says that there are no longer inputs.
    """
    length = lengths.max_model_len or 0
    if resolved.request.partial_warmup is not None:
        # That is what was asked for.
        return
    if "input_range" in resolved.release.constants and resolved.ranged:
        (_, longest), (_, longest_out) = resolved.ranges
        if length <= buckets.ceil_to(longest + longest_out, resolved.block_size):
            return
    wider = "Raise input_range (or the bucket variable)"
    if "input_range" in family_of(resolved.release).without_effect:
        wider = "Set VLLM_PROMPT_SEQ_BUCKET_MAX (and VLLM_DECODE_BLOCK_BUCKET_MAX, in blocks) in extra_environment"
    # One token at least is the answer.
    if last < length - 1:
        draft.warn(
            f"max_model_len {length} takes inputs beyond the last bucket of {last} tokens: they compile at run time. "
            f"{wider} to what the clients send, or lower max_model_len."
        )


def _exponential(
    draft: Draft, resolved: ResolvedRequest, lengths: Lengths, memory: Mapping[str, object] | None
) -> tuple[dict[str, list[int]], dict[str, object]]:
    """The lists of the exponential strategy, and what went into them. It reads none of the bucket variables."""
    seqs, block, length = lengths.max_num_seqs, resolved.block_size, int(lengths.max_model_len or 0)
    prefill = lengths.max_num_prefill_seqs or seqs
    whole_batch = max(block, seqs * length // block)
    known = (memory or {}).get("kv_cache_blocks")
    blocks = int(str(known)) if known else whole_batch
    family = family_of(resolved.release)
    contiguous = family.is_on(draft.environment.get("VLLM_CONTIGUOUS_PA", "true"))
    blocks, block_count = family.exponential_blocks(blocks, whole_batch, block)
    batch_step = family.exponential_batch_step
    long_context = family.long_context_from is not None and length >= family.long_context_from
    draft.warn(
        "Exponential bucketing reads none of the VLLM_*_BUCKET_* variables of this plan: its buckets follow from "
        "max_num_seqs, max_num_prefill_seqs, max_model_len and the KV cache."
        + (
            ""
            if known
            else f" How many blocks the KV cache has is not known; {blocks}, a whole batch of longest requests, is "
            f"taken for it."
        )
    )
    lists = {
        "PROMPT_BS": buckets.exponential(1, batch_step, prefill, buckets.doublings(prefill), contiguous=contiguous),
        "PROMPT_SEQ": buckets.exponential(
            block, block, length, buckets.doublings(length), contiguous=contiguous, long_context=long_context
        ),
        "DECODE_BS": buckets.exponential(1, batch_step, seqs, buckets.doublings(seqs), contiguous=contiguous),
        "DECODE_BLOCK": buckets.exponential(block, block, blocks, block_count, contiguous=contiguous),
    }
    # A rounded bucket beyond the longest request is left out.
    lists["PROMPT_SEQ"] = [size for size in lists["PROMPT_SEQ"] if size <= length] or lists["PROMPT_SEQ"]
    used: dict[str, object] = {
        "max_num_seqs": seqs,
        "max_num_prefill_seqs": prefill,
        "max_model_len": length,
        "kv_cache_blocks": blocks,
        "contiguous_pa": contiguous,
    }
    return lists, used
