"""The warm-up of a server with the plugin: its buckets, the strategy that makes them, and the numbers behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..base.refusal import Refusal
from ..model.facts import language_model
from ..plugin_buckets.choice import CHOOSING, Candidate, Choice, choose, variables_for
from ..plugin_buckets.made import WarmupBuckets, buckets, depends_on_kv_blocks
from ..plugin_buckets.server import ServerSettings
from ..plugin_buckets.versions import FILE, OFF, UNIFIED, version_of
from ..request.resolved import ResolvedRequest
from ..rules.draft import Draft, given
from .base import Lengths

# Sources of the number of KV blocks.
OVERRIDE, LAST_START = "num_gpu_blocks_override", "this node's last start"
CHOSEN = given("bucketing-choice", "gaudi-serving: the graphs and the padding of each strategy, compared")
# Prefixes of variables that extra_environment may set although a release does not know them: they are reported with the
# reason, not dropped silently.
BUCKETING = ("VLLM_PROMPT_", "VLLM_DECODE_", "VLLM_BUCKETING_", "VLLM_UNIFIED_ATT", "VLLM_EXPONENTIAL_")
# Tokens of a chunk of gated delta nets if a model's configuration names none (hpu_model_runner.py of 0.21.0).
UNNAMED_CHUNK = 128
# Dropped shapes of a bucket file that a warning names.
_NAMED = 3


def warmup(
    draft: Draft, resolved: ResolvedRequest, lengths: Lengths, memory: Mapping[str, Any] | None
) -> dict[str, object]:
    """Return the ``buckets`` part of a plan without its counts; the draft gets the chosen strategy's variables.

    Raises Refusal for settings with which the plugin stops.
    """
    plugin, file = str(resolved.constant("bucket_rules")), resolved.bucket_file
    _warn_about_chunks(draft, resolved)
    server, blocks_from = _server(draft, resolved, lengths, memory)
    numbers = {"kv_blocks": server.kv_blocks, "kv_blocks_from": blocks_from}
    if file is None and "VLLM_BUCKETING_FROM_FILE" in draft.environment:
        draft.warn(
            f"The buckets are those of {draft.environment['VLLM_BUCKETING_FROM_FILE']}, which was "
            f"not found: they are not checked, and the server stops at a line that is wrong. Put the file there and "
            f"plan again."
        )
        return {"strategy": FILE, **numbers}
    environment = _environment(draft, resolved)
    found, choice, reason = _buckets(draft, resolved, server, environment), None, "as it was asked for"
    if found.strategy not in (OFF, UNIFIED):
        choice = choose(plugin, server, environment)
        if not any(name in draft.environment for name in CHOOSING):
            reason = choice.reason
            variables = variables_for(plugin, choice.strategy)
            for name, text in variables.items():
                draft.variable(name, CHOSEN(value=text))
            environment.update(variables)
            found = _buckets(draft, resolved, server, environment)
    _warn(draft, found)
    _note(draft, server, found)
    return {"strategy": found.strategy, "reason": reason, **numbers, **_lists(found), **_beside(found, choice)}


def of_start(
    draft: Draft,
    resolved: ResolvedRequest,
    lengths: Lengths,
    memory: Mapping[str, object] | None,
    part: Mapping[str, object],
    kv_blocks: int | None,
) -> Mapping[str, object]:
    """Return the lists of the ``buckets`` part again, for the KV blocks that the instance's last start logged.

    Empty if the planned lists stay: with num_gpu_blocks_override, without lists, without a known start, and if no
    buckets can be made for the logged number. In these cases the draft gets a warning if the lists depend on a planned
    number.
    """
    plugin, file = str(resolved.constant("bucket_rules")), resolved.bucket_file
    blocks_from = str(part["kv_blocks_from"])
    if blocks_from == OVERRIDE or not any(name in part for name in ("prompt", "unified")):
        return {}
    server, _ = _server(draft, resolved, lengths, memory)
    environment = _environment(draft, resolved)
    if kv_blocks is None:
        if depends_on_kv_blocks(plugin, server, environment, file or ""):
            draft.warn(
                f"The buckets follow from the number of KV blocks, which is not known before the server starts; they "
                f"are those of {blocks_from}. Set num_gpu_blocks_override to fix it."
            )
        return {}
    server = replace(server, kv_blocks=kv_blocks)
    try:
        found = _buckets(draft, resolved, server, environment)
    except Refusal as refusal:
        # The number comes from a log of the server, so a wrong one must not make the plan fail.
        draft.warn(
            f"The last start logged {kv_blocks} KV blocks, which no buckets can be made for ({refusal}) They are those "
            f"of {blocks_from}."
        )
        return {}
    _note(draft, server, found)
    return {"kv_blocks": kv_blocks, "kv_blocks_from": LAST_START, **_lists(found)}


def _buckets(
    draft: Draft, resolved: ResolvedRequest, server: ServerSettings, environment: Mapping[str, str]
) -> WarmupBuckets:
    """Return the server's own buckets; a pooling model has no decode buckets."""
    found = buckets(str(resolved.constant("bucket_rules")), server, environment, resolved.bucket_file or "")
    return replace(found, decode=[]) if draft.argument("--runner") == "pooling" else found


