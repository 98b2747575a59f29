"""What a plan knows of a model: from its catalogue file, from a given config.json, or only from its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .catalogue import Architecture, ModelEntry
from .checks import Refusal, shown

# Models the vendor's scripts treat in a way of their own: (model_type, hidden_size, num_hidden_layers) of their
# config.json. Fine-tuned and distilled models share the shape of what they came from, whatever they are called.
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

# The names the scripts look for (in the lower-cased last part of the path), for models of which nothing else is known.
# For the 7B models of the Qwen2 family the looser form of a later version: it also finds a renamed fine-tune.
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
)

# Names of models on the DeepSeek releases that answer without thinking aloud first.
NOT_THINKING = ("coder", "instruct", "deepseek-v3")

# model_type values whose attention uses linear biases (ALiBi) in every published checkpoint.
ALIBI_TYPES = ("bloom", "mpt")

# Where multimodal models keep the configuration of the language model inside their own.
NESTED = ("thinker_config", "text_config", "llm_config", "language_config")

FP8_METHODS = ("fp8", "fbgemm_fp8", "compressed-tensors")


@dataclass(frozen=True)
class ModelFacts:
    """What rules may ask about a model. ``architecture`` None: only the name is known."""

    name: str
    known_from: str
    architecture: Architecture | None
    kind: str | None
    stored_fp8: bool | None
    alibi: bool

    @property
    def num_experts(self) -> int | None:
        """Experts of each layer; 0 dense, None not known."""
        return self.architecture.num_experts if self.architecture else None


def facts(weights: str, entry: ModelEntry | None, config: Mapping[str, object] | None) -> ModelFacts:
    """Collect what is known, best source first: the given config.json, the catalogue, the name."""
    name = weights.rstrip("/").rsplit("/", 1)[-1]
    if config is not None:
        architecture = architecture_of(config)
        method = config.get("quantization_config")
        quant = method.get("quant_method") if isinstance(method, Mapping) else None
        alibi = architecture.model_type in ALIBI_TYPES or bool(config.get("alibi"))
        return ModelFacts(name, "model_config", architecture, kind_of(architecture), quant in FP8_METHODS, alibi)
    if entry is not None:
        architecture = entry.architecture
        stored_fp8 = entry.dtype.startswith("float8")
        alibi = architecture.position_bias_alibi or architecture.model_type in ALIBI_TYPES
        return ModelFacts(name, "catalogue", architecture, kind_of(architecture), stored_fp8, alibi)
    return ModelFacts(name, "name", None, kind_by_name(name), None, alibi=False)


def kind_by_name(name: str) -> str | None:
    """The kind the vendor's script sees in a directory's name."""
    lowered = name.lower()
    return next((kind for part, kind in NAMES if part in lowered), None)


def kind_of(architecture: Architecture) -> str | None:
    """The kind a model's own shape says it is."""
    if architecture.model_type.startswith("llama4"):
        return "llama4-scout" if architecture.num_experts == SCOUT_EXPERTS else None
    shape = (architecture.model_type, architecture.hidden_size, architecture.num_hidden_layers)
    if shape == ("llama", 4096, 32) and architecture.num_key_value_heads == architecture.num_attention_heads:
        # Llama 1 and 2 have this shape too; the exception is for Llama 3.1 (grouped heads) and its distillate.
        return None
    return SHAPES.get(shape, "qwen3-other" if architecture.model_type.startswith("qwen3") else None)


SCOUT_EXPERTS = 16


def architecture_of(config: Mapping[str, object]) -> Architecture:
    """Read a config.json. Raises :class:`Refusal` with the key that is missing or wrong."""
    inner = config
    for key in NESTED * 2:
        nested = inner.get(key)
        if isinstance(nested, Mapping):
            inner = nested

    def find(*keys: str) -> int | None:
        for source in (inner, config):
            for key in keys:
                value = source.get(key)
                if value is not None:
                    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1 << 40:
                        raise Refusal(f"model_config: {key} must be a whole number, not {shown(value)}.")
                    return value
        return None

    def need(*keys: str) -> int:
        value = find(*keys)
        if not value:
            raise Refusal(f"model_config has no {keys[0]}. Give the content of the model's own config.json.")
        return value

    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type or len(model_type) > 64:
        raise Refusal("model_config has no model_type. Give the content of the model's own config.json.")
    heads = need("num_attention_heads", "n_head", "n_heads")
    return Architecture(
        model_type=model_type,
        num_attention_heads=heads,
        num_key_value_heads=find("num_key_value_heads", "num_kv_heads") or heads,
        num_hidden_layers=need("num_hidden_layers", "n_layer", "n_layers"),
        hidden_size=need("hidden_size", "n_embd", "d_model"),
        max_position_embeddings=need("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
        vocab_size=need("vocab_size"),
        head_dim=find("head_dim"),
        num_experts=find("num_experts", "num_local_experts", "n_routed_experts") or 0,
        kv_lora_rank=find("kv_lora_rank"),
        qk_rope_head_dim=find("qk_rope_head_dim"),
        position_bias_alibi=bool(config.get("alibi")),
    )


def thinking_parser(model: ModelFacts, entry: ModelEntry | None) -> str | None:
    """The reasoning parser of a model served with a DeepSeek release, None for one that does not think aloud."""
    if entry is not None:
        return entry.reasoning_parser
    lowered = model.name.lower()
    if model.architecture is not None and not model.architecture.model_type.startswith("deepseek"):
        return None
    return None if any(part in lowered for part in NOT_THINKING) else "deepseek_r1"
