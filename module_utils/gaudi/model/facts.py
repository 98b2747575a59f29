"""Facts about a model: from its catalogue file, from a given config.json, or only from its name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from ..base.checks import MOST_OF_FIGURE, positive, shown
from ..base.refusal import Refusal
from ..catalogue.entries import Architecture, ModelEntry, State
from .kernels import Kernel, kernels_of
from .positions import KEYS as POSITION_KEYS
from .positions import Positions, positions_of
from .schemes import QuantizationScheme, group_of, schemes_of
from .state import state_of

# Models that the vendor's scripts treat specially: (model_type, hidden_size, num_hidden_layers) of their config.json.
# Fine-tuned and distilled models have the same shape as their base model, under any name.
SHAPES = {
    ("qwen2", 3584, 28): "qwen2-7b",
    ("qwen2", 5120, 48): "qwen2-14b",
    ("qwen2", 5120, 64): "qwen2-32b",
    ("llama", 4096, 32): "llama-8b",
    ("llama", 8192, 80): "llama-70b",
    ("qwen3", 4096, 36): "qwen3-8b",
    ("qwen3", 5120, 40): "qwen3-14b",
    ("qwen3", 5120, 64): "qwen3-32b",
    ("qwen3_moe", 2048, 48): "qwen3-30b-a3b",
    ("qwen3_moe", 4096, 94): "qwen3-235b-a22b",
}
# Kinds that are independent of the size.
TYPES = {"deepseek_v3": "deepseek-v3"}

# Names that the scripts search in the lower-cased last part of the path, for models of which only the name is known.
# For the 7B models of the Qwen2 family this is the looser pattern of a later version, which also matches a renamed
# fine-tune.
NAMES = (
    ("llama-4-scout-17b-16e-instruct", "llama4-scout"),
    ("deepseek-r1-distill-qwen-7b", "qwen2-7b"),
    ("deepseek-r1-distill-qwen-14b", "qwen2-14b"),
    ("deepseek-r1-distill-qwen-32b", "qwen2-32b"),
    ("deepseek-r1-distill-llama-8b", "llama-8b"),
    ("deepseek-r1-distill-llama-70b", "llama-70b"),
    ("qwen2-7b", "qwen2-7b"),
    ("qwen2.5-7b", "qwen2-7b"),
    ("qwq-32b", "qwen2-32b"),
    ("qwen3-8b", "qwen3-8b"),
    ("qwen3-14b", "qwen3-14b"),
    ("qwen3-32b", "qwen3-32b"),
    ("qwen3-30b-a3b", "qwen3-30b-a3b"),
    ("qwen3-235b-a22b", "qwen3-235b-a22b"),
    ("qwen3", "qwen3-other"),
    # Distilled ones are no DeepSeek models.
    ("deepseek-r1-distill", "distilled"),
    ("deepseek-r1", "deepseek-v3"),
    ("deepseek-v3", "deepseek-v3"),
)

# model_type values whose attention uses linear biases (ALiBi) in every published checkpoint.
ALIBI_TYPES = ("bloom", "mpt")
# The same models by name.
ALIBI_NAMES = re.compile(r"(?<![a-z])(bloomz?|mpt)(?![a-z])")

# Keys under which multimodal models nest their language model's configuration.
NESTED = ("thinker_config", "text_config", "llm_config", "language_config")

FP8_METHODS = ("fp8", "fbgemm_fp8", "compressed-tensors")
# Side of the blocks that published FP8 weights are scaled by (weight_block_size in config.json of Qwen3 and DeepSeek).
# Catalogue files do not say it; of a given config.json its own counts.
PUBLISHED_BLOCK = 128
# Methods that are selected by dtype; otherwise the cards' kernels are never used (override_quantization_method of
# awq_hpu.py and gptq_hpu.py in vllm-hpu-extension).
DTYPE_METHODS = ("awq", "gptq")
METHOD_NAMES = re.compile(r"(?<![a-z])(awq|gptq)(?![a-z])")


# Keys of the number of layers that guess further tokens (n_predict in SpeculativeConfig of every release).
MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")

# What cannot be decided or checked if config.json lacks a key.
GAPS = {
    "model_type": "its name decides what its type would, such as a softmax in float32",
    "num_attention_heads": "whether tensor_parallel_size divides the attention heads is not checked",
    "num_hidden_layers": "the size of its KV cache is not checked, and its name decides what its size would",
    "hidden_size": "the size of its KV cache is not checked, and its name decides what its size would",
    "max_position_embeddings": "whether it takes max_model_len is not checked",
}

SCOUT_EXPERTS = 16


@dataclass(frozen=True)
class Shape:
    """A model's architecture, as far as it is known. None: unknown. Zero experts: a dense model."""

    model_type: str | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    num_hidden_layers: int | None = None
    hidden_size: int | None = None
    head_dim: int | None = None
    num_experts: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    moe_intermediate_size: int | None = None
    parameters: int | None = None
    # Layers without a KV cache, and the state that they keep of a sequence; None for an attention-only model.
    state: State | None = None

    @classmethod
    def of(cls, architecture: Architecture) -> Shape:
        """Return the shape from a catalogue file."""
        return cls(**{item.name: getattr(architecture, item.name) for item in fields(cls)})