def _environment(draft: Draft, resolved: ResolvedRequest) -> dict[str, str]:
    """Return the variables for bucketing, including those that the release does not know."""
    asked = resolved.request.extra_environment
    return {**{name: text for name, text in asked.items() if name.startswith(BUCKETING)}, **draft.environment}


def _note(draft: Draft, server: ServerSettings, found: WarmupBuckets) -> None:
    inputs = {**vars(server), "strategy": found.strategy}
    draft.note("buckets", found.graphs, "plugin-buckets", f"{draft.origin.fork} vllm_gaudi/extension/bucketing", inputs)


def _server(
    draft: Draft, resolved: ResolvedRequest, lengths: Lengths, memory: Mapping[str, Any] | None
) -> tuple[ServerSettings, str]:
    """Return the numbers that buckets follow from, and the source of the KV blocks."""
    guessed = (resolved.request.speculative_config or {}).get("num_speculative_tokens", 0)
    length, block = int(lengths.max_model_len or 0), resolved.block_size
    chunk, named = _chunk(resolved)
    server = ServerSettings(
        max_num_seqs=lengths.max_num_seqs,
        max_model_len=length,
        max_num_batched_tokens=int(lengths.max_num_batched_tokens or length),
        block_size=block,
        kv_blocks=0,
        num_speculative_tokens=guessed if isinstance(guessed, int) else 0,
        mamba_chunk_size=chunk,
        mamba_chunk_named=named,
    )
    override = draft.argument("--num-gpu-blocks-override")
    if override is not None:
        return replace(server, kv_blocks=int(override)), OVERRIDE
    known = (memory or {}).get("kv_cache_blocks")
    if known:
        return replace(server, kv_blocks=int(known)), "the memory model"
    return replace(
        server, kv_blocks=server.blocks_per_sequence * server.max_num_seqs
    ), "a whole batch, for want of more"


def _warn_about_chunks(draft: Draft, resolved: ResolvedRequest) -> None:
    state = resolved.model.shape.state
    if state is not None and state.kind == "mamba" and not _chunk(resolved)[1]:
        draft.warn(
            "The chunk size of this Mamba model is not known, and its buckets are made without it. Give model_config "
            "(the content of the model's config.json)."
        )


def _chunk(resolved: ResolvedRequest) -> tuple[int, bool]:
    """Return a chunk's tokens if layers keep a state (else 0), and whether config.json names the number."""
    state, version = resolved.model.shape.state, version_of(str(resolved.constant("bucket_rules")))
    # 0.17.1 does not use chunks for gated delta nets.
    if state is None or (state.kind == "gdn" and version.every_chunk_rounds):
        return 0, False
    config = language_model(resolved.request.model_config or {})
    for key in ("mamba_chunk_size", "chunk_size"):
        named = config.get(key)
        if isinstance(named, int) and named > 0:
            return named, True
    # A Mamba model that names none gets its buckets without chunks.
    return (0 if state.kind == "mamba" else UNNAMED_CHUNK), False


def _warn(draft: Draft, found: WarmupBuckets) -> None:
    for name, reason in found.without_effect.items():
        if name in draft.environment:
            draft.warn(f"{name} is without effect: {reason}.")
    if found.left_out:
        some = ", ".join(str(shape) for shape in found.left_out[:_NAMED])
        more = ", ..." if len(found.left_out) > _NAMED else ""
        draft.warn(
            f"{len(found.left_out)} shapes of bucketing_file cannot occur with these lengths, and the server leaves "
            f"them out: {some}{more}."
        )


def _lists(found: WarmupBuckets) -> dict[str, object]:
    """Return every shape as a list; with unified attention one list replaces those of the two phases."""
    if found.strategy == UNIFIED:
        return {"unified": [list(shape) for shape in found.unified]}
    return {"prompt": [list(shape) for shape in found.prompt], "decode": [list(shape) for shape in found.decode]}


def _beside(found: WarmupBuckets, choice: Choice | None) -> dict[str, object]:
    """Return the strategies that were compared, and the variables without effect, if there are any."""
    compared = {"compared": [_figures(candidate) for candidate in choice.candidates]} if choice is not None else {}
    return {**compared, **({"without_effect": dict(found.without_effect)} if found.without_effect else {})}


def _figures(candidate: Candidate) -> dict[str, object]:
    """Return a strategy's graphs, and the share of padding in its computation, in percent."""
    if candidate.padding is None:
        return {"strategy": candidate.strategy, "why_not": candidate.refused}
    padding = candidate.padding
    return {
        "strategy": candidate.strategy,
        "prompt_graphs": candidate.prompt_graphs,
        "decode_graphs": candidate.decode_graphs,
        "graphs": candidate.graphs,
        "padding_percent": {"prompt": round(100 * padding.prompt), "decode": round(100 * padding.decode)},
        "unprepared_percent": round(100 * padding.unprepared),
    }
