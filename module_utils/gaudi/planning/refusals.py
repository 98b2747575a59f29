"""What cannot work, found before anything is loaded: each limit with its refusal, or its warning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base.absent import TWO_NODES, absent
from ..base.checks import question, shown
from ..base.command_line import options
from ..base.refusal import Refusal
from ..cards.placement import PlacementCard
from ..catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ..catalogue.surface import ServerSurface
from ..families.base import Lengths
from ..families.registry import family_of
from ..families.shared import KNOBS, LOG_SWITCHES
from ..image.pytorch import UPSTREAM
from ..model.architectures import some
from ..model.facts import DTYPE_METHODS, ModelFacts
from ..model.headers import Weights
from ..model.kernels import INTERLEAVED, SOME_LAYERS, WINDOW
from ..request.options import PLUGIN_OPTIONS, InstanceRequest
from ..request.resolved import ResolvedRequest
from ..rules.draft import Draft
from ..serving.plan import OFFLINE
from .arguments import value_in
from .remote_code import ALONE

# What a server is told of pictures, films and sounds: options of a request and keys of a model's file, by argument.
MEDIA_OPTIONS = {"limit_mm_per_prompt": "--limit-mm-per-prompt", "mm_processor_kwargs": "--mm-processor-kwargs"}

# A commit's full name; all else can be moved.
COMMIT = re.compile(r"[0-9a-f]{40}")

# What the fork asks for (README_GAUDI.md, requirements: 1.16 Gaudi 2, later ones Gaudi 2 and 3).
GENERATIONS = ("gaudi2", "gaudi3")

# Tokens of one request of DeepSeek-R1 or -V3 on eight cards (start_vllm.sh of vllm-fork 016b6bd20, help of -l).
DEEPSEEK_ON_ONE_NODE = 32768


# What the vendor recommends on these cards; its code calls the smaller sizes suboptimal (README_GAUDI.md).
RECOMMENDED_BLOCK_SIZE = 128


def check_supported(
    request: InstanceRequest,
    asked: frozenset[str],
    release: ReleaseEntry,
    entry: ModelEntry | None,
    model: ModelFacts,
    draft: Draft,
    weights: Weights | None = None,
) -> None:
    """Refuse features that the release lacks; warn about combinations that nobody is known to have tried."""
    if entry is not None:
        _check_release(entry, release, draft)
    _check_effect(asked, release)
    _check_features([*_features_of_weights(model), *_features_of_arguments(request.extra_args)], release)
    _warn_of_gaps(entry, model, weights, draft)


def check_quantized(request: InstanceRequest, model: ModelFacts, release: ReleaseEntry) -> None:
    """Refuse quantised weights where the release has none. Whether it has their class at all is checked before: other
    weights of a model that it does not know are no remedy.
    """
    _check_features(_quantizations(request, model), release)


def _check_features(features: Iterable[tuple[str, str]], release: ReleaseEntry) -> None:
    for feature, seen in features:
        if feature in release.unsupported:
            raise Refusal("unsupported_feature", f"{seen}: {release.unsupported[feature]}")


def _warn_of_gaps(entry: ModelEntry | None, model: ModelFacts, weights: Weights | None, draft: Draft) -> None:
    """Say what is not known of a model, and what the rules do without it."""
    if model.known_from == "name" and entry is not None:
        draft.warn(
            f"The catalogue has no figures of {entry.name}, whose config.json nobody has read: heads, lengths and the "
            f"KV cache are not checked, and rules that look into a model fall back to its name. Give the content of "
            f"its config.json as model_config, or plan again once its weights are on the node."
        )
    elif model.known_from == "name" and weights is not None and weights.code is not None:
        draft.warn(
            f"Of config.json beside {shown(model.name)} only the classes it names are read: rules that look into a "
            f"model fall back to its name. Give the content as model_config, or add a catalogue file."
        )
    elif model.known_from == "name":
        draft.warn(
            f"Nothing is known of {shown(model.name)} but its name: rules that look into a model fall back to it. "
            f"Give model_config (the content of its config.json) or add a catalogue file."
        )
    for gap in model.gaps:
        draft.warn(gap)


def about_record(entry: ModelEntry) -> str:
    """The beginning of each warning about what is known of a model of the catalogue."""
    return f"The model {entry.title} is"


def _check_release(entry: ModelEntry, release: ReleaseEntry, draft: Draft) -> None:
    """A model's file may name the releases it was served with, and those it cannot be served with."""
    validated = entry.validated.releases if entry.validated is not None else ()
    if not entry.releases or release.name in (*entry.releases, *validated):
        return
    if release.name in entry.unsupported:
        raise Refusal(
            "unsupported_model",
            f"{entry.title} is not served with release {release.name}: {entry.unsupported[release.name]} "
            f"Use another release.",
        )
    draft.warn(
        f"{about_record(entry)} known to be served with release {', '.join(entry.releases)}; nobody is known to "
        f"have tried {release.name}."
    )