@dataclass(frozen=True)
class ModelFacts:
    """Facts that rules may use. ``gaps``: keys that config.json lacks, each with the consequence."""

    name: str
    known_from: str
    shape: Shape
    positions: Positions
    kind: str | None
    # quant_method of config.json; None where the weights are not quantised.
    quant_method: str | None
    alibi: bool
    gaps: tuple[str, ...] = ()
    # The format within the method, in small letters: quant_algo of modelopt, format of compressed-tensors.
    quant_format: str | None = None
    # Side of the blocks that FP8 weights are scaled by, in weights; None where they are not scaled by blocks.
    weight_block: int | None = None
    # Kinds of attention that a release's backend must have.
    kernels: tuple[Kernel, ...] = ()
    # What the layers are quantised to, each once.
    schemes: tuple[QuantizationScheme, ...] = ()
    # How many weights of a row have one scale, and the lengths of rows that the cards share, by their keys.
    scale_group: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    # The key of config.json that says that no layers of it guess further tokens (MTP); None where none says so.
    without_mtp: str | None = None

    @property
    def stored_fp8(self) -> bool:
        """Whether the weights are stored as FP8."""
        return self.quant_method in FP8_METHODS


def facts(
    weights: str, entry: ModelEntry | None, config: Mapping[str, object] | None, overrides: Mapping[str, object]
) -> ModelFacts:
    """Collect the facts, best source first: the given config.json, the catalogue, the name.

    ``overrides`` are keys of config.json that the request's arguments replace (``--rope-scaling``, ``--hf-overrides``).
    """
    name = weights.rstrip("/").rsplit("/", 1)[-1]
    if config is not None:
        inner = language_model(config)
        shape = shape_of(config, inner)
        alibi = shape.model_type in ALIBI_TYPES or bool(config.get("alibi"))
        lengths = inner if any(inner.get(key) is not None for key in POSITION_KEYS) else config
        positions = positions_of({**lengths, **overrides})
        known = shape.model_type and shape.hidden_size and shape.num_hidden_layers
        kind = kind_of(shape) if known else kind_by_name(name)
        gaps = tuple(
            f"model_config has no {key}: {follows}."
            for key, follows in GAPS.items()
            if (positions.longest if key == "max_position_embeddings" else getattr(shape, key)) is None
        )
        method = method_of(config)
        return ModelFacts(
            name,
            "model_config",
            shape,
            positions,
            kind,
            method,
            alibi,
            gaps,
            quant_format=format_of(config, method),
            weight_block=block_of(config, method),
            kernels=kernels_of(inner),
            schemes=schemes_of(config, method),
            scale_group=group_of(config, method),
            rows=rows_of(inner, shape),
            without_mtp=next((key for key in MTP_LAYERS if inner.get(key) == 0), None),
        )
    if entry is not None and entry.architecture is not None:
        architecture = entry.architecture
        shape = Shape.of(architecture)
        method = "fp8" if entry.dtype.startswith("float8") else "mxfp4" if entry.dtype == "mxfp4" else None
        alibi = architecture.position_bias_alibi or architecture.model_type in ALIBI_TYPES
        # The catalogue's length is the final one, after its own scaling.
        length = {
            "model_type": architecture.model_type,
            "max_position_embeddings": architecture.max_position_embeddings,
        }
        return ModelFacts(
            name,
            "catalogue",
            shape,
            positions_of({**length, **overrides}),
            kind_of(shape),
            method,
            alibi,
            weight_block=PUBLISHED_BLOCK if method == "fp8" else None,
        )
    lowered = name.lower()
    named = METHOD_NAMES.search(lowered)
    method, alibi = named.group() if named else None, bool(ALIBI_NAMES.search(lowered))
    return ModelFacts(name, "name", Shape(), positions_of(overrides), kind_by_name(name), method, alibi)


