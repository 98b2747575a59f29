"""What a model needs of a release's backend beside a class: attention of its own kind, from a config.json.

A release file names each of them that its code refuses (``unsupported``) or computes otherwise (``warned``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..base.checks import positive
from .state import state_layers

SPARSE = "sparse_attention"
DELTA = "gated_delta"
WINDOW = "sliding_window"
# Windows in some layers and all tokens in the others.
INTERLEAVED = "interleaved_window"
# The same, in a model of the Qwen2 family: its class has a check of its own (vllm/model_executor/models/qwen2.py).
SOME_LAYERS = "window_of_some_layers"
# Local attention within parts of a text (Llama 4).
CHUNKED = "chunked_attention"
# Scores of attention bounded by a tanh (Gemma 2).
SOFT_CAP = "soft_cap"
# An encoder of its own, and a decoder that attends to it (Whisper, BART, T5).
ENCODER = "encoder_decoder"

# Model types whose windows are interleaved without a layer_types that says so (interleaved_attn_models of
# vllm/config.py in the forks).
INTERLEAVED_TYPES = ("gemma2", "gemma3_text", "cohere2")


@dataclass(frozen=True)
class Kernel:
    """One kind of attention that a model needs, where it was seen, and up to how many tokens dense attention is equal.

    ``exact`` is None where no dense attention is equal.
    """

    name: str
    seen: str
    exact: int | None = None


def kernels_of(config: Mapping[str, object]) -> tuple[Kernel, ...]:
    """Return what a language model's part of a config.json asks of attention."""
    found = []
    top_k = positive(config.get("index_topk"))
    if top_k is not None:
        found.append(Kernel(SPARSE, f"sparse attention (index_topk {top_k})", top_k))
    kind, layers = state_layers(config)
    if kind == "gdn" and layers:
        found.append(Kernel(DELTA, f"gated delta nets in {layers} layers"))
    window = positive(config.get("sliding_window"))
    if window is not None and config.get("use_sliding_window") is not False:
        name = _window(config)
        if name is not None:
            found.append(Kernel(name, f"a sliding window of {window} tokens", window))
    chunk = positive(config.get("attention_chunk_size"))
    if chunk is not None:
        found.append(Kernel(CHUNKED, f"local attention within {chunk} tokens", chunk))
    if config.get("attn_logit_softcapping"):
        found.append(Kernel(SOFT_CAP, "a soft cap of attention scores (attn_logit_softcapping)"))
    if config.get("is_encoder_decoder") is True:
        found.append(Kernel(ENCODER, "an encoder beside its decoder (is_encoder_decoder)"))
    return tuple(found)


def _window(config: Mapping[str, object]) -> str | None:
    """Return the name for a model with a window; None where no layer has it."""
    types = config.get("layer_types")
    if isinstance(types, list):
        windows = sum(kind == "sliding_attention" for kind in types)
        return None if not windows else WINDOW if windows == len(types) else INTERLEAVED
    if config.get("model_type") in INTERLEAVED_TYPES:
        return INTERLEAVED
    whole, layers = config.get("max_window_layers"), config.get("num_hidden_layers")
    if isinstance(whole, int) and isinstance(layers, int) and whole < layers:
        return SOME_LAYERS
    return WINDOW