# The features of release files (unsupported) that options ask for.
FEATURES = {
    **dict.fromkeys(("enable_lora", "lora_modules", "max_loras", "max_lora_rank"), "lora"),
    "enable_chunked_prefill": "chunked_prefill",
}


def _check_effect(asked: frozenset[str], release: ReleaseEntry) -> None:
    """Options that were asked for, and that the release's server never sees."""
    family, surface = family_of(release), ServerSurface(release)
    for option in (*family.without_effect, *(name for name in PLUGIN_OPTIONS if name not in family.takes)):
        if option in asked:
            argument = f"--{option.replace('_', '-')}"
            why = family.reasons.get(option, None if surface.knows(argument) else f"its server has no {argument}")
            planned = release.unsupported.get(FEATURES.get(option, ""))
            if option not in family.reasons and planned is not None:
                raise Refusal("unsupported_feature", f"{option} is set: {planned}")
            raise Refusal(
                "without_effect",
                f"{option} is without effect on release {release.name}{'' if why is None else f' ({why})'}. Leave it "
                f"out, or use another release.",
            )
    for option, argument in MEDIA_OPTIONS.items():
        if option in asked and not surface.knows(argument):
            raise Refusal(
                "without_effect",
                f"{option} is without effect on release {release.name}: its server has no {argument}. Leave it out, or "
                f"use another release.",
            )
    for option, variable in {**KNOBS, **LOG_SWITCHES}.items():
        if option in asked and not surface.reads(variable):
            raise Refusal(
                "without_effect",
                f"{option} is without effect on release {release.name}: its server does not read {variable}. "
                f"Leave it out, or use another release.",
            )


def check_media(request: InstanceRequest, architectures: Sequence[str], release: ReleaseEntry, label: str) -> None:
    """Options for pictures, films and sounds need a model for them (_init_multimodal_config of vllm/config.py)."""
    known = release.multimodal_architectures
    if not known or not architectures or known.intersection(architectures):
        return
    for option, argument in MEDIA_OPTIONS.items():
        if getattr(request, option) is not None or value_in(request.extra_args, argument) is not None:
            raise Refusal(
                "text_alone",
                f"{label}: {option} is set, but {some(architectures)} takes text alone: release {release.name} has it "
                f"not among the classes for pictures, films and sounds (_MULTIMODAL_MODELS of its registry.py). Only "
                f"those take {option}. Leave it out.",
            )


