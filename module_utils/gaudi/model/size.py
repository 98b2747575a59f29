"""How many weights a config.json describes, and the bytes they take on cards: an estimate before anything is fetched.

The formulas are those of a decoder of the Llama form (embeddings, attention, gated feed-forward, experts), with latent
attention as in DeepSeek-V3. Norms, biases, routers and towers for pictures are left out: below 2 % of large models.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.checks import positive
from .facts import format_of, language_model, method_of

# Bytes of a weight of a quantised linear layer on a card, scales included (groups of 128 have one of 2 bytes). Others
# become BF16 while they load: mxfp4 (gptoss_mxfp4.py of vllm-gaudi) and whole numbers of 8 bits
# (hpu_compressed_tensors.py).
QUANTISED = {"fp8": 1.0, "fbgemm_fp8": 1.0, "modelopt": 1.0, "awq": 0.52, "gptq": 0.52}
FORMATS = {"pack-quantized": 0.52, "float-quantized": 1.0, "naive-quantized": 1.0}
WHOLE = 2.0


def loaded_bytes(config: Mapping[str, object]) -> int | None:
    """The bytes of a model on its cards; None where config.json lacks a figure that it takes."""
    counts = parameters(config)
    if counts is None:
        return None
    linear, embeddings = counts
    method = method_of(config)
    width = QUANTISED.get(method or "", FORMATS.get(format_of(config, method) or "", WHOLE))
    return round(linear * width + embeddings * WHOLE)


def parameters(config: Mapping[str, object]) -> tuple[int, int] | None:
    """The weights of linear layers and of embeddings (with the output layer); None where a figure is missing."""
    inner = language_model(config)

    def number(*keys: str) -> int | None:
        return next((figure for key in keys if (figure := positive(inner.get(key)))), None)

    hidden, layers, heads = number("hidden_size"), number("num_hidden_layers"), number("num_attention_heads")
    vocabulary, width = number("vocab_size"), number("intermediate_size")
    experts = number("num_experts", "num_local_experts", "n_routed_experts") or 0
    expert = number("moe_intermediate_size") or width
    if hidden is None or layers is None or heads is None or vocabulary is None or (width or expert) is None:
        return None
    shared = number("num_key_value_heads") or heads
    size = number("head_dim") or hidden // heads
    latent, turned = number("kv_lora_rank"), number("qk_rope_head_dim")
    if latent is not None and turned is not None:
        plain, value, query = number("qk_nope_head_dim") or size, number("v_head_dim") or size, number("q_lora_rank")
        queries = hidden * heads * (plain + turned) if query is None else query * (hidden + heads * (plain + turned))
        attention = queries + hidden * (latent + turned) + latent * heads * (plain + value) + heads * value * hidden
    else:
        attention = hidden * size * (2 * heads + 2 * shared)
    dense = number("first_k_dense_replace") or 0 if experts else layers
    feed = 3 * hidden * (width or 0)
    mixture = 3 * hidden * (expert or 0) * (experts + (number("n_shared_experts") or 0))
    linear = layers * attention + dense * feed + (layers - dense) * mixture
    tied = inner.get("tie_word_embeddings") is True or config.get("tie_word_embeddings") is True
    return linear, vocabulary * hidden * (1 if tied else 2)
