"""What cannot work, found before anything is loaded: each limit with its refusal, or its warning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import memory
from .catalogue import POOLING_TASKS, CardType, ModelEntry, ReleaseEntry
from .checks import Refusal, shown
from .placement import Card
from .plan_family import WITHOUT_EFFECT
from .plan_model import ModelFacts
from .plan_weights import Weights
from .plan_wish import Lengths, Wish
from .request import Request
from .rules import Draft

# FP8 models above this many parameters span cards that only host NICs connect well (manual v1.22 §3.1.1).
LARGE_FP8_PARAMETERS = 300 * 10**9

# A card of an idle node uses less than this, in MiB; more is the instance itself, still running.
IDLE_AT_MOST_MIB = 4096

# vLLM's own default, for releases whose script passes none.
GPU_MEMORY_UTILIZATION = "0.9"
GRAPH_RESERVED_MEM = "0.1"


def check_supported(
    request: Request,
    asked: frozenset[str],
    release: ReleaseEntry,
    entry: ModelEntry | None,
    model: ModelFacts,
    draft: Draft,
) -> None:
    """Refuse what the release cannot do; warn about what nobody is known to have tried."""

    def refuse(feature: str, seen: str) -> None:
        if feature in release.unsupported:
            raise Refusal(f"{seen}: {release.unsupported[feature]}")

    for option in WITHOUT_EFFECT[release.rules]:
        if option in asked:
            raise Refusal(
                f"{option} is without effect on release {release.name}. Leave it out, or use another release."
            )
    if request.dtype in ("fp8", "awq", "gptq"):
        refuse("quantization", f"dtype is {request.dtype}")
    if request.quantization_config is not None:
        refuse("quantization", "quantization_config is set")
    if request.kv_cache_dtype not in (None, "auto"):
        refuse("quantization", f"kv_cache_dtype is {request.kv_cache_dtype}")
    if model.stored_fp8:
        refuse("quantization", f"{model.name} is stored in FP8")
    if model.alibi:
        refuse("alibi", f"{model.name} uses attention with linear biases")
    for argument in request.extra_args:
        option = argument.split("=", 1)[0].replace("_", "-")
        if option.startswith(("--enable-lora", "--lora-", "--max-lora", "--fully-sharded-lora")):
            refuse("lora", f"extra_args has {option}")
        if option == "--enable-chunked-prefill":
            refuse("chunked_prefill", f"extra_args has {option}")
        if option in ("--quantization", "-q", "--quantization-param-path"):
            refuse("quantization", f"extra_args has {option}")
        if "beam" in option:
            refuse("beam_search", f"extra_args has {shown(option)}")
    if entry is not None and entry.releases and release.name not in entry.releases:
        draft.warn(
            f"{entry.name} is known to be served with release {', '.join(entry.releases)}; "
            f"nobody is known to have tried {release.name}."
        )
    if model.known_from == "name":
        draft.warn(
            f"Nothing is known of {shown(model.name)} but its name: rules that look into a model fall back to it. "
            f"Give model_config (the content of its config.json) or add a catalogue file."
        )


def check_heads(model: ModelFacts, count: int, label: str) -> None:
    """Attention heads are divided among the cards, and every card needs key-value heads of its own."""
    architecture = model.architecture
    if architecture is None:
        return
    heads, shared = architecture.num_attention_heads, architecture.num_key_value_heads
    # Latent attention keeps one compressed vector that is not divided among the cards.
    most = heads if architecture.kv_lora_rank is not None else shared
    fits = [n for n in range(1, min(most, 16) + 1) if heads % n == 0]
    if heads % count:
        raise Refusal(
            f"{label}: tensor_parallel_size is {count}, but {model.name} has {heads} attention heads "
            f"(num_attention_heads), which {count} does not divide. Use {_or(fits)}."
        )
    if count > most:
        raise Refusal(
            f"{label}: tensor_parallel_size is {count}, above the {shared} key-value heads (num_key_value_heads) of "
            f"{model.name}. Use {_or(fits)}."
        )


def _or(numbers: Sequence[int]) -> str:
    words = [str(number) for number in numbers]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def check_lengths(lengths: Lengths, request: Request, model: ModelFacts, draft: Draft) -> None:
    """What vLLM itself refuses, but only after minutes of loading."""
    length, tokens = lengths.max_model_len, lengths.max_num_batched_tokens
    if length is not None and tokens is not None and tokens < length:
        raise Refusal(
            f"max_num_batched_tokens is {tokens}, below max_model_len {length}: without chunked prefill the longest "
            f"request must fit into one batch. Set max_num_batched_tokens to {length} at least."
        )
    if tokens is not None and tokens < lengths.max_num_seqs:
        raise Refusal(
            f"max_num_batched_tokens is {tokens}, below max_num_seqs {lengths.max_num_seqs}: every sequence of a batch "
            f"needs a token. Lower max_num_seqs or raise max_num_batched_tokens."
        )
    architecture = model.architecture
    stretched = any("rope" in argument or "hf-overrides" in argument for argument in request.extra_args)
    if architecture is None or length is None or stretched or length <= architecture.max_position_embeddings:
        return
    positions = architecture.max_position_embeddings
    if _asked_length(request, length) <= positions:
        draft.warn(
            f"max_model_len {length} is rounded to whole blocks beyond the {positions} positions of {model.name}; "
            f"keep requests below that."
        )
        return
    raise Refusal(
        f"max_model_len is {length}, but {model.name} was made for {positions} positions (max_position_embeddings). "
        f"Lower max_model_len or the ranges."
    )


def _asked_length(request: Request, length: int) -> int:
    """The length before it was rounded to whole blocks."""
    if request.max_model_len is not None:
        return request.max_model_len
    if request.input_range and request.output_range:
        return request.input_range[1] + request.output_range[1]
    return length


def check_fp8(
    wish: Wish, entry: ModelEntry | None, weights: Weights | None, card_type: CardType | None, label: str
) -> None:
    """Gaudi2's FP8 ends at 240 where published weights end at 448: unconverted, every large weight would be wrong."""
    if weights is None or weights.converted or card_type is None or card_type.fp8_max != 240:
        return
    must = wish.release.rules == "deepseek-r1" or (entry is not None and entry.conversion is not None)
    if must and any(kind.startswith("F8") for kind in weights.parameters):
        raise Refusal(
            f"{label}: {wish.weights} holds FP8 weights without .gaudi-serving/fp8.json, so that nothing proves they "
            f"were converted for {card_type.name}. Convert them with the role fp8_weights."
        )