def check_mtp(request: InstanceRequest, architectures: Sequence[str], model: ModelFacts, release: ReleaseEntry) -> None:
    """Layers of the served model that guess tokens (MTP) are known of some models (hf_config_override of vLLM's
    SpeculativeConfig); with another model, and no model that guesses, the server ends.
    """
    said, known = request.speculative_config or {}, release.constants.get("mtp_models", ())
    method, names = str(said.get("method", "")), {*architectures, *filter(None, [model.shape.model_type])}
    if said.get("model") is not None or not method.endswith("mtp") or not known:
        return
    found = f"{model.without_mtp} of its config.json is 0" if model.without_mtp is not None else None
    if names and names.isdisjoint(known):
        found = f"release {release.name} does not have them for {some(sorted(names))}"
    if found is not None:
        raise Refusal(
            "unsupported_speculation",
            f"speculative_config has the method {method} and no model, so that {model.name} would guess with layers of "
            f"its own (MTP), but {found}: the server would not start. Take another method such as ngram or "
            f"leave speculative_config out, or use another release.",
        )


def _quantizations(request: InstanceRequest, model: ModelFacts) -> Iterator[tuple[str, str]]:
    """What is quantised, each with the words that say where it was seen."""
    if request.dtype in ("fp8", "awq", "gptq"):
        yield "quantization", f"dtype is {request.dtype}"
    if request.quantization_config is not None:
        yield "quantization", "quantization_config is set"
    if request.kv_cache_dtype not in (None, "auto"):
        yield "quantization", f"kv_cache_dtype is {request.kv_cache_dtype}"
    if model.quant_method is not None:
        yield "quantization", f"{model.name} is stored quantised ({model.quant_method})"


def _features_of_weights(model: ModelFacts) -> Iterator[tuple[str, str]]:
    """The features that the model needs, each with the words that say where it was seen."""
    if model.alibi:
        yield "alibi", f"{model.name} uses attention with linear biases"
    for kernel in model.kernels:
        yield kernel.name, f"{model.name} has {kernel.seen}"


def one_node_only(release: ReleaseEntry) -> str:
    """Why an instance cannot have the cards of two nodes: as the release's documents say it, else our own sentence."""
    planned = release.unsupported.get("two_nodes")
    return TWO_NODES.sentence if planned is None else f"{planned[0].upper()}{planned[1:]}"


