"""The memory of each card: what the weights and the graphs take, what is left for requests, and whether it suffices."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.checks import shown
from ..base.refusal import Refusal
from ..cards.placement import PlacementCard
from ..catalogue.entries import POOLING_TASKS, CardType, ModelEntry
from ..families.base import Lengths
from ..families.registry import family_of
from ..model.headers import WIDTHS, Weights
from ..request.resolved import ResolvedRequest
from ..rules import memory
from ..rules.draft import Draft
from .refusals import one_node_only
from .subject import Subject

# Largest error of a sum of four figures that a plan rounds to two decimals, in GiB.
ROUNDED = 0.03
# A card of an idle node uses less than this, in MiB; more is the instance itself, still running.
IDLE_AT_MOST_MIB = 4096

# vLLM's own default, for releases whose script passes none.
GPU_MEMORY_UTILIZATION = "0.9"

# What the catalogue calls a dtype, and what safetensors calls it.
DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "float8_e4m3fn": "F8_E4M3", "mxfp4": "MXFP4"}
# Bytes of a weight in the dtypes that can be asked for.
WIDTHS_ASKED = {"bfloat16": 2, "float16": 2, "float32": 4}
# What is loaded in the dtype that is asked for; FP8 and integers stay as they are.
FLOATS = ("F64", "F32", "F16", "BF16")


def _graph_share(draft: Draft, resolved: ResolvedRequest) -> float:
    """Share of the usable memory that graphs get; raises Refusal for one that leaves nothing for the rest."""
    text = draft.environment.get("VLLM_GRAPH_RESERVED_MEM")
    if text is None:
        text = str(resolved.constant("graph_reserved_mem"))
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    # Not-a-number fails both comparisons.
    if 0.0 <= share < 1.0:
        # Without graphs nothing is kept for them (determine_num_available_blocks of every release).
        return 0.0 if resolved.request.enforce_eager else share
    raise Refusal(
        "not_a_share",
        f"graph_reserved_mem (VLLM_GRAPH_RESERVED_MEM) is {shown(text)}; a share of the usable memory is needed, "
        "at least 0 and below 1, since the rest of it is the KV cache. The releases use 0.1 to 0.4.",
    )


def memory_part(draft: Draft, subject: Subject, lengths: Lengths) -> dict[str, object] | None:
    """What each card holds, and that it fits; None where the size of the weights or of the cards is not known.

    Raises Refusal when weights and reserve do not fit, or when the KV cache cannot hold one longest request.
    """
    resolved, entry, weights, label = subject.resolved, subject.entry, subject.weights, subject.label
    card, card_type = subject.cards[0], subject.card_type
    graph_share = _graph_share(draft, resolved)
    total = card.memory_total_mib or (card_type.memory_mib if card_type else None)
    size, size_from = _weights_size(resolved, entry, weights)
    if total is None or size is None:
        unknown = [what for what, amount in (("the weights", size), ("the cards", total)) if amount is None]
        draft.warn(f"The size of {' and of '.join(unknown)} is not known: whether the weights fit is not checked.")
        return None
    idle = _idle(card, card_type)
    # Each copy of the model has as many cards as the others.
    count = resolved.cards
    reserve = memory.BRIDGE_MIB + memory.PROFILE_RUN_MIB
    grown = _grown(resolved, entry, weights, size)
    per_card = size * grown / count / memory.GIB
    have = (total - idle - reserve) / 1024
    utilization = float(draft.argument("--gpu-memory-utilization") or GPU_MEMORY_UTILIZATION)
    inputs: dict[str, object] = {
        "weights_bytes": size,
        "weights_from": size_from,
        "stored_as": stored_as(entry, weights),
        "dtype": resolved.dtype,
        "loaded_to_stored": round(grown, 4),
        "cards": count,
        "card_mib": total,
        "idle_mib": idle,
        "reserve_mib": reserve,
        "gpu_memory_utilization": utilization,
        "graph_reserved_mem": graph_share,
    }
    split = memory.split(have - per_card, utilization, graph_share)
    if resolved.release.constants.get("utilization_of") == "card":
        whole = (total - idle - memory.BRIDGE_MIB) / 1024
        split = memory.split_of_card(whole, whole - (have - per_card), utilization)
    if split.kv_cache <= 0:
        more = _more_cards(per_card * count, have, count, resolved)
        beyond = "" if more else f" It needs more or larger cards than one node has. {one_node_only(resolved.release)}"
        raise Refusal(
            "weights_too_large",
            f"{label}: {per_card:.1f} GiB of weights per card ({resolved.dtype}) do not fit: a "
            f"{resolved.card_name or 'card'} has {have:.1f} GiB beside the driver and the profiling run.{beyond}",
            f"Use {more} cards." if more else "",
        )
    result: dict[str, object] = {
        "card_mib": total,
        "idle_mib": idle,
        "reserve_mib": reserve,
        "weights_bytes": size,
        "weights_gib_per_card": round(per_card, 2),
        "free_gib": round(have - per_card, 2),
        "usable_gib": round(split.usable, 2),
        "graphs_gib": round(split.graphs, 2),
        "kv_cache_gib": round(split.kv_cache, 2),
        "kv_cache_blocks": None,
        "kv_cache_tokens": None,
        "fits": True,
    }
    per_token = _kv_bytes_per_token(draft, resolved, count)
    pooling = entry is not None and entry.task in POOLING_TASKS
    if per_token is not None and lengths.max_model_len is not None and not pooling:
        inputs["kv_bytes_per_token"] = per_token
        result.update(_kv_cache(draft, resolved, split, per_token, lengths, label))
    result.update({name: round(value, 2) for name, value in result.items() if isinstance(value, float)})
    code = family_of(resolved.release).memory_code
    draft.note("memory", result, "memory-split", f"{draft.origin.fork} {code}", inputs)
    return result


def _idle(card: PlacementCard, card_type: CardType | None) -> int:
    """MiB that a card takes with nothing on it: as it says now, unless something runs there."""
    idle = card.memory_used_mib
    if idle is None or idle > IDLE_AT_MOST_MIB:
        return (card_type.idle_memory_mib if card_type else None) or 0
    return idle


def _grown(resolved: ResolvedRequest, entry: ModelEntry | None, weights: Weights | None, size: int) -> float:
    """Bytes on the cards for each of the ``size`` bytes of the files."""
    if entry is not None and entry.dtype == "mxfp4" and resolved.model.shape.parameters:
        # The plugin makes bfloat16 of it (gptoss_mxfp4.py, HPU_MXFP4_NATIVE=0, its default).
        return resolved.model.shape.parameters * WIDTHS_ASKED["bfloat16"] / size
    return growth(_width(resolved, weights), stored_as(entry, weights))


def _kv_cache(
    draft: Draft, resolved: ResolvedRequest, split: memory.MemorySplit, per_token: int, lengths: Lengths, label: str
) -> dict[str, object]:
    """What the KV cache holds. Raises Refusal where that is less than one longest request."""
    divided = _divided(draft, resolved, split, per_token, resolved.cards)
    cache_gib = divided.get("kv_cache_gib", split.kv_cache)
    blocks = _asked_blocks(draft, resolved, memory.blocks(cache_gib, per_token, resolved.block_size))
    tokens, length = blocks * resolved.block_size, lengths.max_model_len or 0
    asked = resolved.request.num_gpu_blocks_override
    if tokens < length and asked is not None:
        raise Refusal(
            "too_few_kv_blocks",
            f"{label}: num_gpu_blocks_override is {asked}, blocks for {tokens} tokens, but one request may have "
            f"max_model_len {lengths.shown}. Raise num_gpu_blocks_override to {-(-length // resolved.block_size)} at "
            f"least, leave it out, or lower max_model_len.",
        )
    if tokens < length:
        raise Refusal(
            "kv_cache_too_small",
            f"{label}: the KV cache would hold {tokens} tokens ({cache_gib:.1f} GiB per card), but one "
            f"request may have max_model_len {lengths.shown}.",
            "Lower max_model_len, raise gpu_memory_utilization, or use more cards.",
        )
    found: dict[str, object] = {**divided, "kv_cache_blocks": blocks, "kv_cache_tokens": tokens}
    if divided:
        found["longest_requests_at_once"] = round(tokens / length, 2)
    return found


def _divided(
    draft: Draft, resolved: ResolvedRequest, split: memory.MemorySplit, per_token: int, count: int
) -> dict[str, float]:
    """The KV cache, its empty block and the states beside it, in GiB of a card; empty for the fork, which has neither.

    ``per_token`` are bytes of a token on one card, ``count`` the cards of one copy of the model.
    """
    if not family_of(resolved.release).layers_share_cache:
        return {}
    shape, state = resolved.model.shape, resolved.model.shape.state
    layers = (shape.num_hidden_layers or 0) - (state.layers if state else 0)
    seqs = int(draft.argument("--max-num-seqs") or 0)
    cache = memory.plugin_cache(
        split,
        block_bytes=per_token * resolved.block_size,
        sequences=seqs,
        attention_layers=max(layers, 1),
        state_layers=state.layers if state else 0,
        state_bytes=state.bytes // count if state else 0,
        counted=state is not None and state.kind == "mamba",
    )
    kept = {"kv_cache_gib": cache.kv_cache, "dummy_block_gib": cache.dummy_block}
    if state is None:
        return kept
    if cache.states > split.graphs and state.kind == "gdn":
        draft.warn(
            f"The states of {seqs} sequences take {cache.states:.1f} GiB of each card, which the server does not "
            f"count: of the {split.graphs:.1f} GiB for graphs nothing is left (inferred from its code; such starts "
            f"were seen to end in the warm-up), {cache.states - split.graphs:.1f} GiB are missing. Lower max_num_seqs, "
            f"use more cards, raise graph_reserved_mem or lower gpu_memory_utilization."
        )
    return {**kept, "states_gib": cache.states}


def lacking_for_graphs(memory: Mapping[str, object]) -> float:
    """GiB of each card that a plan's KV cache and states take of what graphs need; 0 where they leave it.

    The figures of a plan have two decimals.
    """

    def gib(name: str) -> float:
        value = memory.get(name)
        return value if isinstance(value, float) else 0.0

    left = gib("usable_gib") - gib("kv_cache_gib") - gib("dummy_block_gib") - gib("states_gib")
    return -left if left < -ROUNDED else 0.0


def _asked_blocks(draft: Draft, resolved: ResolvedRequest, fit: int) -> int:
    """The blocks of the KV cache: as many as fit, or as were asked for."""
    asked = resolved.request.num_gpu_blocks_override
    if asked is not None and asked > fit:
        draft.warn(
            f"num_gpu_blocks_override is {asked}, but by this plan's figures {fit} blocks fit: the server takes the "
            f"number as it is, and may run out of memory. Lower it, or leave it out."
        )
    return fit if asked is None else asked


def _weights_size(
    resolved: ResolvedRequest, entry: ModelEntry | None, weights: Weights | None
) -> tuple[int | None, str]:
    if weights is not None and weights.bytes is not None:
        return weights.bytes, "safetensors headers"
    directories = [] if entry is None else [entry.directory]
    if entry is not None and entry.conversion is not None and family_of(resolved.release).scales_while_loading:
        # Converted or as it is published, FP8 takes as many bytes.
        directories.append(entry.conversion.from_directory)
    if entry is not None and resolved.weights.endswith(tuple(f"/{directory}" for directory in directories)):
        return entry.weights_bytes, "catalogue, from the model's own index"
    return None, "not known"


def stored_as(entry: ModelEntry | None, weights: Weights | None) -> dict[str, int]:
    """How many elements the files hold of each safetensors dtype; one of the catalogue's dtype where none was read."""
    if weights is not None and weights.parameters:
        return dict(weights.parameters)
    return {DTYPES[entry.dtype]: 1} if entry is not None else {}