def check_missing(weights: Weights | None, path: str, label: str) -> None:
    """A model that lacks shards looks complete until it is loaded."""
    if weights is not None and weights.missing:
        more = f" and {len(weights.missing) - 3} more" if len(weights.missing) > 3 else ""
        raise Refusal(
            f"{label}: {path} lacks {', '.join(weights.missing[:3])}{more}, which its index names. "
            f"Fetch the model again."
        )


def warn_about_fabric(draft: Draft, wish: Wish, card_type: CardType | None) -> None:
    """Where cards need host NICs with libfabric between them: a warning here, a refusal at the start."""
    alone = card_type.cards_without_host_nics if card_type else None
    architecture = wish.model.architecture
    parameters = architecture.parameters if architecture else None
    if alone is not None and wish.cards > alone:
        draft.warn(
            f"More than {alone} {wish.card_name} cards talk over host NICs: libfabric and hccl_ofi_wrapper must be in "
            f"the image and the NICs verified before {wish.cards} cards start."
        )
    elif wish.model.stored_fp8 and parameters and parameters > LARGE_FP8_PARAMETERS:
        draft.warn(
            f"{wish.model.name} is an FP8 model above 300 B parameters: host NICs with libfabric must be verified "
            f"before it starts."
        )


def needs_host_nics(wish: Wish, card_type: CardType | None) -> bool:
    """Whether the start has to find verified host NICs."""
    draft = Draft()
    warn_about_fabric(draft, wish, card_type)
    return bool(draft.warnings)


def _graph_share(draft: Draft) -> float:
    """Share of the usable memory that graphs get; raises :class:`Refusal` for one that leaves nothing for the rest."""
    text = draft.environment.get("VLLM_GRAPH_RESERVED_MEM", str(GRAPH_RESERVED_MEM))
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    # Not-a-number fails both comparisons.
    if 0.0 <= share < 1.0:
        return share
    raise Refusal(
        f"graph_reserved_mem (VLLM_GRAPH_RESERVED_MEM) is {shown(text)}; a share of the usable memory is needed, "
        "at least 0 and below 1, since the rest of it is the KV cache. The releases use 0.1 to 0.2."
    )