def _features_of_arguments(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The features that further arguments of the server ask for."""
    for option in options(arguments):
        if option.startswith(("--enable-lora", "--lora-", "--max-lora", "--fully-sharded-lora")):
            yield "lora", f"extra_args has {option}"
        if option == "--enable-chunked-prefill":
            yield "chunked_prefill", f"extra_args has {option}"
        if option in ("--quantization", "--quantization-param-path"):
            yield "quantization", f"extra_args has {option}"
        if option == "--pipeline-parallel-size" or absent(option) == TWO_NODES.sentence:
            yield "two_nodes", f"extra_args has {option}"
        if "beam" in option:
            yield "beam_search", f"extra_args has {shown(option)}"


def check_hub(weights_path: str, request: InstanceRequest, draft: Draft) -> None:
    """Weights that the server itself fetches are what a branch holds on the day, unless a commit is named: a warning.

    A directory of the node has its own record.
    """
    revision = value_in(request.extra_args, "--revision")
    if not weights_path.startswith("/") and not COMMIT.fullmatch(revision or ""):
        draft.warn(
            f"{weights_path} is not pinned: the server fetches by itself what "
            f"{f'the revision {shown(revision)}' if revision else 'the main branch'} holds on the day. Add --revision "
            f"and a commit to extra_args, or serve a directory of the node."
        )


def check_named_models(weights: Weights | None, draft: Draft) -> None:
    """Warn of weights whose configuration names models of a hub: no pin covers what a server would fetch."""
    if weights is not None and weights.foreign.models:
        draft.warn(
            f"The weights name another model ({some(weights.foreign.models)}), which no pin of theirs covers. A server "
            f"whose plan names nothing of a hub is started with {OFFLINE[0]}=1, cannot fetch it, and may not start. "
            f"{ALONE}. To have it fetched at its newest commit, set {OFFLINE[0]} to '0' in extra_environment."
        )


def check_quantization(resolved: ResolvedRequest) -> None:
    """Quantised weights need a method the release has, and the data type that goes with it.

    A method that only the model's name suggests is a guess: then the requested data type counts.
    """
    model, method = resolved.model, resolved.model.quant_method
    served = resolved.release.constants.get("quantization_methods", ())
    asked = resolved.dtype if resolved.dtype in DTYPE_METHODS else None
    for seen, name in ((f"{model.name} is stored in {method}", method), (f"dtype is {asked}", asked)):
        if name is not None and name not in served:
            raise Refusal(
                "unsupported_quantization",
                f"{seen}, but release {resolved.release.name} serves {', '.join(served) or 'no quantised weights'}. "
                f"Serve other weights, or use another release.",
            )
    formats = resolved.release.constants.get("quantization_formats", {}).get(method, ())
    if formats and model.quant_format is not None and model.quant_format not in formats:
        raise Refusal(
            "unsupported_quantization",
            f"{model.name} is stored in {method} as {shown(model.quant_format)}, but release {resolved.release.name} "
            f"serves {any_of(formats)} of it. Serve other weights, or use another release.",
        )
    _check_schemes(resolved)
    if model.known_from == "name":
        return
    if resolved.dtype in DTYPE_METHODS and resolved.dtype != method:
        stored = f"as {method}" if method else "without quantisation"
        raise Refusal(
            "dtype_not_as_stored",
            f"dtype is {resolved.dtype}, but {model.name} is stored {stored}. Leave dtype out: it follows the weights.",
        )
    if method in DTYPE_METHODS and resolved.dtype != method:
        raise Refusal(
            "dtype_not_as_stored",
            f"{model.name} is stored in {method}, but dtype is {resolved.dtype}. Set dtype to {method}, or leave dtype "
            f"and quantization_config out.",
        )


def check_float16(resolved: ResolvedRequest) -> None:
    """float16 is served where the release's file says so; the other servers and scripts make it bfloat16."""
    if resolved.dtype == "float16" and not resolved.release.constants.get("float16"):
        raise Refusal(
            "unsupported_dtype",
            f"dtype is float16, but release {resolved.release.name} serves bfloat16 and float32. Set dtype to "
            f"bfloat16.",
        )


def _check_schemes(resolved: ResolvedRequest) -> None:
    """Quantised layers need a kernel for their bits; the experts of a model have kernels of their own."""
    model, method = resolved.model, resolved.model.quant_method
    known = resolved.release.constants.get("quantization_schemes", {}).get(method)
    if known is None:
        return
    experts = bool(model.shape.num_experts) and "experts" in known
    served = known["experts" if experts else "layers"]
    wrong = [scheme for scheme in model.schemes if scheme.name not in served]
    stored = f"with {wrong[0].words}" if wrong else "and has experts"
    if wrong or (experts and not served):
        raise Refusal(
            "unsupported_quantization",
            f"{model.name} is stored in {method} {stored}, but release {resolved.release.name} has no kernel for that"
            f"{' in experts' if experts and wrong else ''}. Serve other weights, or use another release.",
        )


def check_head_size(resolved: ResolvedRequest) -> None:
    """Old releases have attention for some sizes of heads; another one ends the server (ValueError: Head size)."""
    shape, sizes = resolved.model.shape, resolved.release.constants.get("head_sizes")
    heads, hidden = shape.num_attention_heads, shape.hidden_size
    size = shape.head_dim or (hidden // heads if hidden is not None and heads is not None else None)
    if sizes is not None and size is not None and size not in sizes:
        raise Refusal(
            "unsupported_head_size",
            f"{resolved.model.name} has attention heads of {size} (head_dim), but release {resolved.release.name} "
            f"serves {any_of(sizes)}. Serve another model, or use another release.",
        )


def check_rows(resolved: ResolvedRequest, cards: int) -> None:
    """Cards share rows of weights by whole groups that have one scale; ``cards``: those of the node.

    Raises Refusal where one would be cut: the server ends while it loads.
    """
    model = resolved.model
    group = model.scale_group
    if group is None:
        return
    fits = [n for n in range(1, cards + 1) if not any(length % (n * group) for length in model.rows.values())]
    fits = fits if _fixed_cards(resolved.release) is None else []
    for key, length in model.rows.items():
        if resolved.cards > 1 and length % (resolved.cards * group):
            raise Refusal(
                "scales_not_divisible",
                f"tensor_parallel_size is {resolved.cards}, but the rows of {model.name} are {length} weights long "
                f"({key}), with a scale for each {group}: {resolved.cards} cards would cut through what has one scale, "
                f"and the server ends while it loads.",
                f"{f'Use {any_of(fits)}, or other' if fits else 'Serve other'} weights.",
            )


def check_kernels(lengths: Lengths, resolved: ResolvedRequest, draft: Draft) -> None:
    """Warn of attention that the release computes otherwise than the model was made for.

    Raises Refusal for a window with unified attention, which has none (hpu_attn.py of vllm-gaudi v0.17.1).
    """
    model, release = resolved.model, resolved.release
    for kernel in model.kernels:
        windows = kernel.name in (WINDOW, INTERLEAVED, SOME_LAYERS)
        if windows and family_of(release).is_on(draft.environment.get("VLLM_UNIFIED_ATTN")):
            raise Refusal(
                "unsupported_feature",
                f"{model.name} has {kernel.seen}: the unified attention of release {release.name} "
                f"(VLLM_UNIFIED_ATTN) raises NotImplementedError for it. Use another bucketing strategy.",
            )
        length = lengths.max_model_len
        if kernel.name in release.warned and (kernel.exact is None or length is None or length > kernel.exact):
            draft.warn(f"{model.name} has {kernel.seen}: {release.warned[kernel.name]}")


def check_block_size(resolved: ResolvedRequest, draft: Draft) -> None:
    """The release's parser takes a few sizes only; the others end the server before it loads anything."""
    size, allowed = resolved.block_size, resolved.constant("block_sizes")
    parser = resolved.release.typed_arguments.get("--block-size")
    # What the server sets by itself goes by its parser.
    if size not in (*allowed, resolved.block_size_of_type):
        if parser is None or parser.wrong(str(size)) is not None:
            raise Refusal(
                "unsupported_block_size",
                f"block_size is {size}, but release {resolved.release.name} takes {any_of(allowed)}. "
                f"{RECOMMENDED_BLOCK_SIZE} is what the vendor recommends.",
            )
        draft.warn(
            f"block_size is {size}, which the server takes; nobody is known to have tried another than "
            f"{any_of(allowed)} on these cards. {RECOMMENDED_BLOCK_SIZE} is what the vendor recommends."
        )
    if size < RECOMMENDED_BLOCK_SIZE:
        draft.warn(
            f"block_size {size} is smaller than the {RECOMMENDED_BLOCK_SIZE} tokens that the vendor recommends for "
            f"these cards; its documentation calls smaller blocks slow."
        )


def check_cache_type(resolved: ResolvedRequest) -> None:
    """Parsers take types of the KV cache that these cards do not have; the server ends after it has loaded."""
    cache, release = resolved.request.kv_cache_dtype, resolved.release
    typed = release.typed_arguments.get("--kv-cache-dtype")
    if cache is not None and typed is not None and cache not in typed.choices:
        raise Refusal(
            "unsupported_kv_cache",
            f"kv_cache_dtype is {cache}, but these cards take {' or '.join(typed.choices)} with release {release.name} "
            f"({family_of(release).cache_code}). Use fp8_inc with calibrated scales, or leave it out.",
        )


def check_kv_cache(draft: Draft, resolved: ResolvedRequest) -> None:
    """Keys and values in FP8 need scales: the quantisation file brings them, nothing else does."""
    dtype = draft.argument("--kv-cache-dtype") or "auto"
    if dtype.startswith("fp8") and resolved.quantization_config is None:
        draft.warn(
            f"The KV cache is {dtype} without a quantization_config: nothing was measured, so that its scales are 1, "
            f"and answers may get worse. Set quantization_config, or kv_cache_dtype to auto."
        )


def check_validated(
    entry: ModelEntry | None, resolved: ResolvedRequest, card_type: CardType | None, label: str, draft: Draft
) -> None:
    """Refuse cards that a model is known to fail on; say what the server's maintainers validated, where they do."""
    if entry is None:
        return
    generation = card_type.generation if card_type is not None else None
    if generation is not None and generation in entry.unsupported_generations:
        raise Refusal(
            "unsupported_generation",
            f"{label}: {entry.name} is not served on {resolved.card_name} cards ({generation}): "
            f"{entry.unsupported_generations[generation]}",
        )
    release, family = resolved.release, family_of(resolved.release)
    listed = release.listed_cards.get(entry.name, ())
    # A manual of the release may serve a model on other cards than its README lists; the model's file has those.
    own = entry.defaults.get("tensor_parallel_size") if release.name in entry.releases else None
    if listed and resolved.cards not in (*listed, own):
        draft.warn(
            f"The README of release {release.name} lists {entry.title} on {any_of(listed)} cards, not on "
            f"{resolved.cards}: what it does not list may or may not work."
        )
    if family.validated_models is None:
        return
    said = entry.validated
    if said is not None and release.name not in said.releases:
        draft.warn(
            f"{about_record(entry)} validated by the plugin's maintainers with release "
            f"{', '.join(said.releases)}, not with {release.name}."
        )
        return
    if said is None:
        draft.warn(
            f"{about_record(entry)} not validated by the plugin: {family.validated_models} of "
            f"{family.repository.replace('_', '-')} {family.pin(release).reference} does not name it."
        )
        return
    dtype = "fp8" if resolved.model.stored_fp8 else resolved.dtype
    asked = {"cards": generation, "tensor_parallel_size": resolved.cards, "dtype": dtype}
    known = {"cards": said.generations, "tensor_parallel_size": said.tensor_parallel_size, "dtype": said.dtype}
    beyond = [
        f"{name} {value} (validated: {', '.join(map(str, known[name]))})"
        for name, value in asked.items()
        if value is not None and value not in known[name]
    ]
    if beyond:
        draft.warn(f"{about_record(entry)} validated by the plugin's maintainers, but not with {'; '.join(beyond)}.")


def check_class_on_cards(
    architectures: Sequence[str], release: ReleaseEntry, card_type: CardType | None, label: str
) -> None:
    """Refuse classes that are known to fail on these cards, whatever the weights are called."""
    failing = release.constants.get("failing_on", {}).get(card_type.generation if card_type is not None else None, {})
    for name in failing.keys() & set(architectures):
        raise Refusal(
            "unsupported_generation",
            f"{label}: release {release.name} does not serve {name} on these cards: {failing[name]}",
        )


def check_heads(model: ModelFacts, count: int, cards: int, label: str, release: ReleaseEntry) -> None:
    """Attention heads are divided among the cards, and so are key-value heads; several cards have the same key-value
    head if their number is a multiple of the heads' (QKVParallelLinear in vllm/model_executor/layers/linear.py of every
    release: divide(), which asserts).

    ``cards``: those of the node, more than which are not advised.
    """
    heads, shared = model.shape.num_attention_heads, model.shape.num_key_value_heads
    if heads is None or shared is None:
        return
    # Latent attention keeps one compressed vector that is not divided among the cards.
    most = heads if model.shape.kv_lora_rank is not None else shared
    fits = [n for n in range(1, cards + 1) if heads % n == 0 and (most % n == 0 or n % most == 0)]
    fixed, remedy = "", f"Use {any_of(fits)}."
    if _fixed_cards(release) is not None:
        fixed, remedy = f" Release {release.name} always takes {count} cards.", "Serve another model."
    if heads % count:
        raise Refusal(
            "heads_not_divisible",
            f"{label}: tensor_parallel_size is {count}, but {model.name} has {heads} attention heads "
            f"(num_attention_heads), which {count} does not divide.{fixed}",
            remedy,
        )
    if count < most and most % count:
        raise Refusal(
            "heads_not_divisible",
            f"{label}: tensor_parallel_size is {count}, but {model.name} has {most} key-value heads "
            f"(num_key_value_heads), which {count} does not divide.{fixed}",
            remedy,
        )
    if count > most and count % most:
        raise Refusal(
            "more_cards_than_heads",
            f"{label}: tensor_parallel_size is {count}, above the {shared} key-value heads (num_key_value_heads) of "
            f"{model.name}, and no multiple of them.{fixed}",
            remedy,
        )


def _fixed_cards(release: ReleaseEntry) -> object:
    """The number of cards that a release always takes; None where a request says it."""
    return release.constants.get("tensor_parallel_size")


def any_of(these: Sequence[object]) -> str:
    """Several values in words, each of which will do."""
    words = [str(this) for this in these]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def check_lengths(lengths: Lengths, resolved: ResolvedRequest, draft: Draft) -> None:
    """What vLLM itself refuses, but only after minutes of loading."""
    length, tokens, model = lengths.max_model_len, lengths.max_num_batched_tokens, resolved.model
    most = _most_on_one_node(resolved)
    if length is not None and most is not None and length > most:
        raise Refusal(
            "max_model_len_beyond_node",
            f"max_model_len is {lengths.shown}, but one node serves {model.name} with {most} tokens at most (the help "
            f"of the DeepSeek releases' own script). {TWO_NODES.sentence}",
            f"Set max_model_len to {most} at most.",
        )
    chunks = family_of(resolved.release).chunks_prefill and resolved.request.enable_chunked_prefill is not False
    if length is not None and tokens is not None and tokens < length and not chunks:
        raise Refusal(
            "batch_below_longest_request",
            f"max_num_batched_tokens is {tokens}, below max_model_len {lengths.shown}: without chunked prefill the "
            f"longest request must fit into one batch.",
            f"Set max_num_batched_tokens to {length} at least, or lower max_model_len.",
        )
    if tokens is not None and tokens < lengths.max_num_seqs:
        raise Refusal(
            "batch_below_sequences",
            f"max_num_batched_tokens is {tokens}, below max_num_seqs {lengths.max_num_seqs}: every sequence of a batch "
            f"needs a token. Lower max_num_seqs or raise max_num_batched_tokens.",
        )
    positions = model.positions
    if positions.broken:
        draft.warn(f"{shown(model.name)} will not start: {positions.broken}.")
    if positions.longest is None or length is None or length <= positions.longest:
        return
    beyond = f"max_model_len is {lengths.shown}, but {model.name} was made for {positions.longest} positions"
    if resolved.request.extra_environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "").lower() in ("1", "true"):
        draft.warn(f"{beyond} ({positions.because}). VLLM_ALLOW_LONG_MAX_MODEL_LEN lets it: answers may be nonsense.")
        return
    raise Refusal(
        "max_model_len_beyond_model",
        f"{beyond} ({positions.because}).",
        f"Set max_model_len to {positions.longest} at most, or lower the ranges.",
    )


def _most_on_one_node(resolved: ResolvedRequest) -> int | None:
    """The longest request one node serves: a limit of the DeepSeek models, and of the releases made for them."""
    if resolved.model.kind == "deepseek-v3":
        return DEEPSEEK_ON_ONE_NODE
    most: int | None = resolved.release.constants.get("longest_model_len")
    return most


def check_fp8(
    resolved: ResolvedRequest, entry: ModelEntry | None, weights: Weights | None, card_type: CardType | None, label: str
) -> None:
    """Gaudi2's FP8 ends at 240 where published weights end at 448: unconverted, every large weight would be wrong."""
    if weights is None or weights.converted or card_type is None or card_type.fp8_max != 240:
        return
    if family_of(resolved.release).scales_while_loading:
        # Scaled while they load (gaudi_weight_wrapper of vllm_gaudi/extension/ops.py, asked for by hpu_fp8.py,
        # hpu_compressed_tensors.py and hpu_modelopt.py in vllm_gaudi/ops).
        return
    must = family_of(resolved.release).serves_stored_fp8 or (entry is not None and entry.conversion is not None)
    if must and any(kind.startswith("F8") for kind in weights.parameters):
        raise Refusal(
            "fp8_not_converted",
            f"{label}: {resolved.weights} holds FP8 weights without .gaudi-serving/fp8.json, so that nothing proves "
            f"they were converted for {card_type.name}. Convert them with the role fp8_weights.",
        )


def check_lazy_mode(draft: Draft, release: ReleaseEntry, image: str) -> None:
    """Lazy mode is in the vendor's PyTorch; an image that names upstream's has none (vllm-gaudi, installation)."""
    sentence = release.unsupported.get("lazy_mode_upstream")
    if sentence and UPSTREAM.search(image) and draft.environment.get("PT_HPU_LAZY_MODE") == "1":
        raise Refusal("lazy_mode_not_in_image", f"lazy_mode is on, but the image is {image}: {sentence}")


def check_ready_image(draft: Draft, release: ReleaseEntry, image: str) -> None:
    """A ready-made image of the vendor's may have another vLLM than the release that is planned with."""
    planned = release.build.version if release.build is not None else None
    for ready in release.ready_images:
        if f"/{ready.path}" in image and ready.vllm != planned:
            draft.warn(
                f"The image {image} has vLLM {ready.vllm} in it, and this plan is made for {planned}: options, "
                f"variables and buckets may differ. Name one with vLLM {planned}, or build it (serving_image_build)."
            )


def check_missing(weights: Weights | None, path: str, label: str) -> None:
    """A model that lacks shards looks complete until it is loaded."""
    if weights is not None and weights.missing:
        more = f" and {len(weights.missing) - 3} more" if len(weights.missing) > 3 else ""
        raise Refusal(
            "shards_missing",
            f"{label}: {path} lacks {', '.join(weights.missing[:3])}{more}, which its index names. "
            f"Fetch the model again.",
        )


def check_card_type(chosen: Sequence[PlacementCard], cards: Mapping[str, CardType], draft: Draft) -> None:
    """Refuse or warn of an unknown card, and of one that no release is documented for."""
    name = chosen[0].name
    if name is None:
        return
    if name not in cards:
        near = question([known for known in cards if known.lower() == name.strip().lower()][:1])
        draft.warn(
            f"{shown(name)} is no card of catalog/cards.yml: its memory, its FP8 format and its links are not known, "
            f"and nothing about them is checked.{near}"
        )
    elif cards[name].generation not in GENERATIONS:
        draft.warn(
            f"{name} is a {cards[name].generation} card, but every release asks for {' or '.join(GENERATIONS)} "
            f"(requirements in README_GAUDI.md of its fork): nobody is known to have served from it."
        )


def check_card_names(chosen: Sequence[PlacementCard], label: str) -> None:
    """One instance's cards are of one type."""
    names = sorted({card.name for card in chosen if card.name})
    if len(names) > 1:
        raise Refusal(
            "mixed_card_types",
            f"{label}: the chosen cards are of different types ({', '.join(names)}). Name modules of one type.",
        )


def inputs_of(cards: Sequence[PlacementCard]) -> list[Mapping[str, Any]]:
    """What placement saw of cards, for the explanation."""
    return [{"module_id": card.module_id, "numa_node": card.node, "cpus": card.cpus} for card in cards]