def growth(width: int | None, stored: Mapping[str, int]) -> float:
    """Bytes on the card for each byte in the files, when weights in floating point are loaded ``width`` bytes wide."""
    read = sum(count * WIDTHS.get(kind, 1) for kind, count in stored.items())
    if width is None or not read:
        return 1.0
    return sum(count * (width if kind in FLOATS else WIDTHS.get(kind, 1)) for kind, count in stored.items()) / read


def _width(resolved: ResolvedRequest, weights: Weights | None) -> int | None:
    """Bytes of a loaded weight; None where weights stay as they are stored."""
    if resolved.dtype == "fp8":
        # Calibrated FP8 keeps one byte of each bfloat16 weight.
        as_stored = family_of(resolved.release).serves_stored_fp8 or _stored_fp8(resolved, weights)
        return None if as_stored else 1
    return WIDTHS_ASKED.get(resolved.dtype)


def _stored_fp8(resolved: ResolvedRequest, weights: Weights | None) -> bool:
    """Whether the files hold FP8 already."""
    read = weights is not None and any(kind.startswith("F8") for kind in weights.parameters)
    return read or bool(resolved.model.stored_fp8)


def _kv_bytes_per_token(draft: Draft, resolved: ResolvedRequest, count: int) -> int | None:
    shape = resolved.model.shape
    layers, heads, shared = shape.num_hidden_layers, shape.num_attention_heads, shape.num_key_value_heads
    if layers is None or heads is None or shared is None:
        return None
    if shape.state is not None and family_of(resolved.release).layers_share_cache:
        layers -= shape.state.layers
    head_dim = shape.head_dim or (shape.hidden_size // heads if shape.hidden_size else None)
    if head_dim is None:
        return None
    cache = draft.argument("--kv-cache-dtype") or "auto"
    return memory.kv_bytes_per_token(
        layers=layers,
        key_value_heads=shared,
        head_dim=head_dim,
        element_bytes=1 if cache.startswith("fp8") else 4 if resolved.dtype == "float32" else 2,
        tensor_parallel_size=count,
        kv_lora_rank=shape.kv_lora_rank,
        rope_head_dim=shape.qk_rope_head_dim,
    )


def _more_cards(weights_gib: float, have: float, count: int, resolved: ResolvedRequest) -> int | None:
    """The number of cards whose memory holds the weights; None if no number of one node's does."""
    heads = resolved.model.shape.num_attention_heads
    for more in (2, 4, 8):
        divides = heads is None or heads % more == 0
        if more > count and divides and weights_gib / more < have:
            return more
    return None