def memory_part(
    draft: Draft,
    wish: Wish,
    chosen: Sequence[Card],
    card_type: CardType | None,
    entry: ModelEntry | None,
    weights: Weights | None,
    lengths: Lengths,
    label: str,
) -> dict[str, object] | None:
    """What each card holds, and that it fits; None where the size of the weights or of the cards is not known.

    Raises :class:`Refusal` when weights and reserve do not fit, or when the KV cache cannot hold one longest request.
    """
    graph_share = _graph_share(draft)
    total = chosen[0].memory_total_mib or (card_type.memory_mib if card_type else None)
    size, size_from = _weights_size(wish, entry, weights)
    if total is None or size is None:
        draft.warn("The size of the weights or of the cards is not known: whether they fit is not checked.")
        return None
    idle = chosen[0].memory_used_mib
    if idle is None or idle > IDLE_AT_MOST_MIB:
        idle = (card_type.idle_memory_mib if card_type else None) or 0
    count = len(chosen)
    reserve = memory.BRIDGE_MIB + memory.PROFILE_RUN_MIB
    # Calibrated FP8 keeps one byte of each bfloat16 weight on the card.
    halved = wish.dtype == "fp8" and wish.release.rules != "deepseek-r1" and not _stored_fp8(wish, weights)
    per_card = (size / 2 if halved else size) / count / memory.GIB
    have = (total - idle - reserve) / 1024
    utilization = float(_argument(draft, "--gpu-memory-utilization") or GPU_MEMORY_UTILIZATION)
    inputs: dict[str, object] = {
        "weights_bytes": size,
        "weights_from": size_from,
        "parameters_by_dtype": dict(weights.parameters) if weights is not None else {},
        "cards": count,
        "card_mib": total,
        "idle_mib": idle,
        "reserve_mib": reserve,
        "gpu_memory_utilization": utilization,
        "graph_reserved_mem": graph_share,
    }
    split = memory.split(have - per_card, utilization, graph_share)
    if split.kv_cache <= 0:
        raise Refusal(
            f"{label}: {per_card:.1f} GiB of weights per card do not fit: a {wish.card_name or 'card'} has "
            f"{have:.1f} GiB beside the driver and the profiling run. "
            f"{_more_cards(per_card * count, have, count, wish)}"
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
    per_token = _kv_bytes_per_token(draft, wish, count)
    pooling = entry is not None and entry.task in POOLING_TASKS
    if per_token is not None and lengths.max_model_len is not None and not pooling:
        inputs["kv_bytes_per_token"] = per_token
        blocks = memory.blocks(split.kv_cache, per_token, wish.block_size)
        tokens = blocks * wish.block_size
        result.update({"kv_cache_blocks": blocks, "kv_cache_tokens": tokens})
        if tokens < lengths.max_model_len:
            raise Refusal(
                f"{label}: the KV cache would hold {tokens} tokens ({split.kv_cache:.1f} GiB per card), but one "
                f"request may have max_model_len {lengths.max_model_len}. Lower max_model_len, raise "
                f"gpu_memory_utilization, or use more cards."
            )
    draft.note("memory", result, "memory-split", "vLLM documentation, Intel Gaudi, HPU graph capture", inputs)
    return result


def _weights_size(wish: Wish, entry: ModelEntry | None, weights: Weights | None) -> tuple[int | None, str]:
    if weights is not None and weights.bytes is not None:
        return weights.bytes, "safetensors headers"
    if entry is not None and wish.weights.endswith(f"/{entry.directory}"):
        return entry.weights_bytes, "catalogue, from the model's own index"
    return None, "not known"


def _stored_fp8(wish: Wish, weights: Weights | None) -> bool:
    """Whether the files hold FP8 already."""
    read = weights is not None and any(kind.startswith("F8") for kind in weights.parameters)
    return read or bool(wish.model.stored_fp8)


def _argument(draft: Draft, name: str) -> str | None:
    return next((value for option, value in draft.arguments if option.replace("_", "-") == name), None)


def _kv_bytes_per_token(draft: Draft, wish: Wish, count: int) -> int | None:
    architecture = wish.model.architecture
    if architecture is None:
        return None
    return memory.kv_bytes_per_token(
        layers=architecture.num_hidden_layers,
        key_value_heads=architecture.num_key_value_heads,
        head_dim=architecture.head_dim or architecture.hidden_size // architecture.num_attention_heads,
        element_bytes=1 if (_argument(draft, "--kv-cache-dtype") or "auto").startswith("fp8") else 2,
        tensor_parallel_size=count,
        kv_lora_rank=architecture.kv_lora_rank,
        rope_head_dim=architecture.qk_rope_head_dim,
    )


def _more_cards(weights_gib: float, have: float, count: int, wish: Wish) -> str:
    architecture = wish.model.architecture
    for more in (2, 4, 8):
        divides = architecture is None or architecture.num_attention_heads % more == 0
        if more > count and divides and weights_gib / more < have:
            return f"Use {more} cards."
    return "It needs more or larger cards than one node has."


def check_card_names(chosen: Sequence[Card], label: str) -> None:
    """One instance's cards are of one type."""
    names = sorted({card.name for card in chosen if card.name})
    if len(names) > 1:
        raise Refusal(
            f"{label}: the chosen cards are of different types ({', '.join(names)}). Name modules of one type."
        )


def inputs_of(cards: Sequence[Card]) -> list[Mapping[str, Any]]:
    """What placement saw of cards, for the explanation."""
    return [{"module_id": card.module_id, "numa_node": card.node, "cpus": card.cpus} for card in cards]