def rows_of(inner: Mapping[str, object], shape: Shape) -> Mapping[str, int]:
    """Return the lengths of the rows that each card has a part of: the second layers of attention and feed-forward.

    Experts are not among them, which have rules of their own; nor is latent attention.
    """
    rows = {}
    heads, size = shape.num_attention_heads, shape.head_dim
    if shape.kv_lora_rank is None and heads is not None and shape.hidden_size is not None:
        rows["num_attention_heads * head_dim"] = heads * (size or shape.hidden_size // heads)
    wide = positive(inner.get("intermediate_size"))
    if wide is not None and (not shape.num_experts or positive(inner.get("first_k_dense_replace"))):
        rows["intermediate_size"] = wide
    return rows


def method_of(config: Mapping[str, object]) -> str | None:
    """Return a config.json's quantisation method, as the server reads it; None for unquantised weights.

    Raises Refusal for a quantization_config that cannot be read.
    """
    found = config.get("quantization_config") or config.get("compression_config")
    if not found:
        return None
    method = found.get("quant_method") if isinstance(found, Mapping) else None
    if not isinstance(method, str) or not method:
        raise Refusal(
            "no_quant_method",
            f"model_config: quantization_config needs a quant_method such as fp8, not {shown(found)}.",
        )
    return method.lower().replace("_", "-") if method.lower() == "compressed_tensors" else method.lower()


def format_of(config: Mapping[str, object], method: str | None) -> str | None:
    """The format of quantised weights where one method has several; None for all others, and where none is said."""
    found = config.get("quantization_config") or config.get("compression_config")
    key = {"modelopt": "quant_algo", "compressed-tensors": "format"}.get(method or "")
    said = found.get(key) if key and isinstance(found, Mapping) else None
    return said.lower() if isinstance(said, str) else None


def block_of(config: Mapping[str, object], method: str | None) -> int | None:
    """The side of the blocks that FP8 weights are scaled by; None where config.json names none, or another method."""
    found = config.get("quantization_config")
    sides = found.get("weight_block_size") if method == "fp8" and isinstance(found, Mapping) else None
    # vLLM takes [rows, columns]; experts are divided along both.
    whole = [side for side in map(positive, sides[:2]) if side is not None] if isinstance(sides, list) else []
    return math.lcm(*whole) if whole else None


def kind_by_name(name: str) -> str | None:
    """Return the kind that the vendor's script derives from a directory's name."""
    lowered = name.lower()
    return next((kind for part, kind in NAMES if part in lowered), None)


def kind_of(shape: Shape) -> str | None:
    """Return the kind that follows from a model's shape."""
    model_type = shape.model_type or ""
    if model_type.startswith("llama4"):
        return "llama4-scout" if shape.num_experts == SCOUT_EXPERTS else None
    size = (model_type, shape.hidden_size or 0, shape.num_hidden_layers or 0)
    if size == ("llama", 4096, 32) and shape.num_key_value_heads == shape.num_attention_heads:
        # Llama 1 and 2 have this shape too; the exception is for Llama 3.1 (grouped heads) and its distillate.
        return None
    by_type = "qwen3-other" if model_type.startswith("qwen3") else TYPES.get(model_type)
    return SHAPES.get(size, by_type)


def language_model(config: Mapping[str, object]) -> Mapping[str, object]:
    """The part of a config.json that describes the language model: all of it, or a part of a multimodal model's."""
    inner = config
    for key in NESTED * 2:
        nested = inner.get(key)
        if isinstance(nested, Mapping):
            inner = nested
    return inner


def shape_of(config: Mapping[str, object], inner: Mapping[str, object]) -> Shape:
    """Read a config.json as far as it goes. Raises Refusal, with the key, for an impossible value."""

    def find(*keys: str, lowest: int = 1) -> int | None:
        for source in (inner, config):
            for key in keys:
                value = source.get(key)
                if value is not None:
                    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= MOST_OF_FIGURE:
                        raise Refusal(
                            "not_a_whole_number",
                            f"model_config: {key} must be a whole number from {lowest}, not {shown(value)}.",
                        )
                    return value
        return None

    model_type = config.get("model_type")
    if model_type is not None and (not isinstance(model_type, str) or not model_type or len(model_type) > 64):
        raise Refusal("wrong_form", f"model_config: model_type must be a name such as qwen2, not {shown(model_type)}.")
    heads = find("num_attention_heads", "n_head", "n_heads")
    experts = find("num_experts", "num_local_experts", "n_routed_experts", lowest=0)
    return Shape(
        model_type=model_type,
        num_attention_heads=heads,
        # If config.json has no number of key-value heads, every attention head has its own.
        num_key_value_heads=find("num_key_value_heads", "num_kv_heads") or heads,
        num_hidden_layers=find("num_hidden_layers", "n_layer", "n_layers"),
        hidden_size=find("hidden_size", "n_embd", "d_model"),
        head_dim=find("head_dim"),
        # A known model type without a number of experts has none.
        num_experts=0 if experts is None and model_type is not None else experts,
        kv_lora_rank=find("kv_lora_rank"),
        qk_rope_head_dim=find("qk_rope_head_dim"),
        # Some models have no key of its own for the width of their experts (Mixtral, MiniMax-M2).
        moe_intermediate_size=find("moe_intermediate_size", *(("intermediate_size",) if experts else ())),
        state=state_of(inner),
    )
